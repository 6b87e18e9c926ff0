"""The whole job on scores: what it leaves, that the student answers with a score, what is refused."""

import json
import random
import re
from pathlib import Path

import pytest
from tests.pipeline.tiny_job import BAD, GOOD, OTHER, tiny_settings
from tests.tiny import tiny_model
from transformers import AutoModelForSequenceClassification

from potstill.cli import main
from potstill.errors import DataError, GateRefused, InputError, ModelError, SettingsError
from potstill.inference import Predictor
from potstill.pipeline import distill

SHARED = Path(__file__).parents[2].parent / "shared" / "data" / "glue" / "STS-B"


def write_scores(path: Path, rows: int, seed: int) -> Path:
    """Without a header: a number, a score (5 with a good word, 1 with a bad one, else 3), a text."""
    draw = random.Random(seed)
    lines = []
    for number in range(rows):
        kind = draw.choice((GOOD, BAD, OTHER))
        words = [draw.choice(OTHER) for _ in range(draw.randint(2, 6))] + [draw.choice(kind)]
        draw.shuffle(words)
        score = 3.0 + 2 * ((kind is GOOD) - (kind is BAD))
        lines.append(f"{number}\t{score:.1f}\t{' '.join(words)}")
    path.write_text("\n".join(lines) + "\n")
    return path


def scores_settings(folder: Path, *overrides: str):
    folder.mkdir(exist_ok=True)
    if not (folder / "train.tsv").exists():
        for seed, (name, rows) in enumerate((("train", 240), ("dev", 80), ("test", 80))):
            write_scores(folder / f"{name}.tsv", rows, seed)
        tiny_model(folder / "teacher", kind="bert", layers=2, hidden=32, heads=4, labels=("LABEL_0", "LABEL_1"))
    own = [
        "data.task=regression",
        "data.header=false",
        'data.text="3"',
        'data.label="2"',
        "teacher.epochs=30",
        "distill.epochs=20",
    ]
    return tiny_settings(folder, *own, *overrides)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict]:
    folder = tmp_path_factory.mktemp("scores")
    with (folder / "extra.txt").open("w") as extra:
        extra.write("the plot was good\nan actor is dull and slow\n")
    return folder, distill(scores_settings(folder, f'data.unlabelled="{folder}/extra.txt"'))


def test_the_report(finished: tuple[Path, dict]) -> None:
    folder, report = finished
    assert report["task"] == {"kind": "regression", "labels": [], "primary_metric": "pearson", "pair": False}
    assert report["data"]["scores"]["train"]["high"] == 5.0
    assert report["data"]["unlabelled"] == 2
    assert report["teacher"]["score"]["value"] > 0.9
    assert set(report["student"]["metrics"]) == {"pearson", "spearman", "rmse"}
    assert report["student"]["score"]["value"] > 0.8
    assert report["student"]["score"] == report["student"]["metrics"]["pearson"]
    assert set(report["baselines"]) == {"hard_labels", "tfidf_ridge", "mean"}
    assert report["baselines"]["mean"]["score"]["value"] == 0.0
    assert report["baselines"]["mean"]["metrics"]["rmse"]["value"] > report["teacher"]["metrics"]["rmse"]["value"]
    assert report["exports"][0]["accepted"]
    assert report["student_errors"] is None
    assert all(report["student"][key] is None for key in ("confusion", "by_label", "calibration", "abstention"))
    assert all(isinstance(row["gold"], float) for row in report["disagreements"])
    stages = {stage["name"]: {term["name"] for term in stage["terms"]} for stage in report["recipe"]["stages"]}
    assert stages["student"] == {"hidden", "attention", "logits", "hard"}
    for text in (report["conclusion"], (folder / "run" / "student" / "README.md").read_text()):
        assert not re.search("accuracy|macro", text)


def test_the_student_answers_with_a_score(finished: tuple[Path, dict], capsys: pytest.CaptureFixture[str]) -> None:
    student = finished[0] / "run" / "student"
    model = AutoModelForSequenceClassification.from_pretrained(student)
    assert (model.config.num_labels, model.config.problem_type) == (1, "regression")
    good, bad = Predictor.load(student).predict(["the film was great", "the film was awful"])
    assert good.score > 3.5 > 2.5 > bad.score
    assert main(["predict", str(student), "the film was great"]) == 0
    (line,) = map(json.loads, capsys.readouterr().out.splitlines())
    assert line == {"id": 1, "score": pytest.approx(good.score, abs=1e-3)}


def test_a_trained_teacher_is_taken_and_another_scale_is_told(finished: tuple[Path, dict], tmp_path: Path) -> None:
    folder = finished[0]
    rows = [line.split("\t") for line in (folder / "train.tsv").read_text().splitlines()]
    (tmp_path / "far.tsv").write_text("".join(f"{n}\t{20 * float(score)}\t{text}\n" for n, score, text in rows))
    told: list[str] = []

    class Reporter:
        def stage(self, name: str, detail: str = "") -> None: ...

        def progress(self, done: float, total: float, **values: float) -> None: ...

        def note(self, message: str) -> None: ...

        def warn(self, message: str) -> None:
            told.append(message)

    settings = scores_settings(
        tmp_path,
        f'teacher.source="{folder}/run/stages/teacher/model"',
        "teacher.trained=auto",
        f'data.train="{tmp_path}/far.tsv"',
        "data.dev_share=0.3",
        "export.formats=[]",
        "evaluate.hard_labels=false",
        "evaluate.tfidf=false",
        "distill.epochs=1",
        f'run.out="{tmp_path}/run"',
    ).model_copy()
    data = settings.data.model_copy(update={"dev": None})
    report = distill(settings.model_copy(update={"data": data}), Reporter())  # type: ignore[arg-type]
    assert report["curves"].keys() == {"student"}
    assert any("not on the data's scale" in line for line in told)


REFUSED = [
    ("labels", ['data.label="1"', 'data.text="3"', 'data.label="3"', 'data.text="1"'], DataError, "is no number"),
    ("threshold", ["data.label_threshold=3"], SettingsError, "label_threshold = 3 with data.task"),
    ("no such task", ["data.task=ranking"], SettingsError, "data.task"),
    ("a classifier", ["teacher.trained=true"], ModelError, "a head of 2 outputs"),
    ("temperature", ["distill.temperature=2"], SettingsError, "distill.temperature"),
    ("class weights", ["data.class_weights=balanced"], SettingsError, "data.class_weights"),
    ("order of labels", ["teacher.same_label_order=true"], SettingsError, "same_label_order"),
]


@pytest.mark.parametrize(("name", "overrides", "error", "words"), REFUSED, ids=[row[0] for row in REFUSED])
def test_refused_with_one_line(tmp_path: Path, name: str, overrides: list[str], error: type, words: str) -> None:
    with pytest.raises(error, match=words) as caught:
        distill(scores_settings(tmp_path, *overrides))
    assert isinstance(caught.value, InputError)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run" / "stages" / "teacher").exists()


def test_a_teacher_that_knows_nothing_is_refused(tmp_path: Path) -> None:
    tiny_model(tmp_path / "teacher", kind="bert", layers=2, hidden=32, heads=4, labels=("LABEL_0",))
    for seed, (name, rows) in enumerate((("train", 40), ("dev", 30), ("test", 30))):
        write_scores(tmp_path / f"{name}.tsv", rows, seed)
    with pytest.raises(GateRefused, match=r"Pearson correlation on dev .* a constant score 0\.000") as caught:
        distill(scores_settings(tmp_path, "teacher.trained=true"))
    assert caught.value.exit_code == 1
    assert json.loads((tmp_path / "run" / "report.json").read_text())["status"] == "refused"


def test_columns_by_number_of_the_real_files() -> None:
    if not SHARED.is_dir():
        pytest.skip("needs shared/data")
    from potstill.data.schema import Columns, ScoreRule, load_splits
    from potstill.data.tables import read_table

    columns = Columns("6", "7", "5")
    tables = {
        role: read_table([SHARED / f"sts-{role}.tsv"], columns=["6", "7", "5"], header=False)
        for role in ("train", "dev", "test")
    }
    splits = load_splits(**tables, columns=columns, labels=ScoreRule())
    assert splits.test is not None
    assert [
        splits.facts[role] + sum(o["removed"] for o in splits.facts["overlaps"] if o["between"][0] == role)
        for role in tables
    ] == [5749, 1500, 1379]
    assert splits.facts["set_aside_total"] == 0
    assert (splits.train.labels.min(), splits.train.labels.max()) == (0.0, 5.0)
