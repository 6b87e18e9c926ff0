"""The whole job on a tiny teacher: what it leaves, what a second call does, what is refused before any work."""

import json
import shutil
from pathlib import Path

import pytest
from tests.pipeline.tiny_job import tiny_settings, write_rows
from transformers import AutoModelForSequenceClassification

from potstill.errors import (
    DataError,
    GateRefused,
    InputError,
    LockHeld,
    ModelError,
    SettingsError,
    SourceError,
    StorageError,
)
from potstill.inference import Predictor
from potstill.pipeline import distill, plan
from potstill.pipeline.job import prepare_job
from potstill.progress import SILENT
from potstill.storage import lock


class Stages:
    """Remembers which stages ran."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def stage(self, name: str, detail: str = "") -> None:
        self.names.append(name)

    def progress(self, done: float, total: float, **values: float) -> None: ...

    def note(self, message: str) -> None: ...

    def warn(self, message: str) -> None: ...


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict]:
    folder = tmp_path_factory.mktemp("tiny")
    return folder, distill(tiny_settings(folder))


def test_the_report_holds_the_main_figures(finished: tuple[Path, dict]) -> None:
    folder, report = finished
    assert json.loads((folder / "run" / "report.json").read_text()) == report
    assert report["status"] == "complete"
    assert report["judged_on"] == "test"
    assert report["teacher"]["score"]["value"] > 0.9
    assert 0 < report["retention"]["low"] <= report["retention"]["value"] <= report["retention"]["high"]
    assert report["student"]["parameters"] < report["teacher"]["parameters"]
    assert {"hard_labels", "tfidf_logistic", "majority"} <= set(report["baselines"])
    (export,) = report["exports"]
    assert export["accepted"]
    assert export["max_abs_diff"] < 1e-4
    assert set(export["speedup"]) == {"1", "32"}
    assert (folder / "run" / "report.html").stat().st_size > 10_000


def test_the_student_opens_in_plain_transformers_and_predicts(finished: tuple[Path, dict]) -> None:
    folder, _report = finished
    student = folder / "run" / "student"
    model = AutoModelForSequenceClassification.from_pretrained(student)
    assert [model.config.id2label[i] for i in range(2)] == ["neg", "pos"]
    assert model.config.num_hidden_layers == 1
    assert model.config.hidden_size == 16
    answers = Predictor.load(student).predict(["the plot was good", "the plot was awful"])
    assert [answer.label for answer in answers] == ["pos", "neg"]


def test_a_second_call_does_nothing(finished: tuple[Path, dict]) -> None:
    folder, report = finished
    kept = {name: (folder / "run" / name).stat().st_mtime_ns for name in ("report.json", "report.html", "student")}
    half = folder / "run" / "stages" / ".student.tmp-abc"
    half.mkdir()
    seen = Stages()
    again = distill(tiny_settings(folder), seen)
    assert seen.names == []
    assert not half.exists(), "what a killed process left stays for ever"
    assert again == report
    assert kept == {name: (folder / "run" / name).stat().st_mtime_ns for name in kept}
    shutil.rmtree(folder / "run" / "student")
    distill(tiny_settings(folder), seen)
    assert seen.names == []
    assert (folder / "run" / "student" / "model.safetensors").is_file(), "what was lost is put back"


def test_a_changed_gate_runs_nothing(finished: tuple[Path, dict]) -> None:
    folder, _ = finished
    seen = Stages()
    distill(tiny_settings(folder, "export.tolerance=0.02"), seen)
    assert seen.names == []


@pytest.mark.parametrize(
    ("override", "first"),
    [("augment.copies=2", "augment"), ("distill.temperature=2", "student"), ("evaluate.tfidf=false", "tfidf")],
)
def test_a_changed_setting_makes_its_stage_stale(finished: tuple[Path, dict], override: str, first: str) -> None:
    stages = plan(tiny_settings(finished[0], override, "export.tolerance=0.02"))["stages"]
    assert next(stage["name"] for stage in stages if not stage["done"]) == first


def test_the_plan_changes_nothing(tmp_path: Path) -> None:
    settings = tiny_settings(tmp_path)
    planned = plan(settings)
    assert [stage["name"] for stage in planned["stages"]][:2] == ["data", "teacher"]
    assert not any(stage["done"] for stage in planned["stages"])
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("mode", ["paper", "reference", "potstill"])
def test_every_mode_runs_after_general_distillation(tmp_path: Path, mode: str) -> None:
    settings = tiny_settings(
        tmp_path,
        f"distill.mode={mode}",
        "distill.epochs=1",
        "student.start=random",
        "export.formats=[]",
        "evaluate.hard_labels=false",
        f'general.texts="{write_rows(tmp_path / "plain.tsv", 60, 9)}"',
        "general.max_length=16",
        "general.epochs=1",
        "general.batch_size=8",
    )
    report = distill(settings)
    names = [stage["name"] for stage in report["recipe"]["stages"]]
    task = ["student"] if mode == "potstill" else ["student: intermediate", "student: prediction"]
    assert names == ["teacher", "general", *task]
    assert report["baselines"].get("hard_labels") is None


def test_mpnet_with_an_assistant(tmp_path: Path) -> None:
    settings = tiny_settings(tmp_path, 'student.assistants=["1x32x64x4"]', "distill.epochs=2", kind="mpnet")
    report = distill(settings)
    names = [stage["name"] for stage in report["recipe"]["stages"]]
    assert names == ["teacher", "assistant-1", "student", "hard-labels"]
    assert report["teacher"]["model_type"] == report["student"]["model_type"] == "mpnet"
    assert report["exports"][0]["max_abs_diff"] < 1e-4


REFUSED = [
    ("missing file", ['data.train="nowhere.tsv"'], SourceError, "nowhere.tsv"),
    ("missing column", ["data.text=sentence"], DataError, "sentence"),
    ("shape not divisible", ["student.shape=1x15x30x4"], ModelError, "divisible"),
    ("student larger", ["student.shape=3x16x32x4"], ModelError, "layers"),
    ("other heads", ["student.shape=1x16x32x2", "distill.mode=paper"], ModelError, "heads"),
    ("width of copied layers", ["student.start=layers"], ModelError, "width"),
    ("no such model", ['teacher.source="./nothing"'], SourceError, "nothing"),
    ("no such layer", ["student.layers=[2]"], SettingsError, "from 0 to 1; fix: count from 0: the last layer is 1"),
    ("layers of nothing", ["student.layers=[1]", "student.start=random"], SettingsError, "student.start"),
    ("no masked LM", ["augment.method=masked-lm"], ModelError, "masked-LM head"),
    ("assistant larger", ['student.assistants=["3x32x64x4"]'], ModelError, "assistants: an assistant of 3 layers"),
    ("one column for two", ["data.label=text"], SettingsError, "a column for each"),
    ("windows that leave gaps", ["data.long_text=window", "data.max_length=16", "data.step=50"], ModelError, "step"),
]


@pytest.mark.parametrize(("name", "overrides", "error", "words"), REFUSED, ids=[row[0] for row in REFUSED])
def test_refused_with_one_line(tmp_path: Path, name: str, overrides: list[str], error: type, words: str) -> None:
    with pytest.raises(error, match=words) as caught:
        distill(tiny_settings(tmp_path, *overrides))
    assert caught.value.exit_code == 2
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run" / "stages" / "teacher").exists()


def test_the_plan_looks_for_the_label(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no column 'sentiment'; expected one of 'text', 'label'"):
        plan(tiny_settings(tmp_path, "data.label=sentiment"))


def test_a_width_that_costs_heads_is_said(tmp_path: Path) -> None:
    noted = plan(tiny_settings(tmp_path, "student.shape=1x13"))["notes"]
    said = "student.shape 1x13: 13 cannot be cut into the teacher's 4 heads, so the student has 1; a width such as 12 "
    assert f"{said}keeps 4" in noted
    for chosen in ("1x16", "1x13x26x1"):
        assert not any(
            "cannot be cut" in line
            for line in prepare_job(tiny_settings(tmp_path, f"student.shape={chosen}"), SILENT).notes
        )


def test_the_same_rows_in_two_roles(tmp_path: Path) -> None:
    settings = tiny_settings(tmp_path)
    with pytest.raises(DataError, match=r"data\.train .* and data\.dev .* are the same file"):
        distill(tiny_settings(tmp_path, f'data.dev="{settings.data.train}"'))


def test_a_folder_of_the_users_is_left_alone(tmp_path: Path) -> None:
    settings = tiny_settings(tmp_path)
    (tmp_path / "run" / "student").mkdir(parents=True)
    (tmp_path / "run" / "student" / "thesis.txt").write_text("years")
    for call in (distill, plan):
        with pytest.raises(StorageError, match="holds files that no run made"):
            call(settings)
    assert [path.name for path in (tmp_path / "run").rglob("*")] == ["student", "thesis.txt"]
    file = write(tmp_path / "file", "")
    for call in (distill, plan):
        with pytest.raises(StorageError, match="is a file"):
            call(tiny_settings(tmp_path, f'run.out="{file}"'))


def test_bad_input_changes_nothing_of_a_finished_run(finished: tuple[Path, dict]) -> None:
    folder, _ = finished
    before = (folder / "run" / "settings.toml").read_bytes()
    with pytest.raises(DataError, match="nope"):
        distill(tiny_settings(folder, "data.text=nope"))
    assert (folder / "run" / "settings.toml").read_bytes() == before


def test_weights_are_looked_at_before_any_work(tmp_path: Path) -> None:
    settings = tiny_settings(tmp_path)
    weights = tmp_path / "teacher" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    for call in (distill, plan):
        with pytest.raises(ModelError, match="cannot be loaded"):
            call(settings)
    assert not (tmp_path / "run" / "stages").exists()


def test_a_budget_that_holds_nothing_is_said(tmp_path: Path) -> None:
    (note,) = [line for line in plan(tiny_settings(tmp_path, "run.budget=0.01"))["notes"] if "run.budget" in line]
    assert note.startswith("run.budget = 0.01 minutes: exporting and measuring alone take about 1.5")
    noted = plan(tiny_settings(tmp_path, "run.budget=9"))["notes"]
    assert any(line.startswith("of the budget of 9 minutes 1.5 are kept") and "7.5 are left" in line for line in noted)
    with pytest.raises(GateRefused, match=r"the budget of 0\.01 minutes left its fine-tuning .* of 25 epochs"):
        distill(tiny_settings(tmp_path, "run.budget=0.01", "teacher.learning_rate=1e-9"))


def write(path: Path, text: str) -> str:
    path.write_text(text)
    return str(path)


def test_data_that_cannot_be_used(tmp_path: Path) -> None:
    cases = {
        "empty": ("", "empty|no rows|nothing"),
        "one class": ("text\tlabel\n" + "good film\tpos\nfine film\tpos\n" * 20, "one|class|label"),
    }
    for name, (text, words) in cases.items():
        file = write(tmp_path / f"{name}.tsv", text)
        with pytest.raises(DataError, match=words):
            distill(tiny_settings(tmp_path, f'data.train="{file}"'))
    unknown = write(tmp_path / "unknown.tsv", "text\tlabel\ngood film\tpos\nbad film\tmixed\n")
    with pytest.raises(DataError, match="mixed"):
        distill(tiny_settings(tmp_path, f'data.dev="{unknown}"'))


def test_plain_texts_and_tokenizers_are_looked_at_before_any_work(tmp_path: Path) -> None:
    settings = tiny_settings(tmp_path)
    plain = write_rows(tmp_path / "plain.tsv", 4, 9, "sentence\tlabel")
    with pytest.raises(DataError, match="sentence"):
        distill(tiny_settings(tmp_path, f'general.texts="{plain}"'))
    (tmp_path / "teacher" / "tokenizer.json").unlink()
    with pytest.raises(ModelError, match=r"no tokenizer\.json"):
        distill(settings)
    assert not (tmp_path / "run" / "stages").exists()


def test_a_decoder_is_no_teacher(tmp_path: Path) -> None:
    settings = tiny_settings(tmp_path)
    path = tmp_path / "teacher" / "config.json"
    config = json.loads(path.read_text())
    path.write_text(json.dumps({**config, "is_decoder": True}))
    with pytest.raises(InputError, match="encoder"):
        distill(settings)


def test_a_run_folder_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(StorageError, match=r"cannot be written: Not a directory.*fix") as caught:
        distill(tiny_settings(tmp_path, f'run.out="{tmp_path}/file/run"'))
    assert caught.value.exit_code == 2


def test_a_held_lock_is_exit_code_3(tmp_path: Path) -> None:
    settings = tiny_settings(tmp_path)
    with lock(tmp_path / "run"), pytest.raises(LockHeld) as caught:
        distill(settings)
    assert caught.value.exit_code == 3


def test_no_space_is_told_before_any_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import shutil

    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=1000))
    with pytest.raises(InputError, match="MB free"):
        distill(tiny_settings(tmp_path))


def test_a_teacher_that_knows_nothing_stops_the_run(tmp_path: Path) -> None:
    settings = tiny_settings(tmp_path, "teacher.trained=true", "teacher.same_label_order=true")
    with pytest.raises(GateRefused, match="majority"):
        distill(settings)
    report = json.loads((tmp_path / "run" / "report.json").read_text())
    assert report["status"] == "refused"
    assert "student" not in report
    assert (tmp_path / "run" / "report.html").exists()
