"""Assistants between teacher and student: which there are, what they are cut from, what they learn."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file
from tests.pipeline.tiny_job import tiny_settings, write_rows
from tests.tiny import tiny_model

from potstill import recipes
from potstill.data.examples import Examples
from potstill.data.new_texts import is_new
from potstill.errors import ModelError
from potstill.models import forward
from potstill.models.student import Shape
from potstill.pipeline import answers, assistants, distil_stages, distill, estimates, plan
from potstill.pipeline.assistants import assistant_phases, halves, kept_layers
from potstill.pipeline.checked import checked_job
from potstill.progress import SILENT
from potstill.recipes import RECIPES, Phase
from potstill.training import LossTerm

BASE = Shape(12, 768, 3072, 12)


@pytest.mark.parametrize(
    ("teacher", "student", "wanted"),
    [
        (BASE, Shape(4, 312, 1200, 12), ["6x768x3072x12"]),
        (BASE, Shape(2, 128, 512, 2), ["6x768x3072x12"]),
        (BASE, Shape(6, 384, 1536, 12), []),
        (BASE, Shape(4, 768, 3072, 12), []),
        (Shape(24, 1024, 4096, 16), Shape(4, 312, 1200, 12), ["12x1024x4096x16", "6x1024x4096x16"]),
        (Shape(6, 384, 1536, 12), Shape(4, 312, 1200, 12), []),
        (Shape(6, 384, 1536, 12), Shape(2, 128, 512, 2), []),
    ],
)
def test_depth_is_halved_while_it_is_more_than_the_students(teacher: Shape, student: Shape, wanted: list[str]) -> None:
    assert [str(shape) for shape in halves(teacher, student)] == wanted


def test_an_assistant_keeps_layers_from_the_first_to_the_last() -> None:
    assert kept_layers(Shape(6, 768, 3072, 12), BASE) == (1, 3, 5, 7, 9, 12)
    assert kept_layers(Shape(3, 384, 1536, 12), Shape(6, 384, 1536, 12)) == (1, 3, 6)
    assert kept_layers(Shape(1, 32, 64, 4), Shape(2, 32, 64, 4)) == (2,)
    assert kept_layers(BASE, BASE) == tuple(range(1, 13))


def deep(folder: Path, *overrides: str) -> list[str]:
    """Settings over a teacher of 4 layers: half of them are more than the student has."""
    tiny_settings(folder)
    if not (folder / "deep").exists():
        tiny_model(folder / "deep", kind="bert", layers=4, hidden=32, heads=4, labels=("LABEL_0", "LABEL_1"))
    return [f'teacher.source="{folder}/deep"', "distill.epochs=2", "export.formats=[]", *overrides]


@pytest.fixture
def any_depth(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiny teachers have assistants too."""
    monkeypatch.setattr(assistants, "FEWEST_LAYERS", 2)


def shapes(folder: Path, *overrides: str) -> list[str]:
    return [str(shape) for shape in checked_job(tiny_settings(folder, *deep(folder, *overrides)), SILENT).assistants]


@pytest.mark.usefixtures("any_depth")
def test_where_the_method_puts_them(tmp_path: Path) -> None:
    assert shapes(tmp_path) == shapes(tmp_path, "student.assistants=auto") == ["2x32x64x4"]
    texts = f'general.texts="{write_rows(tmp_path / "plain.tsv", 60, 9)}"'
    tiny_model(tmp_path / "other", kind="bert", layers=1, hidden=16, heads=4)
    for without in (
        ["student.assistants=none"],
        ["distill.mode=logits", "student.start=shrunk"],
        ["student.start=random"],
        [f'student.start="{tmp_path}/other"'],
        ["student.layers=[1]"],
        ["student.shape=2x16x32x4"],
        ["student.shape=1x32x64x4"],
        ["student.vocabulary=used", "data.long_text=window", "data.max_length=8"],
        ["distill.weights.hidden=0", "distill.weights.attention=0", "distill.weights.logits=0"],
        [texts, "general.max_length=16"],
    ):
        assert shapes(tmp_path, *without) == [], without
    named = ['student.assistants=["3x24x48x4", "2x24x48x4"]', "student.layers=[0]"]
    assert shapes(tmp_path, *named) == ["3x24x48x4", "2x24x48x4"]


def test_they_learn_what_students_learn_from_fewer_examples() -> None:
    def terms(phases: Sequence[Phase]) -> list[object]:
        return [phase.terms for phase in phases]

    for name, recipe in RECIPES.items():
        assert terms(assistant_phases(recipe)) == terms(recipe.phases)
        assert bool(recipe.assistant) == (name == "potstill")
        assert all(0 < phase.examples < recipe.phases[0].examples for phase in recipe.assistant)


@pytest.mark.usefixtures("any_depth")
def test_the_layers_that_it_kept_teach_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pairs: dict[int, tuple[tuple[int, int], ...]] = {}
    build = recipes.build_terms

    def seen(*args: Any, **kwargs: Any) -> tuple[LossTerm, ...]:
        made = build(*args, **kwargs)
        pairs[kwargs["student"]] = next(term.layers for term in made if term.name == "hidden")
        return made

    monkeypatch.setattr(distil_stages, "build_terms", seen)
    distill(tiny_settings(tmp_path, *deep(tmp_path, "distill.epochs=1", "evaluate.hard_labels=false")))
    assert pairs == {2: ((1, 1), (2, 4)), 1: ((1, 2),)}


@pytest.mark.usefixtures("any_depth")
def test_a_whole_run(tmp_path: Path) -> None:
    settings = tiny_settings(tmp_path, *deep(tmp_path, "distill.weights.logits=0.5"))
    names = [stage["name"] for stage in plan(settings)["stages"]]
    assert names[3:8] == ["augment", "teacher-logits", "assistant-1", "start", "student"]
    report = distill(settings)
    assert [stage["name"] for stage in report["recipe"]["stages"]][1:3] == ["assistant-1", "student"]
    stages = tmp_path / "run" / "stages"
    config = json.loads((stages / "assistant-1" / "model" / "config.json").read_text())
    assert (config["num_hidden_layers"], config["hidden_size"]) == (2, 32)
    learned = json.loads((stages / "assistant-1" / "training.json").read_text())["distil"]["terms"]
    taught = json.loads((stages / "student" / "training.json").read_text())["distil"]["terms"]
    assert [(term["name"], term["weight"]) for term in learned] == [(term["name"], term["weight"]) for term in taught]
    assert ("logits", 0.5) in [(term["name"], term["weight"]) for term in taught]
    answers = load_file(stages / "teacher-logits" / "logits.safetensors")["logits"]
    new = is_new(Examples.read(stages / "augment" / "train.arrow").example_id)
    assert 0 < new.sum() < len(new) == len(answers)
    assert np.array_equal(np.isnan(answers).all(axis=1), new), "texts that were made are answered by the model above"
    assert np.array_equal(np.isnan(answers).any(axis=1), new)


@pytest.mark.usefixtures("any_depth")
def test_several_teachers_answer_every_text(tmp_path: Path) -> None:
    """An assistant's answers are an average already: averaged once more they would not be the shares' average."""
    own = deep(tmp_path, f'teacher.more=["{tmp_path}/teacher"]', "evaluate.hard_labels=false")
    distill(tiny_settings(tmp_path, *own))
    answers = load_file(tmp_path / "run" / "stages" / "teacher-logits" / "logits.safetensors")["logits"]
    new = is_new(Examples.read(tmp_path / "run" / "stages" / "augment" / "train.arrow").example_id)
    assert new.any()
    assert np.isfinite(answers).all()


@pytest.mark.usefixtures("any_depth")
def test_a_named_assistant_where_labels_alone_are_learned(tmp_path: Path) -> None:
    """Its texts are those with labels; the teacher's answers are to all."""
    alone = [f"distill.weights.{name}=0" for name in ("hidden", "attention", "logits")]
    own = deep(tmp_path, 'student.assistants=["2x32x64x4"]', "augment.method=ngram", *alone)
    report = distill(tiny_settings(tmp_path, *own))
    assert [stage["name"] for stage in report["recipe"]["stages"]][1] == "assistant-1"


@pytest.mark.usefixtures("any_depth")
def test_answers_that_are_no_numbers_stop_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def damaged(*args: Any, **kwargs: Any) -> np.ndarray:
        found = forward.run_logits(*args, **kwargs)
        found[3] = np.nan
        return found

    monkeypatch.setattr(answers, "run_logits", damaged)
    with pytest.raises(ModelError, match="answers to 1 texts are not finite"):
        distill(tiny_settings(tmp_path, *deep(tmp_path)))


@pytest.mark.usefixtures("any_depth")
@pytest.mark.parametrize(("minutes", "left"), [(1, 0), (90, 88)])
def test_no_assistant_where_the_budget_is_too_short_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, minutes: float, left: int
) -> None:
    """The recipe's own time decides; one that is named stays."""
    settings = tiny_settings(tmp_path, *deep(tmp_path), f"run.budget={minutes}")
    job = checked_job(settings, SILENT)
    assert bool(job.assistants) == (minutes == 90)
    assert job.settings == settings
    monkeypatch.setattr(estimates, "_FLOPS", 1.0)  # then nothing is enough
    slow = checked_job(settings, SILENT)
    assert not slow.assistants
    assert slow.notes[-1].startswith("no assistant: with ")
    assert f"and {left} are left for it; student.assistants names one" in slow.notes[-1]
    assert not any("assistant" in stage["name"] for stage in plan(settings)["stages"])
    assert not checked_job(tiny_settings(tmp_path, *deep(tmp_path)), SILENT, minutes=1e-9).assistants
    assert checked_job(tiny_settings(tmp_path, *deep(tmp_path)), SILENT).assistants
    named = 'student.assistants=["2x32x64x4"]'
    assert checked_job(tiny_settings(tmp_path, *deep(tmp_path), f"run.budget={minutes}", named), SILENT).assistants
