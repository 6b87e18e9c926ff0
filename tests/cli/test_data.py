"""`potstill data check`."""

import json
import re

import pytest
from tests.tiny import tiny_model


@pytest.fixture
def files(tmp_path):
    (tmp_path / "train.csv").write_text(
        "review,stars\ngood film,pos\nbad film,neg\ngood film,pos\nBad  film!,pos\n,neg\n" + "fine,pos\n" * 200
    )
    (tmp_path / "dev.csv").write_text("review,stars\nGood film.,pos\ndull,neg\n")
    return ["train.csv", "dev.csv"]


def test_a_table_for_people(run, files):
    ran = run("data", "check", *files, "--text", "review", "--label", "stars", "--quiet")
    assert (ran.code, ran.err) == (0, "")
    for told in (
        "train.csv: 205 rows, 204 usable",
        "  columns     review, stars",
        "  labels      pos 203 (99.5%), neg 1 (0.5%)",
        "  repeated    201 rows beyond the first of their text",
        "  conflicting 1 texts with more than one label or score, in 2 rows",
        "shared: 1 texts, in 2 rows of train.csv and 1 of dev.csv (row 1 and row 1)",
    ):
        assert told in ran.out
    assert re.search(r"  set aside   1: \S*train.csv row 5 \(empty text\)\n", ran.out)
    assert ran.out.endswith("a run would take these files\n")


def test_json(run, files, tmp_path):
    tiny_model(tmp_path / "model", kind="bert")
    ran = run("data", "check", *files, "--text", "review", "--label", "stars", "--model", "model", "--json")
    found = json.loads(ran.out)
    assert set(found) == {"schema_version", "task", "files", "overlaps", "refused", "model", "longest_input"}
    assert (found["schema_version"], found["task"], found["longest_input"]) == (1, "classification", 64)
    assert set(found["files"][0]) == {
        "file",
        "rows",
        "usable",
        "columns",
        "labels",
        "without_label",
        "scores",
        "characters",
        "tokens",
        "repeated_texts",
        "conflicting_texts",
        "conflicting_rows",
        "left_out_near_threshold",
        "set_aside",
        "set_aside_total",
    }
    assert found["files"][0]["tokens"]["cut"] == {"64": 0}
    assert found["overlaps"] == [{"between": files, "texts": 1, "rows": [2, 1], "examples": [[1, 1]]}]


def test_what_a_run_refuses_is_1(run, files, tmp_path):
    (tmp_path / "dev.csv").write_text("review,stars\ndull,other\n")
    ran = run("data", "check", *files, "--text", "review", "--label", "stars", "--quiet")
    assert ran.code == 1
    assert ran.out.endswith("refused: dev.csv has labels that train.csv has not: 'other'\n")
    ran = run("data", "check", *files, "--text", "review", "--label", "stars", "--json")
    assert (ran.code, len(json.loads(ran.out)["refused"])) == (1, 1)


def test_scores_and_thresholds(run, tmp_path):
    (tmp_path / "s.tsv").write_text("one\t1\ntwo\t2.5\nthree\t5\n")
    arguments = ["data", "check", "s.tsv", "--no-header", "--text", "1", "--label", "2", "--quiet"]
    assert "  scores      1 to 5, mean 2.833" in run(*arguments, "--task", "regression").out
    ran = run(*arguments, "--label-threshold", "3", "--label-margin", "1")
    assert "labels      negative 1 (50.0%), positive 1 (50.0%)" in ran.out
    assert "left out    1 rows near the threshold" in ran.out


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["train.csv"], "no column 'text'"),
        (["train.csv", "--text", "reviews"], "did you mean 'review'?"),
        (["train.csv", "--text", "review", "--label", "star"], "did you mean 'stars'?"),
        (["empty.csv"], "is empty"),
        (["none.csv"], "no such file"),
        (["train.csv", "--task", "clasification"], "the task 'clasification'"),
        (["train.csv", "--task", "regression", "--label-threshold", "3"], "a label threshold of 3"),
        ([], "Missing argument"),
    ],
)
def test_refusals(run, files, tmp_path, arguments, told):
    (tmp_path / "empty.csv").write_text("")
    ran = run("data", "check", *arguments)
    assert (ran.code, ran.out) == (2, "")
    assert told in ran.err.splitlines()[-1]


def test_help(run):
    assert "check  Check labelled files." in run("data", "--help").out
    assert re.search(r"Example:\n +potstill data check\b", run("data", "check", "--help").out)
