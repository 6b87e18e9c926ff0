"""A job with everything that is refused before work: what `distill`, `plan` and `ablate` begin with."""

from dataclasses import replace

from potstill.config import Settings
from potstill.errors import SettingsError
from potstill.losses import pairwise_similarity_mse
from potstill.pipeline.assistants import TEACHER_LOGITS
from potstill.pipeline.caching import check_cache, rows_and_tokens
from potstill.pipeline.estimates import reserve_seconds, training_seconds
from potstill.pipeline.job import Job, prepare_job
from potstill.progress import SILENT, Reporter

__all__ = ["checked_job"]


def checked_job(settings: Settings, report: Reporter, *, minutes: float | None = None) -> Job:
    """The job of these settings, where it can be.

    Args:
        settings: Of the run.
        report: Told of sources.
        minutes: Of the student's training and of all that leads to it from the teacher, where something else than
            `run.budget` bounds it.

    Raises:
        InputError: As `prepare_job` and `check_cache`; parts of a step under a loss that reads the whole of it.
    """
    job = _with_time(prepare_job(settings, report), minutes)
    _check_parts(job)
    check_cache(job)
    return job


def _with_time(job: Job, minutes: float | None) -> Job:
    """The job; without assistants that nobody named, where the time is less than the recipe takes with them.

    A model between teacher and student that has learned little itself teaches little, and takes the student's time.
    """
    budget = job.settings.run.budget
    if job.settings.student.assistants != "auto" or not job.assistants or (minutes is None and budget is None):
        return job
    needed = training_seconds(job, *rows_and_tokens(job))
    if minutes is not None:
        chain = [name for name in needed if name in ("student", TEACHER_LOGITS) or name.startswith("assistant-")]
        takes, left = sum(needed[name] for name in chain), 60 * minutes
    else:
        takes, left = sum(needed.values()), 60 * (budget or 0.0) - reserve_seconds(job)
    if takes <= left:
        return job
    named = job.settings.student.model_copy(update={"assistants": "none"})
    without = prepare_job(job.settings.model_copy(update={"student": named}), SILENT)
    note = (
        f"no assistant: with {', '.join(map(str, job.assistants))} between teacher and student the training takes "
        f"about {takes / 60:.0f} minutes, and {max(0.0, left) / 60:.0f} are left for it; student.assistants names one"
    )
    return replace(without, settings=job.settings, notes=(*without.notes, note))


def _check_parts(job: Job) -> None:
    """Sums over a step's parts add up to the step's, but not over pairs of texts: those between two parts are gone."""
    parts = job.settings.distill.accumulate
    terms = [term for phase in job.recipe.phases for term in phase.terms if term.weight]
    named = [term.name for term in terms if term.fn is pairwise_similarity_mse]
    if parts > 1 and named:
        raise SettingsError(
            f"distill.accumulate = {parts} with the {named[0]} loss, which compares each text of a step with every "
            "other",
            expected="1: texts of two parts are never compared",
            fix=f"leave distill.accumulate out (distill.gradient_checkpointing saves memory too), or set "
            f"distill.weights.{named[0]} to 0",
        )
