"""The end of a run: the deployable folder and the report, where the user looks for them."""

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from potstill.engines import ENGINE_OF_FORMAT
from potstill.errors import StorageError
from potstill.pipeline.trust import of_deployment
from potstill.report import write_card, write_report
from potstill.storage import MANIFEST, atomic_folder, read_json, verify_folder, write_json

__all__ = ["publish", "publish_model", "published"]

_OF_THE_CALL = ("created", "command", "conclusion")
"""Keys of a report that another call with the same result may change, or that writing it fills in."""


def published(report: Mapping[str, Any], out: Path) -> dict[str, Any] | None:
    """What report.json holds, where that and student/ already are what `publish` would leave; else None."""
    try:
        before = read_json(out / "report.json")
        verify_folder(out / "student")
    except StorageError:
        return None
    if not isinstance(before, dict) or not (out / "report.html").is_file():
        return None
    same = json.loads(json.dumps(report))
    ours, theirs = ({k: v for k, v in one.items() if k not in _OF_THE_CALL} for one in (same, before))
    return before if ours == theirs else None


def publish(report: Mapping[str, Any], student: Path | None, out: Path) -> dict[str, Any]:
    """Write report.json and report.html, and student/ with its card; returns what report.json holds.

    Files of the student are hard links where the file system allows, so that nothing large is held twice.

    Args:
        report: By `potstill.pipeline.assemble`.
        student: The exported folder; None where the run was refused.
        out: The run folder.
    """
    if student is None:
        shutil.rmtree(out / "student", ignore_errors=True)  # an older result, of a teacher that has been replaced
    write_report(report, out)
    finished: dict[str, Any] = read_json(out / "report.json")
    if student is not None:
        with atomic_folder(out / "student", {"made_by": "potstill"}) as work:
            shutil.copytree(student, work, copy_function=_link, dirs_exist_ok=True)
            (work / MANIFEST).unlink(missing_ok=True)
            facts = {**read_json(student / "potstill.json"), **of_deployment(finished["student"])}
            best = finished.get("best_export")
            if best is not None:
                engine = ENGINE_OF_FORMAT[best["format"]]
                facts["deploy"] = {"engine": engine, "precision": best["precision"]}
            (work / "potstill.json").unlink()
            write_json(work / "potstill.json", facts)
            write_card(finished, work)
    return finished


def publish_model(made: dict[str, Any], model: Path, out: Path, name: str, *, worked: bool) -> dict[str, Any]:
    """Write model/ and the result beside it, and return what the result's file then holds.

    Args:
        made: The result.
        model: The stage's folder that becomes model/.
        out: The run folder.
        name: The result's file.
        worked: Whether any stage was run. If not, and both already are what this would leave, nothing is written.
    """
    if not worked and (before := _unchanged(made, out, name)) is not None:
        return before
    with atomic_folder(out / "model", {"made_by": "potstill"}) as work:
        shutil.copytree(model, work, dirs_exist_ok=True)
    write_json(out / name, made)
    return made


def _unchanged(made: dict[str, Any], out: Path, name: str) -> dict[str, Any] | None:
    try:
        before = read_json(out / name)
        verify_folder(out / "model")
    except StorageError:
        return None
    own = json.loads(json.dumps({**made, "created": None}))
    return before if isinstance(before, dict) and {**before, "created": None} == own else None


def _link(source: str, target: str) -> str:
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
    return target
