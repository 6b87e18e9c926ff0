"""Where settings of different parts meet: what depends on both, and what cannot be both."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.pipeline.test_scores import settings_of
from tests.pipeline.tiny_job import tiny_settings, with_trained_teacher
from tests.tiny import tiny_model

from potstill.config import Settings
from potstill.data.examples import Examples
from potstill.errors import SettingsError
from potstill.pipeline import distill
from potstill.pipeline.budget import Budget
from potstill.pipeline.job import prepare_job
from potstill.pipeline.run import Run
from potstill.pipeline.stages import build_stages
from potstill.progress import SILENT
from potstill.storage import read_json


def depends(settings: Settings, name: str) -> Mapping[str, Any]:
    """What the stage depends on, beside the stages that it needs."""
    stages = build_stages(prepare_job(settings, SILENT), Budget(None, 0.0, lambda: 0.0, {}))
    return next(stage.depends for stage in stages if stage.name == name)


def run_until(settings: Settings, *wanted: str) -> Run:
    run = Run(Path(settings.run.out), SILENT)
    for stage in build_stages(prepare_job(settings, SILENT), Budget(None, 0.0, lambda: 0.0, {})):
        run.execute(stage)
        if stage.name == wanted[-1]:
            break
    return run


@pytest.mark.parametrize("mode", ["paper", "potstill"])
def test_an_assistant_depends_on_the_terms_that_are_left_to_it(tmp_path: Path, mode: str) -> None:
    """Where it learns as the student does, it loses what the student cannot learn; else it has terms of its own."""
    chain = ('student.assistants=["2x24x48x4"]', "student.shape=1x16x32x4", f"distill.mode={mode}")
    own = depends(tiny_settings(tmp_path, *chain), "assistant-1")
    shorter = depends(tiny_settings(tmp_path, *chain, "student.max_length=16"), "assistant-1")
    assert (own != shorter) == (mode == "paper")
    assert [name for name in own["terms"][0] if name in ("hidden", "attention")] == ["hidden", "attention"]


def test_a_start_depends_on_the_layers_that_a_method_names(tmp_path: Path) -> None:
    methods = [
        depends(tiny_settings(tmp_path, f"distill.mode={mode}", "student.shape=1x32x64x4"), "start")["layers"]
        for mode in ("pkd", "poor-mans")
    ]
    assert methods == [(1,), (1,)]
    assert depends(tiny_settings(tmp_path, "student.layers=[1]"), "start")["layers"] == (2,)


def test_so_many_rows_of_scored_data(tmp_path: Path) -> None:
    run = run_until(settings_of(tmp_path, "data.rows=50"), "data")
    assert len(Examples.read(run.done["data"] / "train.arrow")) == 50


def test_several_teachers_under_a_method_that_learns_no_answers(tmp_path: Path) -> None:
    tiny_settings(tmp_path)
    tiny_model(tmp_path / "other", kind="bert", layers=2, hidden=32, heads=4, labels=("LABEL_0", "LABEL_1"), seed=3)
    more = f'teacher.more=["{tmp_path}/other"]'
    settings = tiny_settings(tmp_path, more, "distill.mode=poor-mans", "student.shape=1x32x64x4")
    with pytest.raises(SettingsError, match=r"several teachers under .* poor-mans"):
        prepare_job(settings, SILENT)


def test_a_method_of_augmentation_without_copies(tmp_path: Path) -> None:
    settings = tiny_settings(tmp_path, "augment.method=ngram", "distill.mode=pkd", "student.shape=1x32x64x4")
    without = settings.model_copy(update={"augment": settings.augment.model_copy(update={"copies": None})})
    with pytest.raises(SettingsError, match=r"augment.method names ngram, .*set augment.copies"):
        prepare_job(without, SILENT)
    assert prepare_job(settings, SILENT).augmenting.copies == 1


def test_a_start_with_the_head_of_another_task_gets_a_fresh_one(tmp_path: Path) -> None:
    tiny_settings(tmp_path)
    tiny_model(tmp_path / "topics", kind="bert", layers=1, hidden=16, heads=4, labels=("a", "b", "c"), seed=4)
    start = f'student.start="{tmp_path}/topics"'
    run = run_until(tiny_settings(tmp_path, start, "teacher.epochs=1"), "start")
    config = read_json(run.done["start"] / "model" / "config.json")
    assert sorted(config["label2id"]) == ["neg", "pos"]


@pytest.mark.slow
def test_an_assistant_and_plain_text_of_another_width(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """General distillation learns towards the teacher's width, the student towards its assistant's."""
    with_trained_teacher(tmp_path, "bert", tmp_path_factory.mktemp)
    (tmp_path / "plain.txt").write_text("\n".join(["a good film we saw", "a long bad story"] * 40) + "\n")
    settings = tiny_settings(
        tmp_path,
        "teacher.trained=true",
        "teacher.same_label_order=true",
        'student.assistants=["2x24x48x4"]',
        f'general.texts="{tmp_path}/plain.txt"',
        "general.epochs=1",
        "export.formats=[]",
        "evaluate.hard_labels=false",
    )
    assert distill(settings)["student"]["score"]["value"] > 0.7


def test_a_phase_on_labels_alone_reads_labelled_texts_alone(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with_trained_teacher(tmp_path, "bert", tmp_path_factory.mktemp)
    (tmp_path / "more.txt").write_text("\n".join(f"a {word} film we saw" for word in ("slow", "fast", "short")) + "\n")
    settings = tiny_settings(
        tmp_path,
        "teacher.trained=true",
        "teacher.same_label_order=true",
        "distill.mode=poor-mans",
        "student.shape=1x32x64x4",
        "augment.method=none",
        f'data.unlabelled="{tmp_path}/more.txt"',
        "distill.epochs=1",
        "distill.batch_size=60",
    )
    run = run_until(settings, "student")
    (facts,) = read_json(run.done["student"] / "training.json").values()
    labelled = len(Examples.read(run.done["data"] / "train.arrow"))
    assert labelled > 180
    assert facts["examples"] == labelled
    assert facts["steps"] == int(np.ceil(labelled / 60))
