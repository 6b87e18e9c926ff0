"""The whole job on sets of labels: what it leaves, that the student answers with labels, what is refused."""

import json
import random
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file
from sklearn.metrics import accuracy_score, f1_score
from tests.pipeline.tiny_job import OTHER, tiny_settings
from tests.tiny import tiny_model
from transformers import AutoModelForSequenceClassification

from potstill.cli import main
from potstill.data.examples import Examples
from potstill.errors import DataError, GateRefused, InputError, SettingsError
from potstill.inference import Predictor
from potstill.pipeline import distill
from potstill.report.checks import validate
from potstill.storage import digest_file

SHARED = Path(__file__).parents[2].parent / "shared" / "data" / "goemotions"
WORDS = {"glad": ("great",), "sorry": ("awful",), "visual": ("film",)}
EXPORTS = 'export.formats=["onnx-int8", "openvino-float32"]'
PLAIN = [word for word in OTHER if word not in WORDS["visual"]]


def write_sets(path: Path, rows: int, seed: int, separator: str = ",") -> Path:
    """A text a row, with the labels whose words stand in it: none, one or several."""
    draw = random.Random(seed)
    lines = ["text\tlabel"]
    for _ in range(rows):
        words, labels = [draw.choice(PLAIN) for _ in range(draw.randint(2, 6))], []
        for label, own in WORDS.items():
            if draw.random() < 0.4:
                words.insert(draw.randrange(len(words) + 1), draw.choice(own))
                labels.append(label)
        lines.append(f"{' '.join(words)}\t{separator.join(labels)}")
    path.write_text("\n".join(lines) + "\n")
    return path


def set_settings(folder: Path, *overrides: str):
    folder.mkdir(exist_ok=True)
    if not (folder / "train.tsv").exists():
        for seed, (name, rows) in enumerate((("train", 300), ("dev", 90), ("test", 90))):
            write_sets(folder / f"{name}.tsv", rows, seed)
        tiny_model(folder / "teacher", kind="bert", layers=2, hidden=32, heads=4, labels=("LABEL_0", "LABEL_1"))
    own = ["data.task=multilabel", "teacher.epochs=30", "distill.epochs=20"]
    return tiny_settings(folder, *own, *overrides)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict]:
    folder = tmp_path_factory.mktemp("sets")
    (folder / "extra.txt").write_text("the plot was good\nan actor is dull and slow\n")
    settings = set_settings(folder, f'data.unlabelled="{folder}/extra.txt"', EXPORTS)
    return folder, distill(settings)


def test_the_report(finished: tuple[Path, dict]) -> None:
    folder, report = finished
    labels = ["glad", "sorry", "visual"]
    assert report["task"] == {"kind": "multilabel", "labels": labels, "primary_metric": "micro_f1", "pair": False}
    assert report["data"]["set_aside_total"] == 0
    assert report["data"]["without_label"]["train"] > 30
    assert report["data"]["unlabelled"] == 2
    assert report["teacher"]["score"]["value"] > 0.9
    assert set(report["student"]["metrics"]) == {"micro_f1", "macro_f1", "exact_match"}
    assert report["student"]["score"]["value"] > 0.8
    assert set(report["baselines"]) == {"hard_labels", "tfidf_one_vs_rest", "constant_set"}
    assert report["baselines"]["constant_set"]["score"]["value"] < report["student"]["score"]["value"]
    assert report["baselines"]["tfidf_one_vs_rest"]["score"]["value"] > 0.9
    assert [export["accepted"] for export in report["exports"]] == [True, True]
    assert report["student"]["confusion"] is None
    assert list(report["student"]["by_label"]) == list(report["teacher"]["by_label"]) == labels
    assert sum(report["student_errors"].values()) == report["student"]["score"]["n"]
    assert all(isinstance(row["gold"], list) for row in report["disagreements"])
    assert validate(json.loads((folder / "run" / "report.json").read_text())).multilabel
    page = (folder / "run" / "report.html").read_text()
    assert "Scores of each label" in page
    for text in (report["conclusion"], (folder / "run" / "student" / "README.md").read_text()):
        assert not re.search("accuracy|commonest", text)


def test_the_scores_are_those_of_an_independent_reckoning(finished: tuple[Path, dict]) -> None:
    """Thresholds out of potstill.json, logits out of the run, scikit-learn."""
    folder, report = finished
    stages, student = folder / "run" / "stages", folder / "run" / "student"
    gold = Examples.read(stages / "data" / "test.arrow").labels
    logits = load_file(stages / "score" / "logits.safetensors")
    thresholds = json.loads((student / "potstill.json").read_text())["thresholds"]
    assert thresholds == report["student"]["thresholds"]
    given = 1 / (1 + np.exp(-logits["student/test"].astype(float))) >= np.array(list(thresholds.values()))
    found = {name: score["value"] for name, score in report["student"]["metrics"].items()}
    assert found["micro_f1"] == pytest.approx(f1_score(gold, given, average="micro"))
    assert found["macro_f1"] == pytest.approx(f1_score(gold, given, average="macro"))
    assert found["exact_match"] == pytest.approx(accuracy_score(gold, given))
    # An export is judged by the thresholds that it is deployed with, not by some of its own.
    exported = load_file(stages / "export" / "logits.safetensors")["onnx-int8/test"].astype(float)
    given = 1 / (1 + np.exp(-exported)) >= np.array(list(thresholds.values()))
    assert report["exports"][0]["test_score"]["value"] == pytest.approx(f1_score(gold, given, average="micro"))


def test_the_student_answers_with_labels(finished: tuple[Path, dict], capsys: pytest.CaptureFixture[str]) -> None:
    student = finished[0] / "run" / "student"
    model = AutoModelForSequenceClassification.from_pretrained(student)
    assert (model.config.num_labels, model.config.problem_type) == (3, "multi_label_classification")
    texts = ["the film was great", "it was awful and great", "it was long"]
    answers = Predictor.load(student).predict(texts)
    assert [answer.labels for answer in answers] == [["glad", "visual"], ["glad", "sorry"], []]
    thresholds = json.loads((student / "potstill.json").read_text())["thresholds"]
    for answer in answers:
        reached = [label for label, share in answer.probabilities.items() if share >= thresholds[label]]
        assert answer.labels == reached
    assert main(["predict", str(student), *texts]) == 0
    lines = list(map(json.loads, capsys.readouterr().out.splitlines()))
    assert [line["labels"] for line in lines] == [answer.labels for answer in answers]
    assert lines[0].keys() == {"id", "labels", "probabilities"}


def test_the_card_shows_code_that_runs(finished: tuple[Path, dict], monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    student = finished[0] / "run" / "student"
    code = (student / "README.md").read_text().split("```python\n")[1].split("```")[0]
    monkeypatch.chdir(student)
    exec(compile(code.replace('"a text"', '"the film was great"'), "card", "exec"), {})
    assert capsys.readouterr().out == "['glad', 'visual']\n"


def test_the_same_call_again_does_nothing(finished: tuple[Path, dict]) -> None:
    folder, report = finished
    again = distill(set_settings(folder, f'data.unlabelled="{folder}/extra.txt"', EXPORTS))
    assert again["created"] == report["created"]


def test_a_run_that_is_stopped_in_the_student_ends_in_the_same_bytes(
    finished: tuple[Path, dict], tmp_path: Path
) -> None:
    folder, _ = finished
    run, out = folder / "run", tmp_path / "run"
    shutil.copytree(run, out)
    for stage in ("student", "hard-labels", "export", "score"):
        shutil.rmtree(out / "stages" / stage)

    class Stopping:
        """Stops the run in the middle of the student's training, once."""

        def __init__(self) -> None:
            self.at = ""

        def stage(self, name: str, detail: str = "") -> None:
            self.at = name

        def progress(self, done: float, total: float, **values: float) -> None:
            if self.at == "student" and done > total / 2:
                self.at = ""
                raise KeyboardInterrupt

        def note(self, message: str) -> None: ...

        def warn(self, message: str) -> None: ...

    settings = set_settings(
        folder, f'data.unlabelled="{folder}/extra.txt"', "export.formats=[]", f'run.out="{out}"', "evaluate.tfidf=false"
    )
    with pytest.raises(KeyboardInterrupt):
        distill(settings, Stopping())
    assert not (out / "stages" / "student").exists()
    assert list((out / "scratch").glob("student-*"))
    distill(settings)
    for name in ("student/model.safetensors", "stages/hard-labels/model/model.safetensors"):
        assert digest_file(out / name) == digest_file(run / name), name
    deployed = [json.loads((one / "student" / "potstill.json").read_text()) for one in (run, out)]
    assert deployed[0]["thresholds"] == deployed[1]["thresholds"]


REFUSED = [
    ("threshold", ["data.label_threshold=3"], SettingsError, "label_threshold = 3 with data.task"),
    ("class weights", ["data.class_weights=balanced"], SettingsError, "threshold is tuned on dev"),
    ("scores", ['teacher.scores="x.csv"', "teacher.source=null"], SettingsError, "teacher.scores"),
    ("conditional", ['augment.method=["conditional-masked-lm"]'], SettingsError, "name masked-lm"),
    ("another separator", ['data.label_separator="|"'], DataError, 'data.label_separator = ","'),
]


@pytest.mark.parametrize(("name", "overrides", "error", "words"), REFUSED, ids=[row[0] for row in REFUSED])
def test_refused_with_one_line(tmp_path: Path, name: str, overrides: list[str], error: type, words: str) -> None:
    if name == "another separator":
        set_settings(tmp_path)
        (tmp_path / "train.tsv").write_text("text\tlabel\na good film\tglad,visual\nit was bad\tsorry,visual\n")
        overrides = [*overrides, f'data.train="{tmp_path}/train.tsv"']
        words = "no row has two labels, and 2 of the labels have ','"
    with pytest.raises(error, match=words) as caught:
        distill(set_settings(tmp_path, *overrides))
    assert isinstance(caught.value, InputError)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run" / "stages" / "teacher").exists()


def test_a_separator_is_for_sets_of_labels(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r'set data\.task = "multilabel"'):
        tiny_settings(tmp_path, 'data.label_separator="|"')


def test_a_teacher_that_knows_nothing_is_refused(tmp_path: Path) -> None:
    tiny_model(tmp_path / "teacher", kind="bert", layers=2, hidden=32, heads=4, labels=tuple(WORDS))
    for seed, (name, rows) in enumerate((("train", 40), ("dev", 30), ("test", 30))):
        write_sets(tmp_path / f"{name}.tsv", rows, seed)
    with pytest.raises(GateRefused, match=r"micro F1 on dev .* the best set of labels for all"):
        distill(set_settings(tmp_path, "teacher.trained=true"))
    assert json.loads((tmp_path / "run" / "report.json").read_text())["status"] == "refused"


def test_the_real_files_are_read_whole() -> None:
    if not SHARED.is_dir():
        pytest.skip("needs shared/data")
    from potstill.data.schema import Columns, LabelSetRule, load_splits
    from potstill.data.tables import read_table

    tables = {
        role: read_table([SHARED / f"{role}.tsv"], columns=["1", "2"], blank=["2"], header=False)
        for role in ("train", "dev", "test")
    }
    splits = load_splits(**tables, columns=Columns("1", label="2"), labels=LabelSetRule())
    assert splits.test is not None
    assert [
        splits.facts[role] + sum(o["removed"] for o in splits.facts["overlaps"] if o["between"][0] == role)
        for role in tables
    ] == [43410, 5426, 5427]
    assert splits.labels == tuple(map(str, range(28)))
    assert splits.facts["without_label"] == {"train": 0, "dev": 0, "test": 0}
    assert splits.facts["set_aside_total"] == 0
