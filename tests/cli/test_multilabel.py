"""Sets of labels through `potstill data check`, `finetune`, `evaluate` and `predict`, one after the other."""

import json

import numpy as np
import pytest
from sklearn.metrics import precision_recall_fscore_support
from tests.pipeline.test_multilabel import write_sets
from tests.tiny import tiny_model

QUICK = ["--epochs", "25", "--learning-rate", "0.003", "--set", "training.precision=float32", "--set", "run.threads=1"]
LABELS = ["glad", "sorry", "visual"]


def marks(sets):
    return np.array([[label in found for label in LABELS] for found in sets])


@pytest.fixture
def files(tmp_path):
    for seed, (name, rows) in enumerate((("train", 300), ("dev", 120), ("test", 120))):
        write_sets(tmp_path / f"{name}.tsv", rows, seed, separator="|")
    return ["train.tsv", "dev.tsv", "test.tsv"]


def test_one_after_the_other(run, tmp_path, files):
    tiny_model(tmp_path / "encoder", kind="bert")
    train, dev, test = files
    cut = ["--set", 'data.label_separator="|"', "--task", "multilabel"]
    ran = run(
        *("finetune", "--model", "encoder", "--train", train, "--dev", dev, "--test", test, "--out", "run"),
        *(*QUICK, *cut, "--json"),
    )
    assert ran.code == 0, ran.err
    made = json.loads(ran.out)
    deployed = json.loads((tmp_path / "run" / "model" / "potstill.json").read_text())
    assert (deployed["task"], deployed["labels"]) == ("multilabel", LABELS)
    assert deployed["thresholds"] == made["model"]["thresholds"]
    assert set(deployed["thresholds"].values()) != {0.5}

    ran = run(
        *("evaluate", "run/model", "--data", test, "--label-separator", "|", "--classes", "--json", "--quiet"),
        *("--predictions", "answers.jsonl"),
    )
    assert (ran.code, ran.err) == (0, "")
    judged = json.loads(ran.out)
    assert {name: one["value"] for name, one in judged["metrics"].items()} == pytest.approx(
        {name: one["value"] for name, one in made["metrics"]["test"].items()}
    )
    assert judged["metrics"]["micro_f1"]["value"] > 0.8
    rows = list(map(json.loads, (tmp_path / "answers.jsonl").read_text().splitlines()))
    reckoned = precision_recall_fscore_support(marks(r["gold"] for r in rows), marks(r["labels"] for r in rows))
    for place, label in enumerate(LABELS):
        own = judged["classes"][label]
        assert [own["precision"]["value"], own["recall"]["value"], own["f1"]["value"], own["support"]] == pytest.approx(
            [scores[place] for scores in reckoned]
        )

    ran = run("predict", "run/model", "--input", test, "--text", "text")
    assert ran.code == 0, ran.err
    answers = list(map(json.loads, ran.out.splitlines()))
    assert [answer["labels"] for answer in answers] == [row["labels"] for row in rows]
    for answer in answers:
        assert answer["labels"] == [
            label for label in LABELS if answer["probabilities"][label] >= deployed["thresholds"][label]
        ]
    ran = run("predict", "run/model", "--abstain-below", "0.9", "good")
    assert ran.code == 2
    assert "answers (multilabel) have no probability of their own" in ran.err


def test_a_check_reads_sets_as_a_run_does(run, tmp_path, files):
    known = ["data", "check", *files, "--task", "multilabel", "--label-separator", "|"]
    ran = run(*known, "--json", "--quiet")
    assert ran.code == 0, ran.out
    cells = [line.split("\t")[1] for line in (tmp_path / "train.tsv").read_text().splitlines()[1:]]
    one = json.loads(ran.out)["files"][0]
    assert one["labels"] == {label: sum(label in cell.split("|") for cell in cells) for label in one["labels"]}
    assert sorted(one["labels"]) == LABELS
    assert (one["usable"], one["without_label"]) == (300, cells.count(""))
    assert f"  no label    {cells.count('')} rows\n" in run(*known, "--quiet").out


def test_a_check_refuses_what_a_run_refuses(run, tmp_path):
    (tmp_path / "joined.tsv").write_text("text\tlabel\na good film\tglad|visual\nit was bad\tsorry|visual\n")
    ran = run("data", "check", "joined.tsv", "--task", "multilabel", "--quiet")
    assert ran.code == 1
    assert "no row has two labels, and 2 of the labels have '|' in them" in ran.out
    (tmp_path / "none.tsv").write_text("text\tlabel\na good film\t\nit was bad\t\n")
    ran = run("data", "check", "none.tsv", "--task", "multilabel", "--quiet")
    assert ran.code == 1
    assert "refused: none.tsv: no labels in 2 rows" in ran.out
    ran = run("data", "check", "joined.tsv", "--label-separator", "|", "--quiet")
    assert ran.code == 2
    assert "the label separator '|' for one label a text" in ran.err
