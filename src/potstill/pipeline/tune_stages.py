"""The stages that fine-tune on gold answers: the teacher, the hard-label baseline, the small pre-trained baseline.

Each function is a stage's work: it reads what earlier stages left and writes `model/` and `training.json`.
"""

import dataclasses
import shutil
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from transformers import PreTrainedModel

from potstill.data.encoding import TextEncoder
from potstill.data.examples import Examples, is_labelled
from potstill.data.sources import Source
from potstill.models.loading import longest_input, read_config
from potstill.models.teacher import load_classifier
from potstill.pipeline.budget import Budget
from potstill.pipeline.job import Job, is_trained, teacher_name
from potstill.pipeline.results import length_of, model_of, split_of, task_of
from potstill.pipeline.run import Context
from potstill.pipeline.task_job import TaskJob
from potstill.pipeline.teach import choose_length, dev_score, fine_tune, save_model, task_encoder
from potstill.storage import atomic_folder, read_json, write_json

__all__ = ["fine_tune_stage", "hard_labels_stage", "small_baseline_stage", "teacher_stage"]

BERT_GRID = tuple(product((16, 32), (5e-5, 3e-5, 2e-5), (2, 3, 4)))
"""Batch size, learning rate, epochs: Devlin et al., A.3."""


def teacher_stage(context: Context, job: Job, budget: Budget, number: int = 1) -> None:
    """Take a fine-tuned model as it is, or fine-tune an encoder; write its length and model.

    Of several teachers `number` says which, from 1.
    """
    source = job.teachers[number - 1]
    if not is_trained(job, source):
        fine_tune_stage(context, job, budget, source, stage=teacher_name(number), called="the teacher")
        return
    task, folder, order = task_of(context), source.paths[0], job.settings.teacher.same_label_order
    length = _length(context, job, folder, "the teacher")
    write_json(context.folder / "task.json", {"max_length": length, "trained_here": False})
    model = load_classifier(folder, task.labels, problem_type=task.problem_type, assume_order=order)
    save_model(model, context.folder / "model", folder)
    write_json(context.folder / "training.json", {})


def fine_tune_stage(
    context: Context, job: TaskJob, budget: Budget, source: Source, *, stage: str, called: str = "the model"
) -> None:
    """Fine-tune an encoder on the task: write its length, model and training facts.

    `stage` names its share of the budget, and `called` it in messages.
    """
    folder = source.paths[0]
    length = _length(context, job, folder, called)
    write_json(context.folder / "task.json", {"max_length": length, "trained_here": True})
    model, facts = _fine_tuned(context, job, budget, folder, length, stage=stage)
    save_model(model, context.folder / "model", folder)
    write_json(context.folder / "training.json", {"fine-tuning": facts})


def _length(context: Context, job: TaskJob, folder: Path, called: str) -> int:
    """Longest input of the model in `folder`, of which messages speak as `called`."""
    limit, wanted = longest_input(read_config(folder)), job.settings.data.max_length
    if (wanted or 0) > limit:
        context.report.warn(f"data.max_length = {wanted}: {called} reads {limit} tokens")
    return choose_length(job, TextEncoder.from_folder(folder, max_length=limit), split_of(context, "train"), limit)


def _fine_tuned(
    context: Context, job: TaskJob, budget: Budget, folder: Path, length: int, *, stage: str
) -> tuple[PreTrainedModel, dict[str, Any]]:
    """The encoder in `folder` with a head for the task, by the settings of tuning; of a grid, the best on dev."""
    task, settings = task_of(context), job.tuning
    train, dev, encoder = split_of(context, "train"), split_of(context, "dev"), task_encoder(job, folder, length)
    load = partial(load_classifier, labels=task.labels, problem_type=task.problem_type)
    own = {"warmup": settings.warmup, "weight_decay": settings.weight_decay}
    grid = BERT_GRID if settings.grid else ((settings.batch_size, settings.learning_rate, settings.epochs),)
    best = context.scratch / "best"
    for number, (batch_size, rate, epochs) in enumerate(grid):
        part = dataclasses.replace(context, scratch=context.scratch / f"cell-{number}")
        if (part.scratch / "done.json").is_file():
            continue
        part.scratch.mkdir(exist_ok=True)
        model = load(folder, new_head=True, answers=task.scale(train.labels), seed=job.settings.run.seed)
        hyper = {**own, "batch_size": batch_size, "learning_rate": rate}
        facts = fine_tune(
            part,
            job,
            model,
            encoder,
            train,
            dev,
            stage=stage,
            epochs=epochs,
            budget=budget,
            hyper=hyper,
            portion=1.0 / len(grid),
        )
        encodings = encoder.encode(dev.texts, dev.pairs)
        score = dev_score(task, model, encodings, dev.labels)()
        if len(grid) > 1:
            context.report.note(f"batch {batch_size}, rate {rate:g}, {epochs} epochs: {score:.4f} on dev")
        if not best.is_dir() or score > read_json(best / "facts.json")["score"]:
            with atomic_folder(best, {"cell": number}) as work:
                save_model(model, work / "model", folder)
                write_json(work / "facts.json", {"score": score, "facts": facts})
        # The checkpoints go, the mark stays: a resumed grid goes on with the next cell.
        shutil.rmtree(part.scratch)
        write_json(part.scratch / "done.json", {"score": score})
    return load(best / "model"), read_json(best / "facts.json")["facts"]


def hard_labels_stage(context: Context, job: Job, budget: Budget, *, start: str, student: str) -> None:
    """The same start, data and steps as the student's, with labels alone."""
    taught = read_json(context.done[student] / "training.json")
    last = list(taught.values())[-1]
    phase = job.recipe.phases[-1]
    model = model_of(context, context.done[start])
    encoder = task_encoder(job, context.done[start] / "model", length_of(context, start))
    examples, dev = Examples.read(context.done["augment"] / "train.arrow"), split_of(context, "dev")
    examples = examples.select(np.flatnonzero(is_labelled(examples.labels)))
    steps = sum(facts["steps"] for facts in taught.values())
    hyper = {
        "batch_size": last["batch_size"],
        "learning_rate": phase.rate(model.config.hidden_size),
        "warmup": phase.warmup,
        "weight_decay": job.recipe.weight_decay,
        "average": phase.average,
    }
    unlimited = Budget(None, 0.0, budget.used, {})
    facts = fine_tune(
        context,
        job,
        model,
        encoder,
        examples,
        dev,
        stage="hard-labels",
        steps=steps,
        budget=unlimited,
        hyper=hyper,
        dropout=phase.dropout,
        memory=job.settings.distill,
    )
    save_model(model, context.folder / "model", context.done[start] / "model")
    write_json(context.folder / "training.json", {"hard-labels": facts})


def small_baseline_stage(context: Context, job: Job, budget: Budget) -> None:
    """A small pre-trained model, fine-tuned as the teacher was (Turc et al., arXiv 1908.08962)."""
    assert job.baseline is not None
    folder = job.baseline.paths[0]
    model, facts = _fine_tuned(context, job, budget, folder, length_of(context), stage="small-baseline")
    save_model(model, context.folder / "model", folder)
    write_json(context.folder / "training.json", {"fine-tuning": facts})
