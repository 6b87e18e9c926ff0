"""The main job: the run from settings to report."""

import shutil
from pathlib import Path
from typing import Any

import torch

from potstill.config import Settings, write_settings
from potstill.errors import GateRefused
from potstill.metrics import Metric
from potstill.pipeline.assemble import assemble, refused_report
from potstill.pipeline.budget import Budget
from potstill.pipeline.caching import rows_and_tokens
from potstill.pipeline.checked import checked_job
from potstill.pipeline.estimates import reserve_seconds, training_seconds
from potstill.pipeline.gate import standing
from potstill.pipeline.inputs import threads, weight_bytes
from potstill.pipeline.job import Job
from potstill.pipeline.publish import publish, published
from potstill.pipeline.results import read_split, task_in
from potstill.pipeline.run import OF_FINE_TUNING, Run, opened
from potstill.pipeline.stages import build_stages
from potstill.progress import SILENT, Reporter
from potstill.storage import ensure_space, read_json

__all__ = ["budget_notes", "disk_bytes", "distill", "teacher_refusal"]

SCARCE = 0.1
"""Share of a recipe's time below which a budget is warned of."""

MODEL_COPIES = 14
"""Copies of the teacher's size that a run may hold at once: models, moments, checkpoints, exports of both."""


def distill(settings: Settings, report: Reporter = SILENT) -> dict[str, Any]:
    """Run, or go on with, a distillation; returns the content of report.json.

    The run folder `settings.run.out` then holds settings.toml, report.json, report.html, student/ and stages/.

    Args:
        settings: See `potstill.config`.
        report: Receives stages, progress and warnings.

    Raises:
        InputError: Something given cannot be used; nothing was changed.
        GateRefused: The teacher is hardly better than one answer for all texts; report.json says so.
        LockHeld: Another process works in the folder.
        KeyboardInterrupt: After the state was saved; the same call goes on.
    """
    out = Path(settings.run.out)
    with opened(out, "data", others=OF_FINE_TUNING):
        job = checked_job(settings, report)
        ensure_space(out, disk_bytes(job))
        for line in job.notes:
            report.note(line)
        for line, is_warning in budget_notes(job):
            (report.warn if is_warning else report.note)(line)
        torch.set_num_threads(threads(job.settings.run))
        run = Run(out, report)
        budget = Budget(
            None if settings.run.budget is None else settings.run.budget * 60,
            reserve_seconds(job),
            lambda: sum(run.seconds.values()),
            {},
        )
        planned = build_stages(job, budget)
        budget.shares.update({stage.name: stage.share for stage in planned if stage.share})
        for stage in planned:
            run.execute(stage)
            if stage.name == "data":  # what was given can be used: until now nothing of an earlier run has changed
                write_settings(settings, out / "settings.toml")
            budget.ended(stage.name)
            if stage.name.endswith("-check"):
                name = stage.name.removesuffix("-check")
                if (refusal := teacher_refusal(job, run, name)) is not None:
                    dev = read_json(run.done[stage.name] / "dev.json")
                    cores = threads(settings.run)
                    publish(refused_report(job, run.done, run.seconds, cores, dev, refusal.got, name), None, out)
                    raise refusal
        shutil.rmtree(out / "scratch", ignore_errors=True)
        made = assemble(job, run.done, run.seconds, threads(job.settings.run))
        if not run.worked and (before := published(made, out)) is not None:
            return before
        return publish(made, run.done["export"] / "student", out)


def disk_bytes(job: Job) -> int:
    """Bytes that a run may need at once."""
    return MODEL_COPIES * weight_bytes(job.teacher) + 4 * sum(map(weight_bytes, job.more))


def budget_notes(job: Job) -> list[tuple[str, bool]]:
    """What a budget comes to before any work: a line, and whether it is a warning; none without a budget."""
    minutes, reserve = job.settings.run.budget, reserve_seconds(job) / 60
    if minutes is None:
        return []
    if minutes <= reserve:
        return [
            (
                f"run.budget = {minutes:g} minutes: exporting and measuring alone take about {reserve:.1f}, "
                "and every training gets its fewest steps",
                True,
            )
        ]
    left, takes = minutes - reserve, sum(training_seconds(job, *rows_and_tokens(job)).values()) / 60
    said = (
        f"of the budget of {minutes:g} minutes {reserve:.1f} are kept for exporting and measuring: "
        f"{left:.1f} are left to train in"
    )
    if takes <= left:
        return [(said, False)]
    said += f", of about {takes:.0f} that the recipe takes"
    if scarce := left < SCARCE * takes:
        said += "; models that have learned so little say little of what a longer budget gives"
    return [(said, scarce or minutes < 2 * reserve)]


def teacher_refusal(job: Job, run: Run, name: str) -> GateRefused | None:
    """Why a teacher is not worth distilling: its lower bound is too near one answer for all texts; else None."""
    dev = read_json(run.done[f"{name}-check"] / "dev.json")
    called = "the teacher" if name == "teacher" else f"{name} ({job.teachers[int(name.split('-')[1]) - 1].name})"
    examples, task = read_split(run.done["data"], "dev"), task_in(run.done["data"])
    assert examples is not None
    metrics = {metric: Metric(**values) for metric, values in dev.items()}
    if doubt := task.doubts(metrics, examples.labels):
        run.report.warn(f"{called}: {doubt}")
    stands = standing(task, metrics, examples.labels, called)
    if stands.passed:
        run.report.note(stands.line)
        return None
    cause, gold = ("labels in another order than the teacher's, ", "a label") if task.labels else ("", "a score")
    fix = (
        f"this usually means {cause}an encoder that was not fine-tuned, too few dev rows to tell, or {gold} that the "
        "text does not decide: look at report.html"
    )
    tuned = read_json(run.done[name] / "training.json").get("fine-tuning")
    if job.settings.run.budget is not None and tuned and tuned["epochs"] < job.settings.teacher.epochs:
        fix = (
            f"the budget of {job.settings.run.budget:g} minutes left its fine-tuning {tuned['epochs']:.2g} of "
            f"{job.settings.teacher.epochs} epochs: allow more, or give a teacher that is fine-tuned"
        )
    return GateRefused(stands.line, expected=stands.expected, fix=fix)
