"""The sample reports as fixtures, a fresh copy for each test."""

import importlib.util
from pathlib import Path
from typing import Any

import pytest

_SPEC = importlib.util.spec_from_file_location("report_sample", Path(__file__).with_name("sample.py"))
sample = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(sample)


@pytest.fixture
def full() -> dict[str, Any]:
    return sample.full()


@pytest.fixture
def three() -> dict[str, Any]:
    return sample.three()


@pytest.fixture
def many() -> dict[str, Any]:
    return sample.many()


@pytest.fixture
def scored() -> dict[str, Any]:
    return sample.scored()


@pytest.fixture(params=["full", "three", "many", "scored"])
def any_report(request) -> dict[str, Any]:
    return getattr(sample, request.param)()


@pytest.fixture
def refused() -> dict[str, Any]:
    """A run that stopped at its teacher."""
    report = sample.full()
    for key in ("student", "retention", "gap_closed", "size_ratio", "best_export", "student_errors", "recipe"):
        del report[key]
    return report | {
        "status": "refused",
        "exports": [],
        "baselines": {},
        "disagreements": [],
        "teacher_latency_ms": None,
    }
