"""A file of scores as teacher: whole tiny jobs, and what cannot be joined or taught, refused before work."""

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file
from tests.pipeline.tiny_job import write_rows
from tests.tiny import tiny_model

from potstill.cli.summary import plan_lines, summary_lines
from potstill.config import Settings, load_settings
from potstill.data.examples import Examples
from potstill.errors import DataError, InputError, ModelError, SettingsError
from potstill.inference import Predictor
from potstill.pipeline import distill, plan, under_scores
from potstill.pipeline.job import prepare_job
from potstill.pipeline.scored import read_scored, with_gold
from potstill.progress import SILENT


def rows_of(path: Path) -> list[list[str]]:
    return [line.split("\t") for line in path.read_text().splitlines()[1:]]


def settings_of(folder: Path, *overrides: str) -> Settings:
    """Settings of a run under `scores.csv`, taught by probabilities of every text."""
    folder.mkdir(exist_ok=True)
    if not (folder / "train.tsv").exists():
        for number, name in enumerate(("train", "dev", "test"), 1):
            write_rows(folder / f"{name}.tsv", 240 if name == "train" else 80, number)
        tiny_model(folder / "base", kind="bert", layers=2, hidden=32, heads=4)
    if not (folder / "scores.csv").exists():
        every = {text: label for name in ("train", "dev", "test") for text, label in rows_of(folder / f"{name}.tsv")}
        chance = {"pos": "0.05,0.95", "neg": "0.95,0.05"}
        lines = ["text,neg,pos", *(f"{text},{chance[label]}" for text, label in every.items())]
        (folder / "scores.csv").write_text("\n".join(lines) + "\n")
    own = [
        f'teacher.scores="{folder}/scores.csv"',
        f'student.start="{folder}/base"',
        *(f'data.{name}="{folder}/{name}.tsv"' for name in ("train", "dev", "test")),
        "student.shape=1x16x32x4",
        "distill.epochs=25",
        "distill.learning_rate=0.005",
        "distill.precision=float32",
        "export.formats=[]",
        "evaluate.resamples=100",
        "run.threads=1",
        f'run.out="{folder}/run"',
    ]
    return load_settings(None, [*own, *overrides])


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("scores")
    settings_of(folder)
    return folder


@pytest.fixture(scope="module")
def finished(given: Path) -> tuple[Path, dict]:
    return given, distill(settings_of(given, 'export.formats=["onnx-float32"]'))


def test_probabilities_teach_and_the_report_says_what_there_is(finished: tuple[Path, dict]) -> None:
    folder, report = finished
    teacher = report["teacher"]
    assert teacher["scores"]["form"] == "probabilities"
    assert teacher["scores"]["joined"] == dict.fromkeys(("train", "dev", "test"), "text")
    assert teacher["scores"]["covered"]["test"] == report["data"]["test"]
    assert teacher["score"]["value"] == 1.0
    assert teacher["calibration"]["temperature"] == 1.0
    assert teacher["calibration"]["reason"] == "all 80 answers are right, which no temperature could be too sure of"
    assert teacher["calibration"]["before"]["metrics"]["ece"]["value"] == pytest.approx(0.05, abs=1e-6)
    assert report["student"]["score"]["value"] > 0.8
    assert report["retention"]["value"] == pytest.approx(report["student"]["score"]["value"])
    assert report["student"]["start"] == "shrunk from base"
    assert {"hard_labels", "tfidf_logistic", "majority"} <= set(report["baselines"])
    assert "size_ratio" not in report
    (export,) = report["exports"]
    assert export["accepted"]
    assert not {"speedup", "student_share"} & set(export)
    stages = {stage["name"]: [term["name"] for term in stage["terms"]] for stage in report["recipe"]["stages"]}
    assert stages["student"] == ["logits", "hard"]
    assert report["recipe"]["notes"][0] == "left out of potstill: hidden, attention (answers show no inner states)"
    assert not {"teacher", "teacher-check", "general"} & {path.name for path in (folder / "run" / "stages").iterdir()}
    answers = Predictor.load(folder / "run" / "student").predict(["the plot was good", "the plot was awful"])
    assert [answer.label for answer in answers] == ["pos", "neg"]


def test_a_second_call_does_nothing_and_other_scores_begin_again(finished: tuple[Path, dict]) -> None:
    folder, report = finished
    settings = settings_of(folder, 'export.formats=["onnx-float32"]')
    kept = (folder / "run" / "report.json").stat().st_mtime_ns
    assert distill(settings) == report
    assert (folder / "run" / "report.json").stat().st_mtime_ns == kept
    text = (folder / "scores.csv").read_text()
    (folder / "scores.csv").write_text(text.replace("0.05,0.95", "0.06,0.94", 1))
    assert not any(stage["done"] for stage in plan(settings)["stages"] if stage["name"] in ("data", "student"))
    (folder / "scores.csv").write_text(text)


def test_terminal_card_and_page_speak_of_scores(finished: tuple[Path, dict]) -> None:
    folder, report = finished
    lines = "\n".join(summary_lines(report))
    assert "teacher  " in lines
    assert "rows of probabilities  accuracy 100.0 %" in lines
    assert "left out of potstill: hidden, attention" in lines
    assert " ms at batch 1" in lines
    card = (folder / "run" / "student" / "README.md").read_text()
    assert "a file of probabilities, for " in card
    assert "shrunk from base" in card
    assert str(folder) not in card
    page = (folder / "run" / "report.html").read_text()
    assert "there is no model to compare with" in page
    assert "0 parameters" not in page
    planned = "\n".join(plan_lines(plan(settings_of(folder))))
    assert "rows of probabilities, joined: train by text, dev by text, test by text" in planned
    assert "no augmentation: there is no teacher to label new texts" in planned


def test_what_predict_writes_teaches_the_rows_that_it_was_asked_about(finished: tuple[Path, dict], tmp_path) -> None:
    folder, _ = finished
    texts = [text for text, _ in rows_of(folder / "train.tsv")]
    answers = Predictor.load(folder / "run" / "student").predict(texts)
    made = [
        {"id": number, "label": one.label, "probabilities": one.probabilities}
        for number, one in enumerate(answers, 1)
        if number > 1  # one that could not be answered has no line
    ]
    (tmp_path / "answers.jsonl").write_text("".join(json.dumps(line) + "\n" for line in made))
    own = (f'teacher.scores="{tmp_path}/answers.jsonl"', "distill.mode=logits", "distill.epochs=1", "data.dev=")
    quick = ("evaluate.hard_labels=false", "evaluate.tfidf=false", f'run.out="{tmp_path}/run"')
    report = distill(settings_of(folder, *own, *quick))
    scores = report["teacher"]["scores"]
    assert scores["joined"] == {"train": "row number"}
    counted = report["data"]["train"], report["data"]["dev"]
    assert sum(scores["covered"][name] for name in ("train", "dev")) == sum(counted) - 1
    assert scores["covered"]["test"] == 0
    assert "score" not in report["teacher"], "no row of test has a score"
    assert report.get("retention") is None
    assert report["teacher"]["dev"]["accuracy"]["n"] == scores["covered"]["dev"]
    assert "what it keeps of its teacher cannot be told" in report["conclusion"]
    # Each row has its own answer: the one that the student gave to its text.
    data = tmp_path / "run" / "stages" / "data"
    arrays, train = load_file(data / "scores.safetensors"), Examples.read(data / "train.arrow")
    by_text = {text: one.probabilities for text, one in zip(texts, answers, strict=True)}
    for text, row in zip(train.texts, arrays["train"], strict=True):
        if not np.isnan(row).any():
            assert np.allclose(np.exp(row), [by_text[text]["neg"], by_text[text]["pos"]], atol=1e-6)


def test_labels_alone_without_gold_labels_are_judged_against_themselves(given: Path, tmp_path: Path) -> None:
    folder = given
    every = [f"{text},{label}" for text, label in rows_of(folder / "train.tsv")]
    (tmp_path / "llm.csv").write_text("\n".join(["text,label", *every]) + "\n")
    same = (f'teacher.scores="{tmp_path}/llm.csv"', f'data.train="{tmp_path}/llm.csv"', "data.dev=", "data.test=")
    report = distill(settings_of(folder, *same, "evaluate.tfidf=false", f'run.out="{tmp_path}/run"'))
    teacher = report["teacher"]
    assert teacher["scores"]["form"] == "labels"
    assert teacher["scores"]["gold"] == {"train": False, "dev": False}
    assert "score" not in teacher
    assert report.get("retention") is None
    assert "hard_labels" not in report["baselines"]
    assert report["student"]["score"]["value"] > 0.7
    assert report["conclusion"].startswith("The student, of ")
    assert "gives the teacher's own answer to" in report["conclusion"]
    assert "no gold labels" in report["conclusion"]
    assert report["student"]["calibration"] is report["student"]["abstention"] is None, "nothing is known of errors"
    kept = json.loads((tmp_path / "run" / "student" / "potstill.json").read_text())
    assert not {"temperature", "abstention"} & set(kept)
    (stage,) = [stage for stage in report["recipe"]["stages"] if stage["name"] == "student"]
    assert [term["name"] for term in stage["terms"]] == ["logits"]
    assert "against the teacher’s own answers" in (tmp_path / "run" / "report.html").read_text()


def test_rows_without_score_learn_from_gold_and_rows_without_gold_from_scores(given: Path, tmp_path: Path) -> None:
    folder = given
    rows = rows_of(folder / "train.tsv")
    lines = [f"{text}\t{label if number >= 40 else ''}" for number, (text, label) in enumerate(rows)]
    (tmp_path / "train.tsv").write_text("\n".join(["text\tlabel", *lines]) + "\n")
    scored = [f"{text},0.25,0.75" for text, _ in rows[:60]]
    (tmp_path / "scores.csv").write_text("\n".join(["text,neg,pos", *scored]) + "\n")
    (tmp_path / "more.txt").write_text(rows[0][0] + "\n" + rows[1][0] + "\n")
    own = (f'data.train="{tmp_path}/train.tsv"', f'teacher.scores="{tmp_path}/scores.csv"')
    more = (f'data.unlabelled="{tmp_path}/more.txt"', "evaluate.tfidf=false", "evaluate.hard_labels=false")
    report = distill(settings_of(folder, *own, *more, "distill.epochs=1", f'run.out="{tmp_path}/run"'))
    assert (report["data"]["train"], report["data"]["unlabelled"]) == (200, 42)
    arrays = load_file(tmp_path / "run" / "stages" / "data" / "scores.safetensors")
    assert int(np.isnan(arrays["train"][:, 0]).sum()) == 180
    assert np.allclose(np.exp(arrays["unlabelled"]), [0.25, 0.75])
    assert report["teacher"]["scores"]["covered"] == {"train": 20, "dev": 0, "test": 0, "unlabelled": 42}


def test_a_gold_label_stands_where_there_is_no_score() -> None:
    given = np.log(np.array([[0.25, 0.75], [np.nan, np.nan], [np.nan, np.nan]], dtype=np.float32))
    made = np.exp(with_gold(given, np.array([0, 1, 0])))
    assert np.allclose(made, [[0.25, 0.75], [0, 1], [1, 0]], atol=1e-5)


def replaced(folder: Path, name: str, text: str) -> str:
    (folder / name).write_text(text)
    return f'"{folder}/{name}"'


@pytest.mark.parametrize(
    ("overrides", "error", "match"),
    [
        (['teacher.more=["{0}/base"]'], SettingsError, "a file of scores alone, or models"),
        (["distill.weights.hidden=[1, 0]"], SettingsError, r"weights.hidden = \[1.*\] reads a teacher's inner states"),
        (['teacher.source="{0}/base"'], SettingsError, "one of them: a model answers for itself"),
        (["distill.weights.hidden=1"], SettingsError, r"weights.hidden = 1 reads a teacher's inner states"),
        (["distill.mode=minilm2"], SettingsError, "nothing of it learns from a teacher's answers"),
        (["distill.mode=poor-mans"], SettingsError, "nothing of it learns from a teacher's answers"),
        (['general.texts="{0}/train.tsv"'], SettingsError, "general.texts under teacher.scores"),
        (['student.assistants=["1x16"]'], SettingsError, "student.assistants under teacher.scores"),
        (["augment.copies=2"], SettingsError, "new texts would have no scores"),
        (["augment.method=embeddings"], SettingsError, "new texts would have no scores"),
        (['augment.model="{0}/base"'], SettingsError, "augment.model under teacher.scores"),
        (['augment.vectors="{0}/glove.txt"'], SettingsError, "augment.vectors under teacher.scores"),
        (["teacher.cache=states"], SettingsError, "teacher.cache under teacher.scores"),
        (["teacher.cache=logits"], SettingsError, "teacher.cache under teacher.scores"),
        (["student.shape=3x16x32x4"], ModelError, "no dimension larger"),
        (["student.start=layers"], ModelError, "the teacher's width"),
        (["teacher.scores_form=labels"], DataError, "no labels among the columns 'text', 'neg', 'pos'"),
        (["teacher.scores={0}/nothing.csv"], InputError, "nothing.csv"),
        (["teacher.scores={0}/none.csv"], DataError, "none of the 1 scores of .*: the first text is 'zz' there and"),
        (["teacher.scores={0}/empty.csv"], DataError, "none of its 1 rows holds an answer"),
        (["teacher.scores={0}/base"], SettingsError, "is the folder of a model; .*as --teacher"),
        (["teacher.scores={0}/bad.csv"], DataError, r"bad.csv row 2: .* add up to 0.7"),
        (["teacher.scores={0}/other.csv"], DataError, r"other.csv row 1: the label 'neutral'"),
        (["teacher.scores={0}/torn.csv"], DataError, r"scores: 1 of 3 rows cannot be read: .*torn.csv row 2"),
        (
            ["data.train={0}/texts.txt", "distill.weights.hard=1"],
            SettingsError,
            "reads gold labels, and train has none",
        ),
    ],
)
def test_what_cannot_be_is_refused_before_work(
    given: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, overrides, error, match: str
) -> None:
    folder = given
    monkeypatch.setattr(under_scores, "BASE", f"{folder}/base")
    first = rows_of(folder / "train.tsv")[0][0]
    replaced(folder, "none.csv", "text,neg,pos\nzz,0.5,0.5\n")
    replaced(folder, "empty.csv", f"text,neg,pos\n{first},,\n")
    replaced(folder, "bad.csv", f"text,neg,pos\n{first},0.5,0.5\nb,0.4,0.3\n")
    replaced(folder, "other.csv", f"text,label\n{first},neutral\n")
    replaced(folder, "torn.csv", f"text,neg,pos\n{first},0.5,0.5\na,b\nc,0.5,0.5\n")
    replaced(folder, "texts.txt", "\n".join(text for text, _ in rows_of(folder / "train.tsv")))
    own = [text.format(folder) for text in overrides]
    with pytest.raises(error, match=match):
        distill(settings_of(folder, *own, f'run.out="{tmp_path}/run"'))
    assert not (tmp_path / "run" / "stages").exists()


def test_pairs_are_joined_by_both_texts_and_more_than_two_labels_are_told_apart(given: Path, tmp_path: Path) -> None:
    every = [(f"text {n}", f"other {n % 7}", "abc"[n % 3]) for n in range(60)]
    lines = ["text,second,label", *(",".join(row) for row in every)]
    train = replaced(tmp_path, "pairs.csv", "\n".join(lines) + "\n")
    scored = [
        f"{text},{second},{','.join('0.8' if c == label else '0.1' for c in 'cab')}" for text, second, label in every
    ]
    wrong = "text 1,other 5,1,0,0"  # a first text of the data's with another second
    path = replaced(tmp_path, "scores.csv", "\n".join(["text,second,c,a,b", *scored[:50], wrong]) + "\n")
    own = (f"data.train={train}", "data.pair=second", "data.dev=", "data.test=", f"teacher.scores={path}")
    job = prepare_job(settings_of(given, *own), SILENT)
    assert job.scores is not None
    made = read_scored(job.settings, job.data, (), job.scores.source, job.columns, SILENT)
    assert made.findings.labels == ("a", "b", "c")
    assert made.findings.scored == {"train": 50}
    answers = made.logits["train"][:50].argmax(axis=1)
    assert answers.tolist() == [number % 3 for number in range(50)]
    assert np.isnan(made.logits["train"][50:]).all()


def test_where_nothing_names_a_model_the_student_is_made_from_the_base(given: Path, monkeypatch) -> None:
    assert under_scores.BASE == "pypi:minilm"
    monkeypatch.setattr(under_scores, "BASE", f"{given}/base")
    for start, way in (("", "shrunk"), ("random", "random"), ("shrunk", "shrunk")):
        job = prepare_job(settings_of(given, f"student.start={start}"), SILENT)
        assert (job.way, job.start, job.teacher.name) == (way, None, f"{given}/base")


def test_a_model_of_the_shape_asked_for_is_taken_as_it_is(given: Path) -> None:
    folder = given
    job = prepare_job(settings_of(folder, "student.shape=2x32x64x4"), SILENT)
    assert (job.way, job.start) == ("model", job.teacher)
    assert prepare_job(settings_of(folder), SILENT).way == "shrunk"
    unnamed = prepare_job(settings_of(folder, "student.shape="), SILENT)
    assert (str(unnamed.shape), unnamed.way) == ("2x32x64x4", "model")


def test_unscored_rows_that_have_no_label_either_are_set_aside_within_bounds(given: Path, tmp_path: Path) -> None:
    folder = given
    texts = [text for text, _ in rows_of(folder / "train.tsv")]
    path = replaced(tmp_path, "texts.txt", "\n".join([*texts, "never seen before"]) + "\n")
    own = (f"data.train={path}", "data.dev=", "data.test=", f'run.out="{tmp_path}/run"', "data.bad_rows=0")
    with pytest.raises(DataError, match=r"train: 1 of 241 rows cannot be used: .*texts.txt row 241 \(no score\)"):
        distill(settings_of(folder, *own))
