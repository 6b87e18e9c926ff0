"""How a student's teacher is heard: run on each batch, or read from its cache; decided before the first step, once.

A cache is kept below `POTSTILL_CACHE`, so that another seed, another student or another method that reads the same
never runs the teacher again.
"""

import contextlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
from transformers import PreTrainedModel

from potstill.data.encoding import Encodings, TextEncoder
from potstill.data.sources import teacher_cache_folder
from potstill.data.tables import read_table
from potstill.errors import SettingsError, StorageError
from potstill.models.anatomy import encoder_parts
from potstill.models.cache_room import free_bytes, held_folder, kept_folders, make_room
from potstill.models.loading import read_config
from potstill.models.precision import training_dtype
from potstill.models.student import Shape
from potstill.models.teacher_cache import LOGITS, TeacherCache, cache_key, is_bias, state_bytes
from potstill.pipeline.assistants import assistant_phases, kept_layers
from potstill.pipeline.budget import Budget
from potstill.pipeline.job import Job
from potstill.pipeline.prepare import blank_columns
from potstill.pipeline.run import Context
from potstill.recipes import build_terms
from potstill.recipes.cached import CachedGuide, fields_of, padding_read
from potstill.recipes.guidance import Guide, LiveGuide
from potstill.storage import digest, read_json, read_manifest, write_json
from potstill.training import LossTerm

__all__ = ["Heard", "cache_notes", "check_cache", "expected", "heard", "rows_and_tokens"]

PAYS_FROM = 1.5
"""Epochs from which a cache is filled where the settings leave it open (benchmarks/teacher_cache.py)."""

_OF_BUDGET = 1 / 3
"""Of a training's time, under a budget, what filling may take where the settings leave it open."""

_OF_DISK = 0.5
"""Of the free disk, what a cache may take where the settings leave it open."""


@dataclass(frozen=True)
class Heard:
    """A guide, and what it took.

    Attributes:
        guide: The teacher's side, on the windows that it reads.
        seconds: Spent on filling the cache.
        cached: Whether the teacher is run no more.
    """

    guide: Guide
    seconds: float
    cached: bool


@contextlib.contextmanager
def heard(
    context: Context,
    job: Job,
    budget: Budget,
    teacher: PreTrainedModel,
    terms: Sequence[LossTerm],
    encodings: Encodings,
    *,
    stage: str,
    phase: str,
    above: str,
    epochs: float,
    portion: float = 1.0,
    logits: np.ndarray | None = None,
    teacher_ids: np.ndarray | None = None,
) -> Iterator[Heard]:
    """The teacher's side for a phase; its cache, where it has one, is filled, verified and held while the block lasts.

    Args:
        context: Of the stage; its scratch keeps what was decided.
        job: The run.
        budget: Of the run.
        teacher: The model above the student.
        terms: What is learned.
        encodings: The windows that the teacher reads.
        stage: Its name.
        phase: Its name.
        above: The stage whose model `teacher` is.
        epochs: Planned.
        portion: Of the stage's share of a budget.
        logits: As in `LiveGuide`.
        teacher_ids: The same.

    Raises:
        StorageError: `teacher.cache` asks for states and they do not fit.
    """
    live = LiveGuide(teacher, terms, encodings, logits=logits, teacher_ids=teacher_ids)
    biased = live.states is not None and live.states.biased
    fields = fields_of(terms, biased=biased, logits=logits is None or bool(np.isnan(logits).any()))
    folder = teacher_cache_folder() / cache_key(_model_digest(context.done[above]), teacher.dtype)
    cache = TeacherCache(folder, encodings, fields, teacher_ids)
    file = context.scratch / f"{phase}-cache.json"
    if file.is_file():
        kept = read_json(file)
    else:
        cached = _is_wanted(job, terms, fields, epochs)
        if cached and job.settings.teacher.cache == "auto" and _by_text(teacher, fields):
            cached = False
        cached = cached and _has_room(context, job, cache, teacher, budget.seconds_for(stage, portion))
        kept = {"cached": cached, "seconds": 0.0}
        write_json(file, kept)
    if not kept["cached"]:
        yield Heard(live, 0.0, cached=False)
        return
    live.close()
    with held_folder(folder, f"{Shape.of(teacher.config)}, the {above} of {job.settings.run.name}"):
        context.report.note(f"{phase}: what the teacher says is kept in {folder} ({', '.join(fields)})")
        started = time.monotonic()
        try:
            cache.fill(teacher, report=context.report)
        finally:
            kept["seconds"] += time.monotonic() - started
            write_json(file, kept)
        yield Heard(CachedGuide(teacher, cache, logits), kept["seconds"], cached=True)


def _by_text(teacher: PreTrainedModel, fields: Sequence[str]) -> bool:
    """Whether a bias of the scores is read that differs from text to text (DeBERTa's): it is not kept."""
    return any(map(is_bias, fields)) and encoder_parts(teacher).relative_embeddings is not None


def _model_digest(folder: Path) -> str:
    """SHA-256 of the weights and config that a stage left."""
    manifest = read_manifest(folder)
    files = {} if manifest is None else manifest["files"]
    return digest(
        {n: sha for n, sha in files.items() if n == "model/config.json" or Path(n).match("model/*.safetensors")}
    )


def _is_wanted(job: Job, terms: Sequence[LossTerm], fields: Sequence[str], epochs: float) -> bool:
    chosen, states = job.settings.teacher.cache, any(field != LOGITS for field in fields)
    match chosen:
        case "auto":
            return bool(fields) and epochs >= PAYS_FROM and padding_read(terms) is None
        case "logits":
            return bool(fields) and not states
        case "states":
            return bool(fields) and padding_read(terms) is None
        case "none":
            return False


def _has_room(context: Context, job: Job, cache: TeacherCache, teacher: PreTrainedModel, seconds: float | None) -> bool:
    """Whether disk and time allow what is lacking; `StorageError` where the settings insist and the disk does not."""
    tokens, windows = cache.lacking()
    width, labels = int(teacher.config.hidden_size), int(teacher.config.num_labels or 0)
    needed = state_bytes(tokens, windows, width, cache.fields, labels, teacher.dtype)
    free, is_open = free_bytes(cache.folder), job.settings.teacher.cache == "auto"
    declined = ""
    if is_open and needed > _OF_DISK * free:
        declined = f"{_size(needed)} are more than half of the {_size(free)} free"
    elif is_open and seconds is not None and (takes := cache.seconds_lacking(teacher)) > _OF_BUDGET * seconds:
        declined = f"reading all texts would take {takes / 60:.1f} of the {seconds / 60:.1f} minutes"
    elif not make_room(cache.folder, needed, _most(job)):
        declined = f"{_size(needed)} do not fit: {_limits(job, cache.folder.parent)}"
    if declined and not is_open:
        raise _no_room(job, declined, cache.folder.parent)
    said = f"the teacher is run on every batch: {declined} (teacher.cache)"
    context.report.note(said if declined else f"the teacher's cache takes {_size(needed)} more")
    return not declined


def _size(count: int) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"


def check_cache(job: Job) -> None:
    """Raise where `teacher.cache` asks for what cannot be kept, before any work.

    Raises:
        SettingsError: States, of a method that averages over padding.
        StorageError: States that take more than `teacher.cache_gb` or the disk has; only about, for texts are counted
            from a sample.
    """
    if job.settings.teacher.cache != "states":
        return
    terms = [term for phase in job.recipe.phases for term in phase.terms if term.weight]
    if (name := padding_read(terms)) is not None:
        raise SettingsError(
            f"teacher.cache = states with distill.mode = {job.recipe.name}: its {name} loss averages over padding too, "
            "of which nothing is kept",
            expected='"auto", "logits" or "none"',
            fix="leave teacher.cache out",
        )
    needed = sum(size for _, _, size in expected(job, *rows_and_tokens(job)))
    root = teacher_cache_folder()
    own = sum(kept.size for kept in kept_folders(root))
    if needed > _most(job) or needed > free_bytes(root) + own:
        raise _no_room(job, f"about {_size(needed)} do not fit: {_limits(job, root)}", root)


def _no_room(job: Job, why: str, root: Path) -> StorageError:
    return StorageError(
        f"teacher.cache = {job.settings.teacher.cache}: {why}",
        expected=f"room in {root}",
        fix="free space, raise teacher.cache_gb, let POTSTILL_CACHE name a larger disk, or leave teacher.cache out",
    )


def _limits(job: Job, root: Path) -> str:
    return f"{_size(free_bytes(root))} are free, teacher.cache_gb = {job.settings.teacher.cache_gb:g}"


def _most(job: Job) -> int:
    return int(job.settings.teacher.cache_gb * 1e9)


def rows_and_tokens(job: Job, reader: Path | None = None) -> tuple[int, float]:
    """Rows of the training file, and their mean length in the tokens of the model in `reader`, by a sample.

    Of pairs both sides count; `reader` None means the teacher.

    Raises:
        DataError: A column that is needed is not there.
    """
    source = job.data["train"]
    needed = [name for name in (job.columns.text, job.columns.pair) if name is not None]
    if job.scores is None:
        needed.append(job.columns.label)
    form = job.settings.data.format or source.format
    data = job.settings.data
    blank = blank_columns(data, job.columns)
    table = read_table(source.paths, format=form, columns=needed, blank=blank, header=data.header)
    every = slice(None, None, max(1, len(table) // 500))
    sides = [
        [text or "" for text in table.column(name)[every]]
        for name in (job.columns.text, job.columns.pair)
        if name is not None
    ]
    limit = job.settings.data.max_length or 128
    encoded = TextEncoder.from_folder(reader or job.teacher.paths[0], max_length=limit).encode(*sides)
    return min(len(table), job.settings.data.rows or len(table)), float(np.mean(encoded.lengths))


def expected(job: Job, rows: int, tokens: float) -> list[tuple[Shape, list[str], int]]:
    """What will be cached of each model that teaches another, and about how many bytes that takes.

    Args:
        job: The run.
        rows: As by `rows_and_tokens`.
        tokens: The same.
    """
    if job.scores is not None:
        return []
    every = job.augmenting.texts(rows, pairs=job.columns.pair is not None)
    dtype = training_dtype(job.settings.distill.precision)
    found = list[tuple[Shape, list[str], float]]()
    chain = [Shape.of(job.config), *job.assistants, job.shape]
    for number, (above, below) in enumerate(pairwise(chain)):
        fields: list[str] = []
        assists = number < len(job.assistants)
        for phase in assistant_phases(job.recipe) if assists else job.recipe.phases:
            terms = build_terms(
                phase,
                student=below.layers,
                teacher=above.layers,
                mapping=job.settings.distill.mapping,
                layers=kept_layers(below, above) if assists else job.layers,
                equal_heads=below.heads == above.heads,
            )
            own = fields_of(
                terms, biased=False, logits=not job.assistants or (job.augmenting.copies > 0 and not job.more)
            )
            epochs = phase.epochs or phase.examples / max(1, every)
            fields += own if _is_wanted(job, terms, own, epochs) else []
        found.append((above, list(dict.fromkeys(fields)), tokens))
    for source in job.heard_further:
        shape, fields = Shape.of(read_config(source.paths[0])), []
        for phase in job.recipe.phases:
            terms = build_terms(
                phase, student=job.shape.layers, teacher=shape.layers, mapping=job.settings.distill.mapping
            )
            own = fields_of([term for term in terms if term.reads == "hidden"], biased=False)
            epochs = phase.epochs or phase.examples / max(1, every)
            fields += own if _is_wanted(job, terms, own, epochs) else []
        found.append((shape, list(dict.fromkeys(fields)), rows_and_tokens(job, source.paths[0])[1]))
    return [
        (shape, fields, state_bytes(int(every * length), every, shape.hidden, fields, 2, dtype))
        for shape, fields, length in found
        if fields
    ]


def cache_notes(job: Job, rows: int, tokens: float) -> list[str]:
    """What the caches of a run will take, about: a line for each, for the plan; arguments as of `expected`."""
    root = teacher_cache_folder()
    return [
        f"teacher.cache: {', '.join(fields)} of {above}, about {_size(size)} in {root} ({_limits(job, root)})"
        for above, fields, size in expected(job, rows, tokens)
    ]
