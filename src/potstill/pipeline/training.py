"""A program run under a budget, with checkpoints in its stage's scratch; what a report says of it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from potstill.models.precision import Precision, training_dtype
from potstill.pipeline.budget import Budget, seconds_per_step
from potstill.pipeline.run import Context
from potstill.training import AdamW, Program, Ramp, Schedule, TrainingResult, Value, train

__all__ = ["Conditions", "Trained", "phase_facts", "run_training"]


@dataclass(frozen=True)
class Conditions:
    """What all trainings of a run have in common.

    Attributes:
        seed: Of everything random.
        precision: What models are held in.
        save_every: Seconds between two checkpoints.
    """

    seed: int
    precision: Precision
    save_every: float


@dataclass(frozen=True)
class Trained:
    """A training that has ended.

    Attributes:
        result: What the loop says of it.
        schedule: As it began.
        planned: The recipe's steps; a budget may have left it others.
    """

    result: TrainingResult
    schedule: Schedule
    planned: int


def run_training(
    context: Context,
    conditions: Conditions,
    program: Program,
    *,
    stage: str,
    phase: str,
    planned: int,
    schedule: Callable[[int], Schedule],
    budget: Budget,
    evaluate: Callable[[], float] | None = None,
    weight_decay: float = 0.01,
    clip: float = 1.0,
    followers: float = 0.0,
    stretch: float = 1.0,
    portion: float = 1.0,
    accumulate: int = 1,
    spent: float = 0.0,
) -> Trained:
    """Run a program with checkpoints in the stage's scratch, for as many steps as the budget says.

    Args:
        context: Of the stage.
        conditions: Of the run.
        program: What is trained.
        stage: Whose share of the budget it has.
        phase: Names its part of the scratch folder and of the counted randomness.
        planned: Steps of the recipe.
        schedule: Makes the schedule for a number of steps.
        budget: Decides the steps.
        evaluate: Dev score for the curve.
        weight_decay: Of matrices.
        clip: Largest global norm of the gradient.
        followers: As in `Budget.allot`.
        stretch: As in `Budget.allot`.
        portion: As in `Budget.allot`.
        accumulate: Micro-batches a step.
        spent: As in `Budget.allot`.
    """

    def optimiser() -> AdamW:
        dtype = training_dtype(conditions.precision)
        return AdamW(program.modules, weight_decay=weight_decay, clip=clip, dtype=dtype)

    def measure() -> float:
        context.report.note(f"{phase}: measuring the time of a step")
        return accumulate * seconds_per_step(program, optimiser())

    allotment = budget.allot(
        context, (stage, phase), planned, measure, stretch=stretch, portion=portion, followers=followers, spent=spent
    )
    made = schedule(allotment.steps)
    result = train(
        program,
        optimiser(),
        made,
        seed=(conditions.seed, stage, phase),
        checkpoints=context.scratch / phase,
        save_every=conditions.save_every,
        evaluate=evaluate,
        replan=None if allotment.seconds is None else allotment.again,
        report=context.report,
    )
    return Trained(result, made, planned)


def phase_facts(
    trained: Trained, windows: int, batch_size: int, terms: Sequence[tuple[str, Value, Value]]
) -> dict[str, Any]:
    """A phase for the report: what was run and how it went."""
    result = trained.result
    return {
        "curve": result.curve,
        "seconds": result.seconds,
        "examples": result.examples,
        "steps": result.steps,
        "planned": trained.planned,
        "epochs": round(result.examples / max(1, windows), 3),
        "batch_size": batch_size,
        "learning_rate": trained.schedule.learning_rate,
        "terms": [{"name": name, "weight": _told(weight), "temperature": _told(t)} for name, weight, t in terms],
    }


def _told(value: Value) -> float | list[float]:
    return [value.start, value.end] if isinstance(value, Ramp) else value
