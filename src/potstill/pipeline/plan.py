"""What a run would do: stages, sizes, time, disk, without doing any of it."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from potstill.config import Settings
from potstill.evaluation.cost import ParameterCounts, parameter_counts
from potstill.models.loading import read_config
from potstill.models.student import Shape, encoder_shapes, student_config
from potstill.pipeline.assistants import TEACHER_LOGITS, assistant_phases
from potstill.pipeline.budget import Budget
from potstill.pipeline.caching import cache_notes, expected, rows_and_tokens
from potstill.pipeline.checked import checked_job
from potstill.pipeline.distil_stages import HARD_COST
from potstill.pipeline.distill import budget_notes, disk_bytes, reserve_seconds
from potstill.pipeline.job import Job, is_trained, teacher_name
from potstill.pipeline.run import Run, check_folder
from potstill.pipeline.stages import build_stages
from potstill.progress import SILENT
from potstill.recipes import Phase

__all__ = ["plan"]

_FLOPS = 3e11
"""FLOPs a second that trainings reach on two cores with AMX; only for this estimate."""


def plan(settings: Settings) -> dict[str, Any]:
    """Resolve the sources and say what `distill` would do.

    Returns:
        `stages` (`name`, `detail`, `seconds` or None, `done`), `seconds`, `disk_bytes`, `out`, `notes`.

    Raises:
        InputError: As `distill` would.
    """
    out = Path(settings.run.out)
    check_folder(out, "data")
    job = checked_job(settings, SILENT)
    run = Run(out, SILENT)
    teacher = parameter_counts(encoder_shapes(job.config))
    student = _student(job)
    rows, tokens = rows_and_tokens(job)
    budget = settings.run.budget
    estimates = _estimates(job, teacher, student, rows, tokens)
    if budget is not None:  # what is planned is then cut to the time there is
        within = max(0.0, budget * 60 - reserve_seconds(job)) / max(1.0, sum(estimates.values()))
        estimates = {name: seconds * min(within, 1.0) for name, seconds in estimates.items()}
    estimates |= _candidates(job, rows, tokens)
    stages: list[dict[str, Any]] = []
    for stage in build_stages(job, Budget(None, 0.0, lambda: 0.0, {})):
        run.keys[stage.name] = run.key(stage)
        done = run.is_done(stage)
        seconds = 0.0 if done else estimates.get(stage.name)
        stages.append({"name": stage.name, "detail": stage.detail, "seconds": seconds, "done": done})
    notes = [
        *_teacher_lines(job, teacher),
        f"student: {job.shape}, {_at_most(job)}{student.total / 1e6:.1f} M parameters"
        + (f" ({teacher.total / student.total:.1f} times smaller)" if job.scores is None else f", {job.way}"),
        f"data: {rows:,} rows, {tokens:.0f} tokens each",
        f"recipe: {job.recipe.name}: {', '.join(phase.name for phase in job.recipe.phases)}",
    ]
    notes += [
        f"{teacher_name(number)}: {source.name}, {Shape.of(read_config(source.paths[0]))}"
        + (", its hidden states are learned too" if job.heard_further else "")
        for number, source in enumerate(job.more, 2)
    ]
    if job.start is not None:
        reads = ", with a tokenizer of its own" if job.side.own_tokenizer else ""
        notes.append(f"the student starts from {job.start.name}{', shrunk' if job.side.cut else ''}{reads}")
    notes += [*job.notes, *cache_notes(job, rows, tokens), *(line for line, _ in budget_notes(job))]
    notes.append(f"exporting and measuring: about {reserve_seconds(job) / 60:.1f} minutes of the time")
    total = reserve_seconds(job) + sum(stage["seconds"] or 0.0 for stage in stages)
    return {
        "schema_version": 1,
        "stages": stages,
        "seconds": total if budget is None else max(budget * 60, reserve_seconds(job)),
        "disk_bytes": disk_bytes(job),
        "out": str(out),
        "notes": notes,
    }


def _teacher_lines(job: Job, teacher: ParameterCounts) -> list[str]:
    size = f"{Shape.of(job.config)}, {teacher.total / 1e6:.1f} M parameters"
    if job.scores is None:
        return [f"teacher: {job.teacher.name}, {size}"]
    scores = job.scores
    return [*scores.findings.lines(scores.source.name), f"made from: {job.teacher.name}, {size}"]


def _at_most(job: Job) -> str:
    return "at most " if job.settings.student.vocabulary != "full" else ""


def _student(job: Job) -> ParameterCounts:
    """The student's size; of a vocabulary cut to a number, with so many pieces; of one cut to use, with all."""
    config = student_config(job.side.config, job.shape)
    wanted = job.settings.student.vocabulary
    if isinstance(wanted, int):
        config.vocab_size = min(wanted, config.vocab_size)
    return parameter_counts(encoder_shapes(config))


def _candidates(job: Job, rows: int, tokens: float) -> dict[str, float]:
    """Seconds of a masked LM's candidates: of each side about every other token, read with that side and its copy."""
    if job.augmenting.model is None:
        return {}
    size = parameter_counts(encoder_shapes(read_config(job.augmenting.model.paths[0]))).non_embedding
    sides = 1 if job.columns.pair is None else 2
    asked = len(job.augmenting.proposing) * rows * tokens / 2
    return {"candidates": asked * 2 * tokens / sides * 2 * size / _FLOPS}


def _estimates(
    job: Job, teacher: ParameterCounts, student: ParameterCounts, rows: int, tokens: float
) -> dict[str, float]:
    """Seconds of the trainings: 6 × non-embedding parameters a token trained, 2 × a token of the teacher's forward."""
    settings = job.settings
    every = job.augmenting.texts(rows, pairs=job.columns.pair is not None)

    def seen_in(phases: Sequence[Phase]) -> int:
        return sum(phase.epochs * every if phase.epochs is not None else phase.examples for phase in phases)

    seen = seen_in(job.recipe.phases)
    above = teacher
    if job.assistants:
        above = parameter_counts(encoder_shapes(student_config(job.config, job.assistants[-1])))
    forward = 2 * above.non_embedding if job.scores is None else 0
    live = seen * tokens * (6 * student.non_embedding + forward) / _FLOPS
    cached = bool(expected(job, rows, tokens))  # then each text is read by the teacher once
    once = (6 * seen * student.non_embedding + every * forward) * tokens / _FLOPS
    found = {"student": once if cached else live}
    hidden = seen_in(
        [phase for phase in job.recipe.phases if any(t.reads == "hidden" and t.weight for t in phase.terms)]
    )
    for source in job.heard_further:
        size = parameter_counts(encoder_shapes(read_config(source.paths[0]))).non_embedding
        found["student"] += (every if cached else hidden) * tokens * 2 * size / _FLOPS
    for number, source in enumerate(job.teachers, 1):
        size, name = parameter_counts(encoder_shapes(read_config(source.paths[0]))).non_embedding, teacher_name(number)
        if not is_trained(job, source):
            found[name] = settings.teacher.epochs * rows * tokens * 6 * size / _FLOPS
        if number > 1:
            found[f"{name}-logits"] = every * tokens * 2 * size / _FLOPS
    if settings.evaluate.hard_labels and job.labelled:
        found["hard-labels"] = HARD_COST * found["student"]
    for number, (above_it, shape) in enumerate(pairwise([Shape.of(job.config), *job.assistants]), 1):
        theirs = parameter_counts(encoder_shapes(student_config(job.config, above_it))).non_embedding
        size = parameter_counts(encoder_shapes(student_config(job.config, shape))).non_embedding
        found[f"assistant-{number}"] = seen_in(assistant_phases(job.recipe)) * tokens * (6 * size + 2 * theirs) / _FLOPS
    if job.assistants:
        found[TEACHER_LOGITS] = (every if job.more else rows) * tokens * 2 * teacher.non_embedding / _FLOPS
    return found
