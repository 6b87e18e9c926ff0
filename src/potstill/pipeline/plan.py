"""What a run would do: stages, sizes, time, disk, without doing any of it."""

from pathlib import Path
from typing import Any

from potstill.config import Settings
from potstill.evaluation.cost import ParameterCounts, parameter_counts
from potstill.models.loading import read_config
from potstill.models.student import Shape, encoder_shapes
from potstill.pipeline.budget import Budget
from potstill.pipeline.caching import cache_notes, rows_and_tokens
from potstill.pipeline.checked import checked_job
from potstill.pipeline.distill import budget_notes, disk_bytes
from potstill.pipeline.estimates import candidates_seconds, reserve_seconds, student_size, training_seconds
from potstill.pipeline.job import Job, teacher_name
from potstill.pipeline.run import OF_FINE_TUNING, Run, check_folder
from potstill.pipeline.stages import build_stages
from potstill.progress import SILENT

__all__ = ["plan"]


def plan(settings: Settings) -> dict[str, Any]:
    """Resolve the sources and say what `distill` would do.

    Returns:
        `stages` (`name`, `detail`, `seconds` or None, `done`), `seconds`, `disk_bytes`, `out`, `notes`.

    Raises:
        InputError: As `distill` would.
    """
    out = Path(settings.run.out)
    check_folder(out, "data", others=OF_FINE_TUNING)
    job = checked_job(settings, SILENT)
    run = Run(out, SILENT)
    teacher = parameter_counts(encoder_shapes(job.config))
    student = student_size(job)
    rows, tokens = rows_and_tokens(job)
    budget = settings.run.budget
    estimates = training_seconds(job, rows, tokens)
    if budget is not None:  # what is planned is then cut to the time there is
        within = max(0.0, budget * 60 - reserve_seconds(job)) / max(1.0, sum(estimates.values()))
        estimates = {name: seconds * min(within, 1.0) for name, seconds in estimates.items()}
    estimates |= candidates_seconds(job, rows, tokens)
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
