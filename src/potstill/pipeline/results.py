"""What stages left, read by those after them: the splits, the labels, the task, the length, the models."""

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
from potstill.tasks import Classification

__all__ = [
    "classification",
    "labels_of",
    "length_of",
    "model_of",
    "read_split",
    "split_of",
    "task_facts",
    "training_scores",
]

OF_STUDENT = ("start", "general", "student", "hard-labels", "export")
"""Stages whose model reads as the student does."""


def task_facts(folder: Path) -> dict[str, Any]:
    """What the data stage wrote down: `labels`, `facts`, `notes`."""
    facts: dict[str, Any] = read_json(folder / "facts.json")
    return facts


def read_split(folder: Path, name: str) -> Examples | None:
    """A split of the data stage by name; None where the run has none."""
    path = folder / f"{name}.arrow"
    return Examples.read(path) if path.is_file() else None


def split_of(context: Context, name: str) -> Examples:
    """A split that every run has: train or dev."""
    examples = read_split(context.done["data"], name)
    assert examples is not None
    return examples


def labels_of(context: Context) -> tuple[str, ...]:
    """The label names, in the order of every model's outputs."""
    return tuple(task_facts(context.done["data"])["labels"])


def length_of(context: Context, stage: str = "teacher") -> int:
    """Longest input in tokens of the model that a stage left: as the stage wrote it down, else as the teacher's did.

    Of what is made from the student's start, as the start's did. Where scores teach, the base stands for the teacher.
    """
    root = context.done.get("teacher") or context.done["base"]
    path = context.done.get("start" if stage in OF_STUDENT else stage, Path()) / "task.json"
    path = path if path.is_file() else root / "task.json"
    return int(read_json(path)["max_length"])


def model_of(context: Context, folder: Path) -> PreTrainedModel:
    """The classifier that a stage left: float32, eval mode, outputs in the order of the labels."""
    return load_classifier(folder / "model", labels_of(context))


def training_scores(context: Context) -> np.ndarray:
    """Scores of the training texts, float32 (n, C): train's, gold labels where it has none, then the unlabelled's."""
    arrays = load_file(context.done["data"] / "scores.safetensors")
    train = with_gold(arrays["train"], split_of(context, "train").labels)
    return np.concatenate([train, arrays["unlabelled"]]) if "unlabelled" in arrays else train


def classification(context: Context) -> Classification:
    """The task of a run."""
    return Classification(labels_of(context), pair=split_of(context, "dev").pairs is not None)
