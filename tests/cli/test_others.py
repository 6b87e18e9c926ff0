"""`potstill init`, `sources` and `report`."""

import json

import pytest

from potstill.config import load_settings
from potstill.data.catalogue import catalogue
from potstill.models.cache_room import held_folder


def test_init_writes_settings_that_load(run, tmp_path):
    ran = run("init", "sst2.toml")
    assert ran.code == 0
    assert "potstill distill sst2.toml" in ran.out
    assert load_settings(tmp_path / "sst2.toml").run.out == "runs/sst2"


def test_init_never_overwrites(run, tmp_path):
    (tmp_path / "potstill.toml").write_text("mine")
    ran = run("init")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == "error: potstill.toml exists; fix: give another name, or remove it first\n"
    assert (tmp_path / "potstill.toml").read_text() == "mine"


def test_init_in_json(run):
    assert json.loads(run("init", "a.toml", "--json").out) == {"schema_version": 1, "path": "a.toml"}


def test_sources(run):
    ran = run("sources")
    assert ran.code == 0
    for entry in catalogue():
        assert entry.sources[0] in ran.out
        assert entry.licence in ran.out


def test_sources_in_json(run):
    answer = json.loads(run("sources", "--json").out)
    assert answer["schema_version"] == 1
    assert [entry["name"] for entry in answer["sources"]] == [entry.name for entry in catalogue()]


@pytest.fixture
def drawn(replace, tmp_path):
    calls = []

    def write_report(report, folder):
        calls.append((report, folder))
        return folder / "report.html"

    replace("report", write_report=write_report)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "report.json").write_text('{"schema_version": 1}')
    return calls


def test_report_draws_again(run, drawn):
    from pathlib import Path

    ran = run("report", "run")
    assert (ran.code, ran.out) == (0, "run/report.html\n")
    assert drawn == [({"schema_version": 1}, Path("run"))]


def test_report_in_json(run, drawn):
    assert json.loads(run("report", "run", "--json").out) == {"schema_version": 1}


def test_report_without_a_run(run):
    ran = run("report", "absent")
    assert (ran.code, ran.out) == (2, "")
    assert "absent has no report.json" in ran.err


def test_report_of_a_damaged_file(run, drawn, tmp_path):
    (tmp_path / "run" / "report.json").write_text("{")
    ran = run("report", "run")
    assert ran.code == 2
    assert "cannot be read" in ran.err


def test_cache_lists_and_clears(run, tmp_path, monkeypatch):
    monkeypatch.setenv("POTSTILL_CACHE", str(tmp_path / "cache"))
    root = tmp_path / "cache" / "teacher"
    assert run("cache").out == f"0.0 MB of 0 teachers in {root}\n"
    for name in ("first", "second"):
        with held_folder(root / name, f"12x768, the teacher of {name}"):
            (root / name / "rows.safetensors").write_bytes(bytes(1_000_000))
    listed = run("cache")
    assert listed.code == 0
    assert "1.0 MB" in listed.out
    assert "the teacher of first" in listed.out
    assert listed.out.endswith(f"2.0 MB of 2 teachers in {root}\n")
    with held_folder(root / "second", "in use"):
        assert "1.0 MB removed, what runs are using stays" in run("cache", "--clear").out
    answer = json.loads(run("cache", "--json").out)
    assert [one["teacher"] for one in answer["teachers"]] == ["12x768, the teacher of second"]
    assert answer["schema_version"] == 1
    assert json.loads(run("cache", "--clear", "--json").out)["removed_bytes"] > 1_000_000
    assert list(root.iterdir()) == []
