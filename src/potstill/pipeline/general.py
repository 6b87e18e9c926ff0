"""General distillation: plain text, the teacher *before* fine-tuning, states only (TinyBERT's first pass)."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
from safetensors.torch import save_file

from potstill.data.encoding import Encodings, TextEncoder
from potstill.data.schema import evaluation_keys, texts_without
from potstill.errors import DataError
from potstill.models.precision import held
from potstill.models.student import Shape
from potstill.models.teacher import load_classifier, longest_input, read_config
from potstill.pipeline.budget import Budget
from potstill.pipeline.distil_stages import distilling_projections
from potstill.pipeline.job import Job, plain_texts
from potstill.pipeline.results import read_split, task_facts
from potstill.pipeline.run import Context
from potstill.pipeline.teach import phase_facts, run_training, save_model, set_dropout
from potstill.recipes import build_terms
from potstill.recipes.programs import Batches, Distilling
from potstill.storage import write_json
from potstill.training import Schedule

__all__ = ["general_stage"]

_TEXTS_AT_ONCE = 4096


def general_stage(context: Context, job: Job, budget: Budget) -> None:
    """Distil the student from the un-fine-tuned teacher on plain text, packed into windows of one length.

    Texts that stand in dev or test are left out.
    """
    settings = job.settings.general
    labels = tuple(task_facts(context.done["data"])["labels"])
    precision = job.settings.distill.precision
    source = job.teacher.paths[0]
    student = load_classifier(context.done["start"] / "model", labels)
    # States alone are learned: whatever head the checkpoint has, and for which labels, plays no part.
    teacher = held(load_classifier(source, labels, new_head=True), precision)
    teacher.requires_grad_(requires_grad=False)
    own = job.recipe.general
    phase = replace(
        own,
        epochs=settings.epochs or own.epochs,
        batch_size=settings.batch_size or own.batch_size,
        learning_rate=settings.learning_rate or own.learning_rate,
    )
    set_dropout(student, on=phase.dropout)
    encodings = _packed(context, job, source)
    projections = distilling_projections(job, [phase], student, teacher, context.done["start"])
    terms = build_terms(
        phase,
        student=Shape.of(student.config).layers,
        teacher=Shape.of(teacher.config).layers,
        mapping=job.settings.distill.mapping,
        temperature=1.0,
        layers=job.layers,
    )
    ids = np.arange(len(encodings), dtype=np.int64)
    batches = Batches(encodings, np.full(len(encodings), -1), ids, phase.batch_size, job.settings.run.seed)
    program = Distilling(student, teacher, terms, projections, batches)
    try:
        result, schedule = run_training(
            context,
            job,
            program,
            stage="general",
            phase="general",
            planned=(phase.epochs or 1) * -(-len(encodings) // phase.batch_size),
            schedule=lambda steps: Schedule(steps, phase.learning_rate, warmup=phase.warmup, decay=phase.decay),
            budget=budget,
            weight_decay=job.recipe.weight_decay,
            clip=job.recipe.clip,
        )
    finally:
        program.close()
    save_model(student, context.folder / "model", context.done["start"] / "model")
    tensors = {name: tensor.float().contiguous() for name, tensor in projections.state_dict().items()}
    if tensors:
        save_file(tensors, context.folder / "projections.safetensors")
    named = [(term.name, term.weight, term.temperature) for term in terms]
    facts = phase_facts(result, schedule, len(encodings), phase.batch_size, named)
    write_json(context.folder / "training.json", {"general": facts})


def _packed(context: Context, job: Job, folder: Path) -> Encodings:
    """Texts joined and cut into windows of `general.max_length` tokens, each between the tokenizer's special tokens."""
    settings = job.settings.general
    length = min(settings.max_length, longest_input(read_config(folder)))
    encoder = TextEncoder.from_folder(folder, max_length=length)
    before, after = _frame(encoder)
    room = length - len(before) - len(after)
    kept = evaluation_keys(*(read_split(context.done["data"], name) for name in ("dev", "test")))
    pieces: list[np.ndarray] = []
    rest = np.zeros(0, dtype=np.int32)
    total = 0
    for chunk in _chunks(texts_without(plain_texts(job.texts, context.report), kept)):
        encoded = encoder.tokenizer.encode_batch(chunk, add_special_tokens=False)
        tokens = np.concatenate([rest, *(np.array(e.ids, dtype=np.int32) for e in encoded)])
        whole = len(tokens) // room
        pieces.append(tokens[: whole * room].reshape(whole, room))
        rest = tokens[whole * room :]
        total += whole * room
        context.report.progress(total, settings.max_tokens or total)
        if settings.max_tokens is not None and total >= settings.max_tokens:
            break
    rows = np.concatenate(pieces) if pieces else np.zeros((0, room), dtype=np.int32)
    if settings.max_tokens is not None:
        rows = rows[: -(-settings.max_tokens // room)]
    if len(rows) == 0:
        if len(rest) == 0:
            raise DataError("general.texts hold no text once those of dev and test are out", expected="plain text")
        rows = rest[None, :room]
    count = len(rows)
    framed = np.concatenate([np.tile(before, (count, 1)), rows, np.tile(after, (count, 1))], axis=1).astype(np.int32)
    starts = np.arange(count + 1, dtype=np.int64) * framed.shape[1]
    kinds = np.zeros(framed.size, dtype=np.int8)
    example = np.arange(count, dtype=np.int64)
    return Encodings(framed.ravel(), kinds, starts, example, 0, 0, encoder.pad_token_id)


def _frame(encoder: TextEncoder) -> tuple[np.ndarray, np.ndarray]:
    """Special tokens before and after a single text."""
    encoding = encoder.tokenizer.encode("a")
    special = np.array(encoding.special_tokens_mask, dtype=bool)
    inside = np.flatnonzero(~special)
    ids = np.array(encoding.ids, dtype=np.int32)
    return ids[: inside[0]], ids[inside[-1] + 1 :]


def _chunks(texts: Iterator[str]) -> Iterator[list[str]]:
    chunk: list[str] = []
    for text in texts:
        chunk.append(text)
        if len(chunk) == _TEXTS_AT_ONCE:
            yield chunk
            chunk = []
    if chunk:
        yield chunk
