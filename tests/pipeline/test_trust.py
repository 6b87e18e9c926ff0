"""A run's temperature and thresholds: from dev to report.json, to potstill.json, to what `predict` says."""

import json
import random
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from scipy import optimize, special
from sklearn.metrics import precision_recall_fscore_support
from tests.pipeline.tiny_job import tiny_settings
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from potstill.data.examples import Examples
from potstill.errors import SettingsError
from potstill.inference import Predictor
from potstill.pipeline import distill
from potstill.pipeline.trust import of_deployment

TEXTS = ["the plot was good", "the plot was awful", "we saw the long movie", "awful and great"]


def blur(path: Path, seed: int) -> None:
    """Give one row in five another label."""
    draw, (head, *rows) = random.Random(seed), path.read_text().splitlines()
    other = {"neg": "pos", "pos": "neg"}
    cells = [row.split("\t") for row in rows]
    rows = [f"{text}\t{other[label] if draw.random() < 0.2 else label}" for text, label in cells]
    path.write_text("\n".join([head, *rows]) + "\n")


@pytest.fixture(scope="module")
def blurred(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict]:
    folder = tmp_path_factory.mktemp("blurred")
    settings = tiny_settings(folder, "evaluate.hard_labels=false", "evaluate.tfidf=false")
    for seed, name in enumerate(("train", "dev", "test")):
        blur(folder / f"{name}.tsv", seed)
    return folder, distill(settings)


def logits_of(folder: Path, role: str, split: str) -> tuple[np.ndarray, np.ndarray]:
    """Gold answers and logits, as the stages left them."""
    stages = folder / "run" / "stages"
    gold = Examples.read(stages / "data" / f"{split}.arrow").labels
    return gold, load_file(stages / "score" / "logits.safetensors")[f"{role}/{split}"].astype(np.float64)


def loss(gold: np.ndarray, logits: np.ndarray) -> float:
    return float(-special.log_softmax(logits, axis=1)[np.arange(len(gold)), gold].mean())


@pytest.mark.parametrize("role", ["teacher", "student"])
def test_the_temperature_is_the_best_on_dev_and_judged_on_test(blurred: tuple[Path, dict], role: str) -> None:
    folder, report = blurred
    found = report[role]["calibration"]
    assert found["reason"] is None
    gold, logits = logits_of(folder, role, "dev")
    best = optimize.minimize_scalar(
        lambda log_t: loss(gold, logits / np.exp(log_t)), bounds=(-3, 3), method="bounded", options={"xatol": 1e-9}
    )
    assert np.log(found["temperature"]) == pytest.approx(best.x, abs=1e-6)
    assert found["n"] == len(gold)
    gold, logits = logits_of(folder, role, "test")
    for when, temperature in (("before", 1.0), ("after", found["temperature"])):
        metrics = found[when]["metrics"]
        assert metrics["nll"]["value"] == pytest.approx(loss(gold, logits / temperature))
        shares = special.softmax(logits / temperature, axis=1)
        assert metrics["brier"]["value"] == pytest.approx(np.square(shares - np.eye(2)[gold]).sum(axis=1).mean())
        assert metrics["ece"]["n"] == sum(one["n"] for one in found[when]["bins"]) == len(gold)


def test_predict_applies_it_and_gives_the_same_labels(blurred: tuple[Path, dict]) -> None:
    folder, report = blurred
    student, temperature = folder / "run" / "student", report["student"]["calibration"]["temperature"]
    assert json.loads((student / "potstill.json").read_text())["temperature"] == temperature
    assert abs(temperature - 1) > 0.01
    model = AutoModelForSequenceClassification.from_pretrained(student).eval()
    tokenizer = AutoTokenizer.from_pretrained(student)
    answers = Predictor.load(student, engine="torch").predict(TEXTS)
    for text, answer in zip(TEXTS, answers, strict=True):
        with torch.no_grad():
            logits = model(**tokenizer(text, return_tensors="pt")).logits[0].double()
        wanted = (logits / temperature).softmax(-1)
        assert list(answer.probabilities.values()) == pytest.approx(wanted.tolist(), abs=1e-5)
        assert answer.label == model.config.id2label[int(logits.argmax())]


def test_thresholds_are_found_on_dev_and_withhold_as_the_report_says(blurred: tuple[Path, dict]) -> None:
    folder, report = blurred
    student, (gold, logits) = folder / "run" / "student", logits_of(folder, "student", "dev")
    shares = special.softmax(logits / report["student"]["calibration"]["temperature"], axis=1)
    rows = report["student"]["abstention"]["thresholds"]
    kept = json.loads((student / "potstill.json").read_text())["abstention"]
    assert kept == [{key: row[key] for key in ("confidence", "coverage", "precision", "at_least")} for row in rows]
    for row in rows:
        given = shares.max(axis=1) >= row["confidence"]
        assert given.mean() == pytest.approx(row["coverage"])
        assert (logits.argmax(axis=1) == gold)[given].mean() == pytest.approx(row["precision"])
    middle = rows[len(rows) // 2]["confidence"]
    texts = Examples.read(folder / "run" / "stages" / "data" / "test.arrow").texts
    answers = Predictor.load(student, engine="torch", abstain_below=middle).predict(texts)
    met = next(row for row in rows if row["confidence"] == middle)
    assert np.mean([not answer.abstained for answer in answers]) == pytest.approx(met["judged_coverage"]["value"])


def test_scores_of_each_label_are_scikit_learns(blurred: tuple[Path, dict]) -> None:
    folder, report = blurred
    for role in ("teacher", "student"):
        gold, logits = logits_of(folder, role, "test")
        wanted = precision_recall_fscore_support(gold, logits.argmax(axis=1), zero_division=0)
        found = list(report[role]["by_label"].values())
        assert list(report[role]["by_label"]) == ["neg", "pos"]
        for name, values in zip(("precision", "recall", "f1"), wanted, strict=False):
            assert [one[name]["value"] for one in found] == pytest.approx(list(values))
        assert [one["support"] for one in found] == wanted[3].tolist()


def test_how_sure_models_are_of_what_they_disagree_on_is_what_predict_says(blurred: tuple[Path, dict]) -> None:
    folder, report = blurred
    predictor = Predictor.load(folder / "run" / "student", engine="torch")
    rows = report["disagreements"]
    for row, answer in zip(rows, predictor.predict([row["text"] for row in rows]), strict=True):
        assert answer.label == row["student"]
        assert answer.probabilities[answer.label] == pytest.approx(row["student_p"], abs=1e-5)


def test_a_second_call_changes_nothing_and_a_folder_of_before_gets_them(blurred: tuple[Path, dict]) -> None:
    folder, report = blurred
    settings = tiny_settings(folder, "evaluate.hard_labels=false", "evaluate.tfidf=false")
    path = folder / "run" / "student" / "potstill.json"
    before = path.read_bytes()
    assert distill(settings) == report
    assert path.read_bytes() == before
    old = {key: value for key, value in json.loads(before).items() if key not in ("temperature", "abstention")}
    path.write_text(json.dumps(old))
    assert Predictor.load(path.parent, engine="torch").temperature == 1.0
    with pytest.raises(SettingsError, match=r"has no abstention; .* fix: name a confidence .* or distil again"):
        Predictor.load(path.parent, wanted_precision=0.9)
    assert distill(settings) | {"created": ""} == report | {"created": ""}
    assert path.read_bytes() == before


def test_nothing_is_handed_out_that_was_not_found() -> None:
    assert of_deployment({}) == of_deployment({"calibration": None, "abstention": None}) == {}
