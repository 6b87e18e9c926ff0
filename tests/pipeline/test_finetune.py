"""Fine-tuning as a whole: an encoder and labels in, a judged model out that every other command takes."""

import contextlib
import random
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef
from tests.pipeline.test_regression import write_scores
from tests.pipeline.tiny_job import OTHER, tiny_settings, write_rows
from tests.tiny import tiny_model
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from potstill.config import FinetuneSettings, read_settings
from potstill.errors import DataError, GateRefused, SettingsError, StorageError
from potstill.inference import Predictor
from potstill.pipeline import distill, finetune
from potstill.pipeline.budget import Budget
from potstill.pipeline.job import is_trained, prepare_job
from potstill.pipeline.run import Run
from potstill.pipeline.stages import build_stages
from potstill.progress import SILENT
from potstill.storage import digest_folder, read_json


def settings_of(folder: Path, *overrides: str) -> FinetuneSettings:
    folder.mkdir(exist_ok=True)
    if not (folder / "train.tsv").exists():
        write_rows(folder / "train.tsv", 240, 1)
        write_rows(folder / "dev.tsv", 80, 2)
        write_rows(folder / "test.tsv", 80, 3)
    if not (folder / "encoder").exists():
        tiny_model(folder / "encoder", kind="bert", layers=2, hidden=32, heads=4, labels=("LABEL_0", "LABEL_1"))
    own = [
        f'model.source="{folder}/encoder"',
        "training.epochs=25",
        "training.learning_rate=0.003",
        "training.precision=float32",
        f'data.train="{folder}/train.tsv"',
        f'data.dev="{folder}/dev.tsv"',
        f'data.test="{folder}/test.tsv"',
        "run.threads=1",
        f'run.out="{folder}/run"',
    ]
    return read_settings(FinetuneSettings, None, [*own, *overrides])


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finetune")
    finetune(settings_of(folder))
    return folder


def rows_of(path: Path) -> tuple[list[str], list[str]]:
    texts, labels = zip(*(line.split("\t") for line in path.read_text().splitlines()[1:]), strict=True)
    return list(texts), list(labels)


def test_its_scores_are_those_of_the_model_in_plain_transformers(made: Path) -> None:
    found, folder = read_json(made / "run" / "finetune.json"), made / "run" / "model"
    model, info = AutoModelForSequenceClassification.from_pretrained(folder, output_loading_info=True)
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    assert model.config.id2label == {0: "neg", 1: "pos"}
    tokenizer = AutoTokenizer.from_pretrained(folder)
    for split in ("dev", "test"):
        texts, labels = rows_of(made / f"{split}.tsv")
        with torch.no_grad():
            logits = model(**tokenizer(texts, padding=True, return_tensors="pt")).logits
        named = [model.config.id2label[int(place)] for place in logits.argmax(-1)]
        metrics = found["metrics"][split]
        assert metrics["accuracy"]["value"] == pytest.approx(accuracy_score(labels, named))
        assert metrics["macro_f1"]["value"] == pytest.approx(f1_score(labels, named, average="macro"))
        assert metrics["matthews"]["value"] == pytest.approx(matthews_corrcoef(labels, named))
        assert metrics["accuracy"]["low"] <= metrics["accuracy"]["value"] <= metrics["accuracy"]["high"]
    assert found["metrics"]["test"]["accuracy"]["value"] > 0.9
    assert (found["status"], found["judged_on"]) == ("complete", "test")
    assert found["training"]["epochs"] == pytest.approx(25, rel=0.05)
    assert found["data"]["truncated"] == {"dev": 0, "test": 0, "train": 0}


def test_what_predict_needs_is_beside_it(made: Path) -> None:
    good, bad = Predictor.load(made / "run" / "model").predict(["the film was great", "the film was awful"])
    assert (good.label, bad.label) == ("pos", "neg")
    facts = read_json(made / "run" / "model" / "potstill.json")
    assert facts["source"]["model"]["source"].endswith("/encoder")
    assert facts["max_length"] == read_json(made / "run" / "finetune.json")["model"]["max_length"] == 64


def test_it_is_the_fine_tuning_of_a_teacher(made: Path, tmp_path: Path) -> None:
    """To the byte, without dropout, whose random numbers go by the stage's name."""
    shutil.copytree(made / "encoder", tmp_path / "encoder")
    config = tmp_path / "encoder" / "config.json"
    config.write_text(config.read_text().replace('_dropout_prob": 0.1', '_dropout_prob": 0.0'))
    quick = ("epochs=8", "warmup=0.2")
    finetune(settings_of(tmp_path, *(f"training.{one}" for one in quick)))
    more = [f'teacher.source="{tmp_path}/encoder"', *(f"teacher.{one}" for one in quick), f'run.out="{tmp_path}/other"']
    tiny_model(tmp_path / "teacher", kind="bert")
    job = prepare_job(tiny_settings(tmp_path, *more), SILENT)
    run = Run(tmp_path / "other", SILENT)
    for stage in build_stages(job, Budget(None, 0.0, lambda: 0.0, {})):
        if stage.name in ("data", "teacher"):
            run.execute(stage)
    one = tmp_path / "run" / "model" / "model.safetensors"
    assert one.read_bytes() == (run.done["teacher"] / "model" / "model.safetensors").read_bytes()


def test_distill_takes_it_as_it_is(made: Path, tmp_path: Path) -> None:
    settings = tiny_settings(tmp_path, f'teacher.source="{made}/run/model"', "teacher.trained=auto")
    job = prepare_job(settings, SILENT)
    assert is_trained(job)
    run = Run(tmp_path / "run", SILENT)
    for stage in build_stages(job, Budget(None, 0.0, lambda: 0.0, {})):
        if stage.name in ("data", "teacher", "teacher-check"):
            run.execute(stage)
    score = read_json(run.done["teacher-check"] / "dev.json")["accuracy"]
    assert score["value"] == read_json(made / "run" / "finetune.json")["metrics"]["dev"]["accuracy"]["value"]


def test_a_second_call_changes_nothing(made: Path) -> None:
    before = digest_folder(made / "run")
    assert finetune(settings_of(made)) == read_json(made / "run" / "finetune.json")
    assert digest_folder(made / "run") == before


def test_other_settings_run_again_what_depends_on_them(made: Path, tmp_path: Path) -> None:
    shutil.copytree(made / "run", tmp_path / "run")
    before = {name: (tmp_path / "run" / "stages" / name).stat().st_ino for name in ("data", "fine-tune", "score")}
    found = finetune(settings_of(made, "training.epochs=12", f'run.out="{tmp_path}/run"'))
    after = {name: (tmp_path / "run" / "stages" / name).stat().st_ino for name in before}
    assert after["data"] == before["data"]
    assert after["fine-tune"] != before["fine-tune"]
    assert after["score"] != before["score"]
    assert found["training"]["planned"] == 96


def test_an_interrupted_run_ends_in_the_same_bytes(made: Path, tmp_path: Path) -> None:
    class Stops:
        left = 60

        def progress(self, *_args: float, **values: float) -> None:
            if "hard" in values:
                self.left -= 1
                if self.left == 0:
                    raise KeyboardInterrupt

        stage = note = warn = lambda *_args: None

    settings = settings_of(made, f'run.out="{tmp_path}/run"', "run.checkpoint_minutes=0.0001")
    with pytest.raises(KeyboardInterrupt):
        finetune(settings, Stops())
    assert list((tmp_path / "run" / "scratch").rglob("step-*"))
    finetune(settings)
    one, other = (folder / "run" / "model" / "model.safetensors" for folder in (made, tmp_path))
    assert one.read_bytes() == other.read_bytes()
    assert not (tmp_path / "run" / "scratch").exists()


def test_a_budget_sets_the_steps(made: Path, tmp_path: Path) -> None:
    with contextlib.suppress(GateRefused):  # a slow machine may leave too few steps to learn anything
        finetune(settings_of(made, "run.budget=0.3", "training.epochs=100000", f'run.out="{tmp_path}/run"'))
    found = read_json(tmp_path / "run" / "finetune.json")
    assert 10 <= found["training"]["steps"] < found["training"]["planned"] == 800_000


def test_scores(tmp_path: Path) -> None:
    for seed, (name, rows) in enumerate((("train", 240), ("dev", 80))):
        write_scores(tmp_path / f"{name}.tsv", rows, seed)
    own = ["data.task=regression", "data.header=false", 'data.text="3"', 'data.label="2"', "data.test="]
    found = finetune(settings_of(tmp_path, *own, "training.epochs=30"))
    assert found["judged_on"] == "dev"
    assert set(found["metrics"]) == {"dev"}
    assert found["metrics"]["dev"]["pearson"]["value"] > 0.9
    assert found["task"] == {"kind": "regression", "labels": [], "primary_metric": "pearson", "pair": False}
    good, bad = Predictor.load(tmp_path / "run" / "model").predict(["the film was great", "the film was awful"])
    assert good.score > bad.score + 1


def test_a_model_that_learned_nothing_is_there_and_refused(made: Path, tmp_path: Path) -> None:
    draw = random.Random(0)
    for name, rows in (("train", 120), ("dev", 60)):
        lines = [f"{' '.join(draw.choices(OTHER, k=6))}\t{draw.choice(('neg', 'pos'))}" for _ in range(rows)]
        (tmp_path / f"{name}.tsv").write_text("text\tlabel\n" + "\n".join(lines) + "\n")
    settings = settings_of(tmp_path, "training.epochs=1", "data.test=")
    for _ in range(2):
        with pytest.raises(GateRefused, match="the majority class"):
            finetune(settings)
        found = read_json(tmp_path / "run" / "finetune.json")
        assert found["status"] == "refused"
        assert "the model scores" in found["refused_because"]
        assert Predictor.load(tmp_path / "run" / "model").predict(["the film"])[0].label in ("neg", "pos")


def test_long_texts_are_counted(made: Path, tmp_path: Path) -> None:
    texts, _ = rows_of(made / "dev.tsv")
    own = ["data.max_length=6", "training.epochs=1", "data.test=", 'data.long_text="window"', "data.step=2"]
    with contextlib.suppress(GateRefused):  # after one epoch
        finetune(settings_of(made, *own, f'run.out="{tmp_path}/run"'))
    tokenizer = AutoTokenizer.from_pretrained(made / "encoder")
    longer = int(np.sum([len(tokenizer(text).input_ids) > 6 for text in texts]))
    data = read_json(tmp_path / "run" / "finetune.json")["data"]
    assert (data["windowed"]["dev"], data["truncated"]["dev"]) == (longer, 0)


@pytest.mark.parametrize(
    ("override", "error", "match"),
    [
        ("data.unlabelled=more.txt", SettingsError, "data.unlabelled = more.txt in a fine-tuning"),
        ("training.epoch=3", SettingsError, "training.epochs"),
        ("teacher.epochs=3", SettingsError, "unknown key teacher; expected one of data, model, training, run"),
        ('data.label="lable"', DataError, "did you mean 'label'"),
    ],
)
def test_refused_before_any_work(made: Path, tmp_path: Path, override: str, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        finetune(settings_of(made, override, f'run.out="{tmp_path}/run"'))
    assert not (tmp_path / "run" / "settings.toml").exists()


def test_weights_of_classes_are_for_labels(made: Path) -> None:
    with pytest.raises(SettingsError, match=r"data\.class_weights with data\.task"):
        settings_of(made, "data.task=regression", "data.class_weights=balanced")


def test_run_folders_are_kept_apart(made: Path, tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="another command's run"):
        distill(tiny_settings(tmp_path, f'run.out="{made}/run"'))
    for name in ("data", "teacher"):
        (tmp_path / "other" / "stages" / name).mkdir(parents=True)
    (tmp_path / "other" / ".potstill.lock").touch()
    with pytest.raises(StorageError, match="another command's run"):
        finetune(settings_of(made, f'run.out="{tmp_path}/other"'))
