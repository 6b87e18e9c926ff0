"""A job with everything that is refused before work: what `distill`, `plan` and `ablate` begin with."""

from potstill.config import Settings
from potstill.errors import SettingsError
from potstill.losses import pairwise_similarity_mse
from potstill.pipeline.caching import check_cache
from potstill.pipeline.job import Job, prepare_job
from potstill.progress import Reporter

__all__ = ["checked_job"]


def checked_job(settings: Settings, report: Reporter) -> Job:
    """The job of these settings, where it can be.

    Raises:
        InputError: As `prepare_job` and `check_cache`; parts of a step under a loss that reads the whole of it.
    """
    job = prepare_job(settings, report)
    _check_parts(job)
    check_cache(job)
    return job


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
