"""What stages left, read by those after them: the splits, the task, the length, the models."""

from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file
from transformers import PreTrainedModel

from potstill.data.examples import Examples
from potstill.models.teacher import load_classifier
from potstill.pipeline.run import Context
from potstill.pipeline.scored import with_gold
from potstill.storage import read_json
from potstill.tasks import Task, make_task

__all__ = [
    "length_of",
    "model_of",
    "read_split",
    "split_in",
    "split_of",
    "task_facts",
    "task_in",
    "task_of",
    "training_scores",
]

OF_STUDENT = ("start", "general", "student", "hard-labels", "export")
"""Stages whose model reads as the student does."""


def task_facts(folder: Path) -> dict[str, Any]:
    """What the data stage wrote down: `task`, `labels`, `pair`, `class_weights`, `facts`, `notes`."""
    facts: dict[str, Any] = read_json(folder / "facts.json")
    return facts


def read_split(folder: Path, name: str) -> Examples | None:
    """A split of the data stage by name; None where the run has none."""
    path = folder / f"{name}.arrow"
    return Examples.read(path) if path.is_file() else None


def split_in(folder: Path, name: str) -> Examples:
    """A split of the data stage that every run has: train or dev."""
    examples = read_split(folder, name)
    assert examples is not None
    return examples


def split_of(context: Context, name: str) -> Examples:
    """A split of the run: train or dev."""
    return split_in(context.done["data"], name)


def task_in(folder: Path) -> Task:
    """The task of a run, from its data stage."""
    facts = task_facts(folder)
    return make_task(facts["task"], facts["labels"], pair=facts["pair"], class_weights=facts["class_weights"])


def task_of(context: Context) -> Task:
    """The task of a run."""
    return task_in(context.done["data"])


def length_of(context: Context, stage: str = "teacher") -> int:
    """Longest input in tokens of the model that a stage left: as the stage wrote it down, else as the teacher's did.

    Of what is made from the student's start, as the start's did. Where scores teach, the base stands for the teacher.
    """
    path = context.done.get("start" if stage in OF_STUDENT else stage, Path()) / "task.json"
    if not path.is_file():
        path = (context.done.get("teacher") or context.done["base"]) / "task.json"
    return int(read_json(path)["max_length"])


def model_of(context: Context, folder: Path) -> PreTrainedModel:
    """The model with a head that a stage left: float32, eval mode, outputs in the order of the labels."""
    task = task_of(context)
    return load_classifier(folder / "model", task.labels, problem_type=task.problem_type)


def training_scores(context: Context) -> np.ndarray:
    """Scores of the training texts, float32 (n, C): train's, gold labels where it has none, then the unlabelled's."""
    arrays = load_file(context.done["data"] / "scores.safetensors")
    train = with_gold(arrays["train"], split_of(context, "train").labels)
    return np.concatenate([train, arrays["unlabelled"]]) if "unlabelled" in arrays else train
