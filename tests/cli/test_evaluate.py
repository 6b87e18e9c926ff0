"""`potstill finetune`, `evaluate` and `predict`, one after the other, on tiny models."""

import json

import pytest
from tests.pipeline.tiny_job import write_rows
from tests.tiny import tiny_model

from potstill.data.rows import BadRow

QUICK = ["--epochs", "25", "--learning-rate", "0.003", "--set", "training.precision=float32", "--set", "run.threads=1"]
KEYS = {"schema_version", "task", "n", "metrics", "windowed", "truncated"}


def given(folder):
    tiny_model(folder / "encoder", kind="bert")
    for seed, (name, rows) in enumerate((("train", 240), ("dev", 80))):
        write_rows(folder / f"{name}.tsv", rows, seed)
    return ["finetune", "--model", "encoder", "--train", "train.tsv", "--dev", "dev.tsv", "--out", "run", *QUICK]


def test_one_after_the_other(run, tmp_path):
    ran = run(*given(tmp_path), "--json")
    assert ran.code == 0, ran.err
    found = json.loads(ran.out)
    assert found == json.loads((tmp_path / "run" / "finetune.json").read_text())
    assert "fine-tune: encoder, 2x32x64x4" in ran.err
    again = run("finetune", "run/settings.toml", "--quiet")
    assert (again.code, again.out) == (0, "model: run/model\n")
    shown = run("finetune", "run/settings.toml")
    assert "dev       accuracy" in shown.out

    ran = run("evaluate", "run/model", "--data", "dev.tsv", "--json", "--quiet", "--predictions", "answers.jsonl")
    assert (ran.code, ran.err) == (0, "")
    judged = json.loads(ran.out)
    assert set(judged) == KEYS
    assert (judged["schema_version"], judged["task"], judged["n"]) == (1, "classification", 80)
    for name, one in judged["metrics"].items():
        assert set(one) == {"value", "low", "high"}
        assert one["value"] == pytest.approx(found["metrics"]["dev"][name]["value"])
    rows = [json.loads(line) for line in (tmp_path / "answers.jsonl").read_text().splitlines()]
    assert sum(row["gold"] == row["label"] for row in rows) / 80 == pytest.approx(
        judged["metrics"]["accuracy"]["value"]
    )

    answers = run("predict", "run/model", "--input", "dev.tsv")
    assert [json.loads(line)["label"] for line in answers.out.splitlines()] == [row["label"] for row in rows]


def test_a_refused_fine_tuning_says_so_and_leaves_its_result(run, tmp_path):
    ran = run(*given(tmp_path), "--epochs", "1", "--learning-rate", "1e-7", "--json")
    assert ran.code == 1
    assert "error: the model scores" in ran.err
    assert json.loads(ran.out)["status"] == "refused"
    assert (tmp_path / "run" / "model" / "potstill.json").is_file()


def test_settings_to_start_from(run, tmp_path):
    ran = run("init", "--job", "finetune", "f.toml")
    assert "edit data.train and model.source, then: potstill finetune f.toml" in ran.out
    text = (tmp_path / "f.toml").read_text()
    assert "potstill finetune THIS_FILE" in text
    assert "# Epochs of fine-tuning." in text
    assert "model.source is not set" in run("finetune", "--train", "x.tsv").err
    assert "give --model SOURCE" in run("finetune", "--train", "x.tsv").err


@pytest.fixture
def model(tmp_path):
    (tmp_path / "rows.csv").write_text(
        "review,stars,kind\n" + "good film,positive,a\n" * 12 + "dull,negative,b\n" * 5 + ",negative,a\nfine,,a\n"
    )
    return tiny_model(tmp_path / "model", kind="bert")


def test_a_table_for_people(run, model):
    arguments = ["--data", "rows.csv", "--text", "review", "--label", "stars", "--by", "kind", "--classes"]
    ran = run("evaluate", model, *arguments, "--quiet")
    assert ran.code == 0
    assert ran.out.startswith("torch float32  accuracy")
    for told in ("the majority class: accuracy 70.6 %", "kind = a", "1 rare values", "label     support  precision"):
        assert told in ran.out
    errors = ran.err.splitlines()
    assert [line.rpartition("rows.csv ")[2] for line in errors[:2]] == ["row 18: empty text", "row 19: no label"]
    assert errors[2:] == ["rows set aside: 2"]


def test_further_keys(run, model):
    arguments = ["--data", "rows.csv", "--text", "review", "--label", "stars", "--json"]
    found = json.loads(run("evaluate", model, *arguments, "--by", "kind", "--classes").out)
    assert set(found) == KEYS | {"by", "classes"}
    assert found["by"]["rare"]["n"] == 5
    assert found["classes"]["negative"]["support"] == 5
    assert set(found["classes"]["negative"]) == {"precision", "recall", "f1", "support"}


def test_labels_made_of_numbers(run, model, tmp_path):
    (tmp_path / "n.csv").write_text("text,label\ngood,5\nbad,1\nso,3.1\n")
    ran = run("evaluate", model, "--data", "n.csv", "--label-threshold", "3", "--label-margin", "0.5", "--json")
    assert json.loads(ran.out)["n"] == 2
    assert "rows left out, near the threshold: 1" in ran.err


def test_many_bad_rows_are_named_and_counted(capsys):
    from potstill.cli.evaluate import _name

    _name(tuple(BadRow("a.csv", row, "empty text") for row in range(1, 61)), 0)
    lines = capsys.readouterr().err.splitlines()
    assert (len(lines), lines[49], lines[50:]) == (
        52,
        "a.csv row 50: empty text",
        ["... and 10 more", "rows set aside: 60"],
    )


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--data", "rows.csv"], "no column 'text'"),
        (["--data", "rows.csv", "--text", "revew", "--label", "stars"], "did you mean 'review'?"),
        (
            ["--data", "rows.csv", "--text", "review", "--label", "kind"],
            "expected those of the model: 'negative', ",
        ),
        (["--data", "rows.csv", "--text", "review", "--label", "review"], "expected a column for each"),
        (["--data", "rows.csv", "--text", "review", "--label", "stars", "--by", "knd"], "did you mean 'kind'?"),
        (["--data", "rows.csv", "--text", "review", "--pair", "kind"], "for a model that reads single texts"),
        (["--data", "rows.csv", "--text", "review", "--label", "stars", "--engine", "onnxruntime"], "does not exist"),
        (["--data", "empty.csv"], "is empty"),
        (["--data", "none.csv"], "no such file"),
        ([], "Missing option '--data'"),
    ],
)
def test_refusals(run, model, tmp_path, arguments, told):
    (tmp_path / "empty.csv").write_text("")
    ran = run("evaluate", model, *arguments)
    assert (ran.code, ran.out) == (2, "")
    assert told in ran.err.splitlines()[-1]
    assert not (tmp_path / "answers.jsonl").exists()


def test_a_run_is_not_its_model(run, model, tmp_path):
    (tmp_path / "runs").mkdir()
    model.rename(tmp_path / "runs" / "model")
    ran = run("evaluate", "runs", "--data", "rows.csv")
    assert (ran.code, ran.err.splitlines()[-1]) == (2, "error: runs is a run, not its model; fix: give runs/model")
