"""What a report says of a teacher that is a file of scores: what it holds, and how often it is right."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from safetensors.numpy import load_file

from potstill.data.examples import Examples
from potstill.metrics import confusion_matrix
from potstill.pipeline.findings import ScoresFile
from potstill.pipeline.inputs import model_facts
from potstill.pipeline.job import Job
from potstill.pipeline.results import read_split
from potstill.report.wording import model_name

__all__ = ["has_gold", "scores_block", "start_in_words"]


class Measures(Protocol):
    """Scores of predictions, as the assembling of a report has them."""

    labels: tuple[str, ...]
    splits: dict[str, Examples]
    judged: str

    def measured(self, gold: np.ndarray, predictions: np.ndarray) -> dict[str, Any]:
        """Each metric, as a report holds it."""


def start_in_words(job: Job) -> str:
    """How the student started; where scores teach, from what."""
    if job.scores is None:
        return f"shrunk from {job.start.name}" if job.start is not None and job.side.cut else job.way
    name = model_name(job.teacher.name)
    return {"model": name, "random": f"random, as {name} is built"}.get(job.way, f"{job.way} from {name}")


def scores_block(teacher: ScoresFile, data: Path, measures: Measures) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The report's teacher, and its answers on the splits where they are complete and can be right or wrong.

    Args:
        teacher: The file.
        data: The data stage's folder.
        measures: Of the run.

    Returns:
        `teacher` of report.json, without a score where dev or test has no gold labels or no scores; and, by split,
        float32 (n, C).
    """
    arrays = load_file(data / "scores.safetensors")
    told = {split: has_gold(teacher, split) for split in ("train", *measures.splits)}
    found: dict[str, dict[str, Any]] = {}
    covered: dict[str, int] = {}
    for split in ("train", "dev", "test", "unlabelled"):
        examples = read_split(data, split)
        if examples is None:
            continue
        own = ~np.isnan(arrays[split][:, 0])
        covered[split] = int(own.sum())
        if told.get(split) and own.any():
            found[split] = measures.measured(examples.labels[own], arrays[split][own].argmax(axis=1))
    block: dict[str, Any] = {
        **{key: value for key, value in model_facts(teacher.source).items() if key != "sha256"},
        "scores": {
            "form": teacher.findings.form,
            "rows": teacher.findings.rows,
            "empty": teacher.findings.empty,
            "joined": dict(teacher.findings.joined),
            "covered": covered,
            "gold": {split: told[split] for split in ("train", *measures.splits)},
            "train": found.get("train"),
        },
    }
    complete = {
        split: arrays[split]
        for split, examples in measures.splits.items()
        if told[split] and covered[split] == len(examples)
    }
    return block | _judged(measures, found, complete), complete


def has_gold(teacher: ScoresFile, split: str) -> bool:
    """Whether a split has gold labels; one cut out of train has train's."""
    gold = teacher.findings.gold
    return gold.get(split, gold["train"])


def _judged(
    measures: Measures, found: Mapping[str, dict[str, Any]], complete: Mapping[str, np.ndarray]
) -> dict[str, Any]:
    block: dict[str, Any] = {"dev": found["dev"]} if "dev" in found else {}
    split = measures.judged
    if split in found:
        block |= {"score": found[split]["accuracy"], "metrics": found[split]}
    if split in complete:
        answers, labels = complete[split].argmax(axis=1), measures.splits[split].labels
        block["confusion"] = confusion_matrix(labels, answers, len(measures.labels)).tolist()
    return block
