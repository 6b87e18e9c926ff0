"""A whole run whose teacher, texts and small baseline come from a hub, and what its report says of them."""

import json
from pathlib import Path

import pytest
from tests.hub import Hub
from tests.pipeline.tiny_job import tiny_settings, write_rows
from tests.tiny import tiny_model

from potstill.cli.app import main

pytestmark = pytest.mark.hub


def _files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_run_from_the_hub_by_bare_name_and_revision(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tiny_settings(tmp_path)  # makes the teacher and the rows
    small = tiny_model(tmp_path / "small", kind="bert", layers=1, hidden=16, heads=4)
    rows = {f"{name}.tsv": (tmp_path / f"{name}.tsv").read_bytes() for name in ("train", "dev", "test")}
    with Hub() as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        monkeypatch.setenv("POTSTILL_CACHE", str(tmp_path / "cache"))
        teacher = hub.add("model", "tiny-bert", _files(tmp_path / "teacher"), licence="apache-2.0")
        hub.add("model", "acme/small", _files(small))
        pinned = hub.add("dataset", "acme/rows", rows, licence="cc0-1.0")
        write_rows(tmp_path / "other.tsv", 60, 7)
        hub.add("dataset", "acme/rows", {"train.tsv": (tmp_path / "other.tsv").read_bytes()}, licence="cc0-1.0")
        settings = {
            "teacher.trained": "false",
            "teacher.epochs": 25,
            "teacher.learning_rate": 0.003,
            "augment.copies": 1,
            "distill.epochs": 2,
            "distill.precision": "float32",
            "export.formats": "[]",
            "evaluate.resamples": 100,
            "run.threads": 1,
        }
        call = ["distill", "--teacher", "tiny-bert", "--baseline", "hub:acme/small", "--student", "1x16x32x4", "--json"]
        for role in ("train", "dev", "test"):
            call += [f"--{role}", f"hub:acme/rows@{pinned}/{role}.tsv"]
        for name, value in settings.items():
            call += ["--set", f"{name}={value}"]
        assert main([*call, "--out", str(tmp_path / "run")]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["status"] == "complete"
    sources = json.dumps([report["teacher"], report["data"]])
    assert teacher in sources, "the commit that was used"
    assert pinned in sources
    assert "apache-2.0" in sources
    assert "cc0-1.0" in sources
    assert 0 < report["data"]["train"] <= 240
    assert report["baselines"]["small_pretrained"]["score"]["value"] > 0.5
    assert report["teacher"]["score"]["value"] > 0.9
