"""Pre-training: plain text in, an encoder with a trained head out, judged on text that it has not seen."""

import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer
from transformers import AutoModelForMaskedLM, PretrainedConfig, PreTrainedModel

from potstill import __version__
from potstill.config import PretrainSettings, write_settings
from potstill.data.batching import Batches
from potstill.data.encoding import TextEncoder
from potstill.data.masking import MaskRule, MaskVocabulary
from potstill.data.overlaps import place_of, text_keys, texts_without
from potstill.data.packing import open_packed, pack_texts
from potstill.data.sources import Source, resolve_data, resolve_model
from potstill.errors import DataError
from potstill.evaluation.cost import parameter_counts
from potstill.models.dropout import set_dropout
from potstill.models.loading import longest_input
from potstill.models.masked_lm import has_masked_lm_head, load_masked_lm
from potstill.models.student import Shape, random_student
from potstill.pipeline.assemble import environment
from potstill.pipeline.budget import Budget
from potstill.pipeline.inputs import check_texts, checked_model, model_facts, plain_texts, threads, weight_bytes
from potstill.pipeline.publish import publish_model
from potstill.pipeline.run import Context, Run, Stage, opened
from potstill.pipeline.teach import save_model
from potstill.pipeline.training import Conditions, phase_facts, run_training
from potstill.pretraining import HeldOut, MaskedLM, unigram
from potstill.progress import SILENT, Reporter
from potstill.storage import ensure_space, read_json, write_json
from potstill.training import Schedule

__all__ = ["pretrain"]

HELD_OUT_TOKENS = 300_000
"""Tokens judged on, at most: 45,000 guesses tell a loss to about 0.01."""
CURVE_TOKENS = 20_000
"""Tokens judged on at the points of the curve."""
MODEL_COPIES = 8
"""Copies of the model that a run may hold at once: weights, moments, two checkpoints, the result."""


@dataclass(frozen=True)
class _Job:
    """A checked run."""

    settings: PretrainSettings
    texts: tuple[Source, ...]
    held_out: Source | None
    model: Source
    config: PretrainedConfig
    rule: MaskRule

    @property
    def folder(self) -> Path:
        return self.model.paths[0]

    @property
    def conditions(self) -> Conditions:
        run = self.settings.run
        return Conditions(run.seed, self.settings.training.precision, 60 * run.checkpoint_minutes)

    @property
    def shape(self) -> Shape:
        own, wanted = Shape.of(self.config), self.settings.model.shape
        return own if wanted is None else Shape.under(wanted, self.config)

    @property
    def length(self) -> int:
        return min(self.settings.text.max_length, longest_input(self.config))

    def vocabulary(self) -> MaskVocabulary:
        return MaskVocabulary.of(Tokenizer.from_file(str(self.folder / "tokenizer.json")))


def pretrain(settings: PretrainSettings, report: Reporter = SILENT) -> dict[str, Any]:
    """Run, or go on with, a pre-training; returns the content of pretrain.json.

    The run folder `settings.run.out` then holds settings.toml, pretrain.json, model/ and stages/.

    Args:
        settings: See `potstill.config`.
        report: Receives stages, progress and warnings.

    Raises:
        InputError: Something given cannot be used; nothing was changed.
        LockHeld: Another process works in the folder.
        KeyboardInterrupt: After the state was saved; the same call goes on.
    """
    out = Path(settings.run.out)
    with opened(out, "text"):
        job = _prepare(settings, report)
        weights = weight_bytes(job.model)
        ensure_space(out, MODEL_COPIES * weights)
        torch.set_num_threads(threads(settings.run))
        run = Run(out, report)
        minutes = settings.run.budget
        seconds = None if minutes is None else 60 * minutes
        budget = Budget(seconds, 30.0 + weights / 2e6, lambda: sum(run.seconds.values()), {"pretrain": 1.0})
        for stage in _stages(job, budget):
            run.execute(stage)
            if stage.name == "text":
                write_settings(settings, out / "settings.toml")
        shutil.rmtree(out / "scratch", ignore_errors=True)
        made = _assemble(job, run)
        return publish_model(made, run.done["pretrain"] / "model", out, "pretrain.json", worked=run.worked)


def _prepare(settings: PretrainSettings, report: Reporter) -> _Job:
    text, masking = settings.text, settings.masking
    texts = tuple(resolve_data(name, report=report) for name in text.sources)
    check_texts(texts, "text.sources", report)
    held_out = None if text.held_out is None else resolve_data(text.held_out, report=report)
    if held_out is not None:
        check_texts([held_out], "text.held_out", report)
        if held_out.sha256 in [source.sha256 for source in texts]:
            raise DataError(
                f"text.held_out ({held_out.name}) is one of text.sources",
                expected="texts that are not learned from",
                fix="leave text.held_out out to have it cut from the sources",
            )
    model = resolve_model(settings.model.source, report=report)
    rule = MaskRule(masking.rate, masking.masked, masking.random, masking.whole_words)
    job = _Job(settings, texts, held_out, model, checked_model(model), rule)
    job.vocabulary()  # a tokenizer without a mask token is told now
    if text.max_length > job.length:
        report.warn(f"text.max_length = {text.max_length}: the model reads {job.length} tokens")
    return job


def _stages(job: _Job, budget: Budget) -> Sequence[Stage]:
    settings = job.settings
    seeded = {"seed": settings.run.seed, "threads": threads(settings.run)}
    masking, model = settings.masking.model_dump(mode="json"), {"model": job.model.sha256}
    sources = {"sources": [source.sha256 for source in job.texts], "held_out": job.held_out and job.held_out.sha256}
    text = settings.text.model_dump(mode="json", exclude={"sources", "held_out"})
    start = settings.model.model_dump(mode="json", exclude={"source"})
    training = {**settings.training.model_dump(mode="json"), "budget": settings.run.budget}
    return (
        Stage("text", {**text, **sources, **model}, (), partial(_text_stage, job=job), "reading and packing"),
        Stage(
            "pretrain",
            {**training, **start, **masking, **model, **seeded},
            ("text",),
            partial(_train_stage, job=job, budget=budget),
            f"{job.shape}, {settings.training.objective}",
            1.0,
        ),
        Stage(
            "held-out",
            {**masking, **model, **seeded},
            ("text", "pretrain"),
            partial(_held_out_stage, job=job),
            "judging on held-out text",
        ),
    )


def _text_stage(context: Context, job: _Job) -> None:
    """Windows to learn from and windows to judge by; no text stands in both."""
    settings = job.settings.text
    share = settings.held_out_share

    def learned() -> Iterator[str]:
        texts = plain_texts(job.texts, context.report)
        if job.held_out is None:
            return (text for text in texts if place_of(text) >= share)
        return texts_without(texts, text_keys(plain_texts([job.held_out], context.report)))

    def kept() -> Iterator[str]:
        if job.held_out is not None:
            return plain_texts([job.held_out], context.report)
        return (text for text in plain_texts(job.texts, context.report) if place_of(text) < share)

    for name, texts, most in (("held-out", kept, None), ("train", learned, settings.max_tokens)):
        context.report.stage("text", name.replace("-", " "))
        # In scratch, where a packing that was killed goes on; the stage's own folder is whole or absent.
        folder = context.scratch / name
        folder.mkdir(exist_ok=True)
        packed = pack_texts(
            texts(), TextEncoder.from_folder(job.folder, max_length=job.length), folder, max_tokens=most
        )
        if len(packed) == 0:
            raise DataError(
                f"no text is left {'to judge by' if name == 'held-out' else 'to learn from'}",
                expected="more text",
                fix="give more in text.sources, or another text.held_out_share",
            )
    for name in ("held-out", "train"):
        os.replace(context.scratch / name, context.folder / name)


def _program(context: Context, job: _Job, model: PreTrainedModel, part: str, *, tokens: int | None = None) -> MaskedLM:
    encodings = open_packed(context.done["text"] / part)
    ids = np.arange(len(encodings), dtype=np.int64)
    if tokens is not None and len(ids) * job.length > tokens:
        ids = np.linspace(0, len(ids) - 1, max(1, tokens // job.length)).astype(np.int64)
        encodings = encodings.select(ids)
    size = job.settings.training.batch_size
    batches = Batches(encodings, np.full(len(ids), -1), ids, size, job.settings.run.seed)
    return MaskedLM(model, batches, job.rule, job.vocabulary(), "held-out" if part == "held-out" else "train")


def _start(job: _Job) -> PreTrainedModel:
    if job.settings.model.start == "random":
        return random_student(job.config, job.shape, seed=job.settings.run.seed, kind=AutoModelForMaskedLM)
    return load_masked_lm(job.folder, seed=job.settings.run.seed)


def _train_stage(context: Context, job: _Job, budget: Budget) -> None:
    settings, model = job.settings.training, _start(job)
    set_dropout(model, on=settings.dropout)
    program = _program(context, job, model, "train")
    judged = _program(context, job, model, "held-out", tokens=CURVE_TOKENS)
    windows = len(program.data.encodings)
    trained = run_training(
        context,
        job.conditions,
        program,
        stage="pretrain",
        phase="masked",
        planned=settings.epochs * -(-windows // settings.batch_size),
        schedule=lambda steps: Schedule(steps, settings.learning_rate, warmup=settings.warmup),
        budget=budget,
        evaluate=lambda: HeldOut.of(judged).loss,
        weight_decay=settings.weight_decay,
        stretch=4.0,
    )
    save_model(model, context.folder / "model", job.folder)
    facts = phase_facts(trained, windows, settings.batch_size, [("masked", 1.0, 1.0)])
    write_json(context.folder / "training.json", facts)


def _held_out_stage(context: Context, job: _Job) -> None:
    """The loss on held-out text, in float32: of the model as it ends, and as it began where it had a head."""
    program = _program(
        context, job, load_masked_lm(context.done["pretrain"] / "model"), "held-out", tokens=HELD_OUT_TOKENS
    )
    entropy, share = unigram(program)
    found = {"after": vars(HeldOut.of(program, context.report)), "before": None}
    if job.settings.model.start == "weights" and has_masked_lm_head(job.folder):
        first = _program(context, job, load_masked_lm(job.folder), "held-out", tokens=HELD_OUT_TOKENS)
        found["before"] = vars(HeldOut.of(first, context.report))
    write_json(context.folder / "held-out.json", {**found, "unigram_entropy": entropy, "unigram_accuracy": share})


def _judged(facts: dict[str, Any] | None) -> dict[str, Any] | None:
    return None if facts is None else {**facts, "perplexity": float(np.exp(min(facts["loss"], 700.0)))}


def _cautions(training: dict[str, Any], found: dict[str, Any]) -> list[str]:
    """What speaks against the model, in sentences."""
    said = []
    if training["steps"] < training["planned"] / 2:
        said.append(
            f"the time allowed {training['steps']:,} of {training['planned']:,} steps: a longer budget would serve it"
        )
    if found["after"]["loss"] >= found["unigram_entropy"]:
        said.append("it guesses no better than by frequency alone: train it longer, on more text")
    elif found["before"] is not None and found["after"]["loss"] > found["before"]["loss"]:
        said.append("it guesses worse than before: lower training.learning_rate, or give it more text")
    return said


def _assemble(job: _Job, run: Run) -> dict[str, Any]:
    settings = job.settings
    found = read_json(run.done["held-out"] / "held-out.json")
    parts = {name: open_packed(run.done["text"] / name) for name in ("train", "held-out")}
    text = {
        name.replace("-", "_"): {"tokens": len(part.input_ids), "windows": len(part)} for name, part in parts.items()
    }
    sources = [*job.texts, *([job.held_out] if job.held_out is not None else [])]
    folder = run.done["pretrain"] / "model"
    return {
        "schema_version": 1,
        "potstill": __version__,
        "name": settings.run.name,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "objective": settings.training.objective,
        "model": {
            **model_facts(job.model),
            "start": settings.model.start,
            "shape": str(job.shape),
            "model_type": job.config.model_type,
            "parameters": parameter_counts(folder).total,
            "fresh_head": found["before"] is None,
        },
        "text": {
            **text,
            "window": job.length,
            "sources": [
                {"source": s.name, "sha256": s.sha256, "licence": s.licence, "origin": s.origin} for s in sources
            ],
        },
        "training": read_json(run.done["pretrain"] / "training.json"),
        "held_out": {
            **(_judged(found["after"]) or {}),
            "unigram_entropy": found["unigram_entropy"],
            "unigram_accuracy": found["unigram_accuracy"],
        },
        "before": _judged(found["before"]),
        "cautions": _cautions(read_json(run.done["pretrain"] / "training.json"), found),
        "seconds": {**run.seconds, "total": round(sum(run.seconds.values()), 3)},
        "environment": environment(threads(settings.run)),
        "settings": settings.model_dump(mode="json"),
    }
