"""`potstill init`, `sources` and `report`."""

import json

import pytest

from potstill.config import load_settings
from potstill.data.catalogue import catalogue


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
