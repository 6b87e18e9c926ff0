"""What the parts of a run take, about: for the plan, and for what depends on the time there is."""

from collections.abc import Sequence
from itertools import pairwise

from potstill.evaluation.cost import ParameterCounts, parameter_counts
from potstill.models.loading import read_config
from potstill.models.student import Shape, encoder_shapes, student_config
from potstill.pipeline.assistants import TEACHER_LOGITS, assistant_phases
from potstill.pipeline.caching import expected
from potstill.pipeline.distil_stages import HARD_COST
from potstill.pipeline.inputs import weight_bytes
from potstill.pipeline.job import Job, is_trained, teacher_name
from potstill.recipes import Phase

__all__ = ["candidates_seconds", "reserve_seconds", "student_size", "training_seconds"]

_FLOPS = 3e11
"""FLOPs a second that trainings reach on two cores with AMX; only for these estimates."""


def reserve_seconds(job: Job) -> float:
    """Seconds of a budget kept for what is not training: exporting and measuring both models grows with the teacher."""
    return 90.0 + weight_bytes(job.teacher) / 2e6


def student_size(job: Job) -> ParameterCounts:
    """The student's size; of a vocabulary cut to a number, with so many pieces; of one cut to use, with all."""
    config = student_config(job.side.config, job.shape)
    wanted = job.settings.student.vocabulary
    if isinstance(wanted, int):
        config.vocab_size = min(wanted, config.vocab_size)
    return parameter_counts(encoder_shapes(config))


def candidates_seconds(job: Job, rows: int, tokens: float) -> dict[str, float]:
    """Seconds of a masked LM's candidates: of each side about every other token, read with that side and its copy."""
    if job.augmenting.model is None:
        return {}
    size = parameter_counts(encoder_shapes(read_config(job.augmenting.model.paths[0]))).non_embedding
    sides = 1 if job.columns.pair is None else 2
    asked = len(job.augmenting.proposing) * rows * tokens / 2
    return {"candidates": asked * 2 * tokens / sides * 2 * size / _FLOPS}


def training_seconds(job: Job, rows: int, tokens: float) -> dict[str, float]:
    """Seconds of the trainings: 6 × non-embedding parameters a token trained, 2 × a token of the teacher's forward.

    Args:
        job: The run, without its budget.
        rows: As by `rows_and_tokens`.
        tokens: The same.
    """
    settings = job.settings
    teacher, student = parameter_counts(encoder_shapes(job.config)), student_size(job)
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
