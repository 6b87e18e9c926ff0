"""The result of an ablation: what each cell left, compared with the full recipe; ablation.json and its page."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file

from potstill import __version__
from potstill.config import AblateSettings
from potstill.errors import StorageError
from potstill.models.student import Shape
from potstill.pipeline.assemble import environment
from potstill.pipeline.cells import FULL, Cell
from potstill.pipeline.inputs import model_facts, threads
from potstill.pipeline.job import Job
from potstill.pipeline.results import read_split, task_facts, task_in
from potstill.pipeline.run import Run
from potstill.report.ablation import render_ablation
from potstill.report.wording import clean
from potstill.storage import read_json, write_bytes, write_json
from potstill.tasks import Task

__all__ = ["Refusal", "Trial", "read_trial", "result_of", "write_result"]


@dataclass(frozen=True)
class Refusal:
    """A cell that cannot be run, and why."""

    cell: str
    reason: str


@dataclass(frozen=True)
class Trial:
    """A cell under one seed.

    Attributes:
        cell, seed: Which.
        predictions: Split → (n,), as `Task.metrics` judges them.
        dev: The primary metric at the last point of the training's curve.
        steps, planned: Steps taken, and those of the recipe's epochs, over all phases.
        seconds: Of training.
    """

    cell: str
    seed: int
    predictions: dict[str, np.ndarray]
    dev: float
    steps: int
    planned: int
    seconds: float


def read_trial(cell: str, seed: int, folder: Path, task: Task, dev: np.ndarray) -> Trial:
    """What a cell left in the folder of its last stage; `dev`: the gold answers of dev."""
    logits = load_file(folder / "logits.safetensors")
    phases = list(read_json(folder / "training.json").values())
    fitted = task.fitted(dev, logits["student/dev"])
    predictions = {name.removeprefix("student/"): fitted.predictions(array) for name, array in logits.items()}
    total = {key: sum(phase[key] for phase in phases) for key in ("steps", "planned", "seconds")}
    return Trial(
        cell,
        seed,
        predictions,
        phases[-1]["curve"][-1]["dev"],
        int(total["steps"]),
        int(total["planned"]),
        float(total["seconds"]),
    )


class _Scores:
    """Scores of trials on the splits."""

    def __init__(self, settings: AblateSettings, data: Path) -> None:
        self.task = task_in(data)
        self.metric = self.task.primary_metric
        found = {name: read_split(data, name) for name in ("dev", "test")}
        self.gold = {name: examples.labels for name, examples in found.items() if examples is not None}
        self.resamples, self.seed = settings.evaluate.resamples, settings.run.seed

    def value(self, trial: Trial, split: str) -> float | None:
        """Of one trial."""
        if split not in self.gold:
            return None
        return self.task.score(self.gold[split], trial.predictions[split])

    def mean(self, trials: Sequence[Trial], split: str) -> dict[str, Any] | None:
        """Over the seeds; None where there is no such split."""
        if split not in self.gold:
            return None
        return self._over_seeds(split, trials, ())

    def difference(self, trials: Sequence[Trial], full: Sequence[Trial], split: str) -> dict[str, Any] | None:
        """From the full recipe, over the seeds that both have."""
        if split not in self.gold:
            return None
        theirs = {trial.seed: trial for trial in full}
        both = [(trial, theirs[trial.seed]) for trial in trials if trial.seed in theirs]
        return self._over_seeds(split, [trial for trial, _ in both], [other for _, other in both])

    def _over_seeds(self, split: str, ours: Sequence[Trial], theirs: Sequence[Trial]) -> dict[str, Any]:
        answers = [trial.predictions[split] for trial in (*ours, *theirs)]
        found = self.task.resampled(self.gold[split], answers, resamples=self.resamples, seed=self.seed)
        return found.over_seeds(self.metric, len(ours), seed=self.seed).as_dict()


def result_of(
    settings: AblateSettings,
    job: Job,
    cells: Sequence[Cell],
    trials: Sequence[Trial],
    refused: Sequence[Refusal],
    shared: Run,
) -> dict[str, Any]:
    """The content of ablation.json."""
    data = shared.done["data"]
    scores, facts = _Scores(settings, data), task_facts(data)
    reasons = {refusal.cell: refusal.reason for refusal in refused}
    teacher = read_json(shared.done["teacher-check"] / "dev.json")[scores.metric]
    seeds = sorted({trial.seed for trial in trials}, key=[trial.seed for trial in trials].index)
    return {
        "schema_version": 1,
        "potstill": __version__,
        "name": settings.run.name,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "complete": len(seeds) == settings.ablate.seeds,
        "recipe": job.recipe.name,
        "task": {
            "kind": scores.task.kind,
            "labels": list(scores.task.labels),
            "primary_metric": scores.metric,
            "pair": job.columns.pair is not None,
        },
        "data": {name: facts["facts"][name] for name in ("train", "dev", "test")},
        "teacher": {**model_facts(job.teacher), "shape": str(Shape.of(job.config)), "dev": teacher},
        "student": {"shape": str(job.shape), "start": job.way},
        "seeds": seeds,
        "minutes": settings.ablate.minutes,
        "steps": settings.ablate.steps,
        "cells": [_row(cell, trials, reasons.get(cell.name), scores) for cell in cells],
        "paper": {
            "title": "TinyBERT: Distilling BERT for Natural Language Understanding",
            "arxiv": "1909.10351",
            "what": "average dev score of a 4x312 student over MNLI-m, MNLI-mm, MRPC and CoLA",
        },
        "environment": environment(threads(settings.run)),
        "settings": settings.model_dump(mode="json"),
    }


def _row(cell: Cell, trials: Sequence[Trial], reason: str | None, scores: _Scores) -> dict[str, Any]:
    paper = cell.paper
    row: dict[str, Any] = {
        "name": cell.name,
        "title": cell.title,
        "group": cell.group,
        "changes": json.loads(json.dumps(dict(cell.changes))),
        "paper": None
        if paper is None
        else {"table": paper.table, "name": paper.name, "average": paper.average, "difference": paper.difference},
        "refused": reason,
        "seeds": [],
        **dict.fromkeys(("dev", "test", "difference", "test_difference", "steps", "seconds")),
    }
    own = [trial for trial in trials if trial.cell == cell.name]
    if reason is not None or not own:
        return row
    full = None if cell.name == FULL else [trial for trial in trials if trial.cell == FULL]
    return row | {
        "seeds": [
            {
                "seed": trial.seed,
                "dev": scores.value(trial, "dev"),
                "test": scores.value(trial, "test"),
                "steps": trial.steps,
                "planned": trial.planned,
                "seconds": round(trial.seconds, 3),
            }
            for trial in own
        ],
        "dev": scores.mean(own, "dev"),
        "test": scores.mean(own, "test"),
        "difference": None if full is None else scores.difference(own, full, "dev"),
        "test_difference": None if full is None else scores.difference(own, full, "test"),
        "steps": round(float(np.mean([trial.steps for trial in own])), 1),
        "seconds": round(float(np.mean([trial.seconds for trial in own])), 3),
    }


def write_result(made: dict[str, Any], out: Path) -> dict[str, Any]:
    """Write ablation.json and ablation.html, unless they say the same already; returns what ablation.json holds."""
    cleaned: dict[str, Any] = json.loads(json.dumps(clean(made)))
    try:
        before = read_json(out / "ablation.json")
    except StorageError:
        before = None
    if isinstance(before, dict) and {**before, "created": None} == {**cleaned, "created": None}:
        if (out / "ablation.html").is_file():
            return before
        cleaned = before
    page = render_ablation(cleaned)
    write_json(out / "ablation.json", cleaned)
    write_bytes(out / "ablation.html", page.encode())
    return cleaned
