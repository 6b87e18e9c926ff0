"""A model judged on a labelled file: against scikit-learn on its own answers, through several engines."""

import json
import random
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import pearsonr, spearmanr
from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef, precision_recall_fscore_support
from tests.tiny import TEXTS, tiny_model
from transformers import AutoTokenizer

from potstill.data.parts import Columns
from potstill.errors import DataError, ModelError
from potstill.evaluation.labelled import FEWEST, Judged, judge, read_labelled
from potstill.inference import Predictor, plain_deployment


def write(path: Path, rows: int = 90, labels: tuple[str, ...] = ("negative", "positive"), **texts: str) -> Path:
    """Rows of text, label and a column `kind`: a in half of them, b in most others, and rare values."""
    draw = random.Random(rows)
    lines = ["text\tlabel\tkind"]
    for number in range(rows):
        kind = "a" if number % 2 else "b" if number > 12 else f"r{number % 4}"
        lines.append(f"{draw.choice(TEXTS)} {draw.choice(TEXTS)}\t{draw.choice(labels)}\t{kind}")
    path.write_text("\n".join(lines) + "\n")
    return path


def judged(folder: Path, file: Path, **options) -> Judged:
    predictor = Predictor.load(folder, **options)
    return judge(predictor, read_labelled([file], Columns("text"), predictor.task.gold_rule()))


def test_metrics_are_scikit_learns_on_its_answers(folder, tmp_path):
    found = judged(folder, write(tmp_path / "rows.tsv"))
    answers = list(found.answers())
    gold, named = [row["gold"] for row in answers], [row["label"] for row in answers]
    facts = found.facts()
    metrics = {name: one["value"] for name, one in facts["metrics"].items()}
    assert metrics == pytest.approx(
        {
            "accuracy": accuracy_score(gold, named),
            "macro_f1": f1_score(gold, named, average="macro"),
            "f1": f1_score(gold, named, pos_label="positive"),
            "matthews": matthews_corrcoef(gold, named),
        }
    )
    assert all(one["low"] <= one["value"] <= one["high"] for one in facts["metrics"].values())
    assert [row["id"] for row in answers] == list(range(1, 91))
    by_label = found.by_label()
    assert by_label is not None
    expected = precision_recall_fscore_support(gold, named, labels=["negative", "positive"], zero_division=0)
    for place, name in enumerate(("negative", "positive")):
        own = by_label[name]
        values = [own["precision"]["value"], own["recall"]["value"], own["f1"]["value"], own["support"]]
        assert values == pytest.approx([column[place] for column in expected])


@pytest.mark.parametrize("temperature", [None, 3.0])
def test_answers_are_those_of_predict(bert, tmp_path, temperature):
    file, folder = write(tmp_path / "rows.tsv", 20), tmp_path / "model"
    shutil.copytree(bert, folder)
    facts = json.loads((folder / "potstill.json").read_text())
    (folder / "potstill.json").write_text(json.dumps(facts | ({"temperature": temperature} if temperature else {})))
    texts = [line.split("\t")[0] for line in file.read_text().splitlines()[1:]]
    expected = Predictor.load(folder).predict(texts)
    assert (expected[0].probabilities == Predictor.load(bert).predict(texts)[0].probabilities) == (temperature is None)
    for row, own in zip(judged(folder, file).answers(), expected, strict=True):
        assert row["label"] == own.label
        assert row["probabilities"] == pytest.approx(own.probabilities, abs=1e-6)


@pytest.mark.parametrize("engine", ["onnxruntime", "openvino"])
def test_engines_agree(bert, tmp_path, engine):
    file = write(tmp_path / "rows.tsv", 30)
    assert judged(bert, file, engine=engine).logits == pytest.approx(judged(bert, file).logits, abs=2e-3)


def test_without_torch(bert, tmp_path):
    file = write(tmp_path / "rows.tsv", 12)
    script = (
        "import sys\nfor name in ('torch', 'transformers'): sys.modules[name] = None\nfrom potstill.cli import main\n"
        f"sys.exit(main(['evaluate', {str(bert)!r}, '--data', {str(file)!r}, '--engine', 'onnxruntime', '--json', "
        "'--quiet', '--classes', '--by', 'kind']))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["n"] == 12


def test_values_of_a_column(bert, tmp_path):
    file = write(tmp_path / "rows.tsv")
    found = judged(bert, file)
    rows = list(found.answers())
    kinds = [line.split("\t")[2] for line in file.read_text().splitlines()[1:]]
    by = found.by_value("kind")
    assert by["column"] == "kind"
    assert [(group["value"], group["n"]) for group in by["groups"]] == [("a", 45), ("b", 38)]
    for group in [*by["groups"], by["rare"]]:
        chosen = [
            r for r, kind in zip(rows, kinds, strict=True) if kind == group.get("value", kind[:1] == "r" and kind)
        ]
        right = np.mean([row["gold"] == row["label"] for row in chosen])
        assert group["n"] == len(chosen)
        assert group["metrics"]["accuracy"]["value"] == pytest.approx(right)
    assert by["rare"]["values"] == len({kind for kind in kinds if kind[0] == "r"})
    assert by["rare"]["n"] < FEWEST
    with pytest.raises(DataError, match=r"no column 'kinds'.*did you mean 'kind'"):
        found.by_value("kinds")


def test_rows_without_the_columns_value_are_judged(bert, tmp_path):
    file = tmp_path / "rows.csv"
    file.write_text("text,label,kind\n" + "good film,positive,\n" * 10 + "bad film,negative,x\n" * 11)
    found = judged(bert, file)
    assert len(found) == 21
    assert [(group["value"], group["n"]) for group in found.by_value("kind")["groups"]] == [("x", 11), ("", 10)]
    assert found.by_value("kind")["rare"] is None


def test_scores(tmp_path):
    model = tiny_model(tmp_path / "model", kind="bert", labels=("LABEL_0",), task="regression")
    values = json.loads((model / "potstill.json").read_text())
    (model / "potstill.json").write_text(json.dumps({**values, "labels": []}))
    draw = random.Random(1)
    texts = [f"{draw.choice(TEXTS)} {draw.choice(TEXTS)}" for _ in range(40)]
    gold = [round(draw.uniform(0, 5), 2) for _ in texts]
    (tmp_path / "rows.tsv").write_text(
        "text\tlabel\n" + "".join(f"{text}\t{score}\n" for text, score in zip(texts, gold, strict=True))
    )
    found = judged(model, tmp_path / "rows.tsv")
    answers = [row["score"] for row in found.answers()]
    metrics = {name: one["value"] for name, one in found.facts()["metrics"].items()}
    assert metrics["pearson"] == pytest.approx(pearsonr(gold, answers).statistic)
    assert metrics["spearman"] == pytest.approx(spearmanr(gold, answers).statistic)
    assert metrics["rmse"] == pytest.approx(np.sqrt(np.mean(np.square(np.subtract(gold, answers)))))
    assert [row["gold"] for row in found.answers()] == gold
    assert found.by_label() is None


def test_long_texts(tmp_path):
    file = write(tmp_path / "rows.tsv")
    tokenizer = None
    for long_text in ("cut", "window"):
        model = tiny_model(tmp_path / long_text, kind="bert", long_text=long_text)
        values = json.loads((model / "potstill.json").read_text())
        (model / "potstill.json").write_text(json.dumps({**values, "max_length": 16}))
        tokenizer = tokenizer or AutoTokenizer.from_pretrained(model)
        texts = [line.split("\t")[0] for line in file.read_text().splitlines()[1:]]
        longer = sum(len(tokenizer(text).input_ids) > 16 for text in texts)
        facts = judged(model, file).facts()
        assert 0 < longer < len(texts)
        expected = (longer, 0) if long_text == "cut" else (0, longer)
        assert (facts["truncated"], facts["windowed"]) == expected


def test_labels_that_the_model_has_not(bert, tmp_path):
    file = write(tmp_path / "rows.tsv", labels=("0", "1"))
    with pytest.raises(DataError, match=r"labels of .*rows.tsv: '0', '1'; expected those of the model: 'negative'"):
        judged(bert, file)
    file = write(tmp_path / "rows.tsv", labels=("positive", "Negative"))
    with pytest.raises(DataError, match=r"labels of .*: 'Negative', 'positive'"):
        judged(bert, file)


def test_fewer_labels_than_the_model_has(bert, tmp_path):
    facts = judged(bert, write(tmp_path / "rows.tsv", labels=("positive",))).facts()
    assert facts["n"] == 90
    assert 0 <= facts["metrics"]["accuracy"]["value"] <= 1


def test_rows_that_cannot_be_judged(bert, tmp_path):
    file = tmp_path / "rows.csv"
    file.write_text("text,label\ngood,positive\n,negative\nbad,\nbad,negative\n")
    found = judged(bert, file)
    assert [row["id"] for row in found.answers()] == [1, 4]
    assert [(bad.row, bad.reason) for bad in found.labelled.part.set_aside] == [(2, "empty text"), (3, "no label")]
    file.write_text("text,label\n,negative\n")
    with pytest.raises(DataError, match=r"no row of .* can be judged \(row 1: empty text\)"):
        judged(bert, file)
    file.write_text("text,label\ngood,-1\nbad,-1\n")
    with pytest.raises(DataError, match="every label is -1"):
        judged(bert, file)


def test_several_files(bert, tmp_path):
    files = [write(tmp_path / f"{name}.tsv", 10) for name in "ab"]
    predictor = Predictor.load(bert)
    found = judge(predictor, read_labelled(files, Columns("text"), predictor.task.gold_rule()))
    rows = [(Path(row["file"]).name, row["id"]) for row in found.answers()]
    assert rows == [(f"{name}.tsv", number) for name in "ab" for number in range(1, 11)]


@pytest.mark.parametrize(
    ("labels", "kind"),
    [
        (("LABEL_0",), "regression"),
        (("LABEL_0", "LABEL_1"), "classification"),
        (("x", "y", "z"), "classification"),
    ],
)
def test_a_plain_folder_of_transformers(tmp_path, labels, kind):
    model = tiny_model(tmp_path / "model", kind="mpnet", labels=labels)
    (model / "potstill.json").unlink()
    deployment = plain_deployment(model, pair=False)
    assert (deployment.task, deployment.labels) == (kind, labels if kind == "classification" else ())
    assert deployment.max_length == 64 + 10 - 2
    predictor = Predictor.load(model, deployment=deployment)
    assert (predictor.predict(["a good film"])[0].score is None) == (kind == "classification")


def test_a_plain_folder_of_another_task(tmp_path):
    model = tiny_model(tmp_path / "model", kind="bert")
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps({**config, "problem_type": "of_another_kind"}))
    with pytest.raises(ModelError, match="a head for 'of_another_kind'"):
        plain_deployment(model, pair=False)


def test_a_plain_folder_of_sets_of_labels_is_judged_at_a_half(tmp_path):
    model = tiny_model(tmp_path / "model", kind="bert", labels=("x", "y", "z"))
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps({**config, "problem_type": "multi_label_classification"}))
    (model / "potstill.json").unlink()
    deployment = plain_deployment(model, pair=False)
    assert (deployment.task, deployment.labels) == ("multilabel", ("x", "y", "z"))
    for answer in Predictor.load(model, deployment=deployment).predict(["a good film", "it was dull"]):
        assert answer.labels == [label for label, share in answer.probabilities.items() if share >= 0.5]
