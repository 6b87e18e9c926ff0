"""Fine-tuning: an encoder and labelled data in, a model that answers out, judged on dev and test."""

import shutil
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors.numpy import load_file
from transformers import PretrainedConfig

from potstill import __version__
from potstill.config import FinetuneSettings, FinetuneTraining, write_settings
from potstill.data.parts import Columns
from potstill.data.sources import Source, resolve_model
from potstill.errors import GateRefused
from potstill.metrics import Metric
from potstill.models.student import Shape
from potstill.pipeline.assemble import environment, model_block
from potstill.pipeline.budget import Budget
from potstill.pipeline.gate import Standing, standing
from potstill.pipeline.inputs import check_windows, checked_model, labelled_data, model_facts, threads, weight_bytes
from potstill.pipeline.judge import fitted_task, score_stage, write_potstill_json
from potstill.pipeline.prepare import source_rows, split_data
from potstill.pipeline.publish import publish_model
from potstill.pipeline.results import length_of, read_split, task_facts, task_in
from potstill.pipeline.run import OF_DISTILLATION, OF_FINE_TUNING, Context, Run, Stage, opened
from potstill.pipeline.training import Conditions
from potstill.pipeline.tune_stages import fine_tune_stage
from potstill.progress import SILENT, Reporter
from potstill.storage import ensure_space, read_json

__all__ = ["finetune"]

MODEL_COPIES = 8
"""Copies of the model that a run may hold at once: weights, moments, checkpoints, the best of a grid, the result."""

(STAGE,) = OF_FINE_TUNING


@dataclass(frozen=True)
class _Job:
    """A checked run; a `TaskJob`."""

    settings: FinetuneSettings
    data: dict[str, Source]
    columns: Columns
    model: Source
    config: PretrainedConfig
    unlabelled: tuple[Source, ...] = ()

    @property
    def sources(self) -> tuple[tuple[str, Source], ...]:
        return tuple(self.data.items())

    @property
    def tuning(self) -> FinetuneTraining:
        return self.settings.training

    @property
    def conditions(self) -> Conditions:
        run = self.settings.run
        return Conditions(run.seed, self.settings.training.precision, 60 * run.checkpoint_minutes)


def finetune(settings: FinetuneSettings, report: Reporter = SILENT) -> dict[str, Any]:
    """Run, or go on with, a fine-tuning; returns the content of finetune.json.

    The run folder `settings.run.out` then holds settings.toml, finetune.json, model/ and stages/.

    Args:
        settings: See `potstill.config`.
        report: Receives stages, progress and warnings.

    Raises:
        InputError: Something given cannot be used; nothing was changed.
        GateRefused: The model is hardly better than one answer for all texts; it is there, and finetune.json says so.
        LockHeld: Another process works in the folder.
        KeyboardInterrupt: After the state was saved; the same call goes on.
    """
    out = Path(settings.run.out)
    with opened(out, "data", others=OF_DISTILLATION):
        job = _prepare(settings, report)
        weights = weight_bytes(job.model)
        ensure_space(out, MODEL_COPIES * weights)
        torch.set_num_threads(threads(settings.run))
        run = Run(out, report)
        minutes = settings.run.budget
        seconds = None if minutes is None else 60 * minutes
        budget = Budget(seconds, 15.0 + weights / 4e6, lambda: sum(run.seconds.values()), {STAGE: 1.0})
        for stage in _stages(job, budget):
            run.execute(stage)
            if stage.name == "data":
                write_settings(settings, out / "settings.toml")
        shutil.rmtree(out / "scratch", ignore_errors=True)
        made, stands = _assemble(job, run)
        made = publish_model(made, run.done[STAGE] / "model", out, "finetune.json", worked=run.worked)
    if not stands.passed:
        raise GateRefused(stands.line, expected=stands.expected, fix=_fix(made))
    report.note(stands.line)
    return made


def _prepare(settings: FinetuneSettings, report: Reporter) -> _Job:
    data, columns = labelled_data(settings.data, report)
    model = resolve_model(settings.model.source, report=report)
    config = checked_model(model)
    check_windows(settings.data, model, config)
    return _Job(settings, data, columns, model, config)


def _stages(job: _Job, budget: Budget) -> tuple[Stage, ...]:
    settings = job.settings
    cut = settings.data.model_dump(mode="json", exclude={"train", "dev", "test", "unlabelled", "max_length"})
    inputs = {role: source.sha256 for role, source in job.data.items()}
    seeded = {"seed": settings.run.seed, "threads": threads(settings.run)}
    training = {**settings.training.model_dump(mode="json"), "budget": settings.run.budget, **seeded}
    return (
        Stage(
            "data",
            {**cut, "columns": vars(job.columns), "inputs": inputs},
            (),
            partial(split_data, job=job),
            "reading, checking and splitting",
        ),
        Stage(
            STAGE,
            {**training, "model": job.model.sha256, "max_length": settings.data.max_length},
            ("data",),
            partial(_tune, job=job, budget=budget),
            f"{job.model.name}, {Shape.of(job.config)}",
            1.0,
        ),
        Stage(
            "score",
            {},
            ("data", STAGE),
            partial(score_stage, job=job, models={"model": STAGE}, counted="model"),
            "the model on dev and test",
        ),
    )


def _tune(context: Context, job: _Job, budget: Budget) -> None:
    """The fine-tuning of a teacher, and beside the model what `predict` needs to know of it."""
    fine_tune_stage(context, job, budget, job.model, stage=STAGE)
    folder, length = context.folder / "model", int(read_json(context.folder / "task.json")["max_length"])
    write_potstill_json(
        job, folder, length, {"model": model_facts(job.model)}, fitted_task(context, job, folder, length)
    )


def _assemble(job: _Job, run: Run) -> tuple[dict[str, Any], Standing]:
    """The result, and how the model stands on dev; no model is run."""
    settings, facts = job.settings, task_facts(run.done["data"])
    logits = load_file(run.done["score"] / "logits.safetensors")
    dev = read_split(run.done["data"], "dev")
    assert dev is not None
    task = task_in(run.done["data"]).fitted(dev.labels, logits["model/dev"])
    metrics: dict[str, dict[str, Metric]] = {}
    for split in ("dev", "test"):
        if (examples := read_split(run.done["data"], split)) is not None:
            predictions = task.predictions(logits[f"model/{split}"])
            metrics[split] = task.metrics(examples.labels, predictions, seed=settings.run.seed)
    stands = standing(task, metrics["dev"], dev.labels, "the model")
    context = Context(run.out, run.out, run.done, run.report)
    folder = run.done[STAGE] / "model"
    made = {
        "schema_version": 1,
        "potstill": __version__,
        "name": settings.run.name,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "status": "complete" if stands.passed else "refused",
        "refused_because": None if stands.passed else stands.line,
        "task": {
            "kind": task.kind,
            "labels": list(task.labels),
            "primary_metric": task.primary_metric,
            "pair": task.pair,
        },
        "model": {
            **model_facts(job.model),
            **model_block(folder),
            "max_length": length_of(context, STAGE),
            **task.tuned,
        },
        "data": {**facts["facts"], **facts["notes"], "sources": source_rows(job)}
        | read_json(run.done["score"] / "counts.json"),
        "training": read_json(run.done[STAGE] / "training.json")["fine-tuning"],
        "judged_on": "test" if "test" in metrics else "dev",
        "metrics": {
            split: {name: metric.as_dict() for name, metric in found.items()} for split, found in metrics.items()
        },
        "seconds": {**run.seconds, "total": round(sum(run.seconds.values()), 3)},
        "environment": environment(threads(settings.run)),
        "settings": settings.model_dump(mode="json"),
    }
    return made, stands


def _fix(made: dict[str, Any]) -> str:
    """What to do about a model that learned little."""
    training, budget = made["training"], made["settings"]["run"]["budget"]
    if budget is not None and training["steps"] < training["planned"]:
        return (
            f"the budget of {budget:g} minutes left it {training['steps']:,} of {training['planned']:,} steps: allow "
            "more"
        )
    return (
        "train longer (training.epochs) or at another training.learning_rate, check that the texts decide the "
        "answers, or give more dev rows to tell by"
    )
