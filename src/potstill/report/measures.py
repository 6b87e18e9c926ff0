"""What report.json says of numbers: scores with intervals, probabilities held against what came true, thresholds.

The parts that `schema` puts together; knows no report.
"""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

__all__ = [
    "STRICT",
    "Abstention",
    "Calibration",
    "Count",
    "Interval",
    "LabelScores",
    "Metrics",
    "Positive",
    "Probabilities",
    "Probability",
    "ReliabilityBin",
    "Score",
    "Threshold",
    "Wanted",
]

Count = Annotated[int, Field(ge=0)]
Positive = Annotated[float, Field(gt=0)]
Probability = Annotated[float, Field(ge=0, le=1)]


STRICT = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
"""Of every part of a report: a misspelt key is an error, and so is NaN."""


class _Part(BaseModel):
    model_config = STRICT


class Interval(_Part):
    """A value with its 95 % interval."""

    value: float
    low: float
    high: float


class Score(Interval):
    """A metric's value, its 95 % interval and the number of examples `n` it was measured on."""

    n: Count


Metrics = dict[str, Score]


class LabelScores(_Part):
    """How well a label is found: `support` examples have it, `predicted` were given it."""

    precision: Score
    recall: Score
    f1: Score
    support: Count
    predicted: Count


class ReliabilityBin(_Part):
    """The answers of a confidence in (low, high]: how many, their mean confidence, the share that is right."""

    low: Probability
    high: Probability
    n: Count
    confidence: Probability | None
    accuracy: Probability | None


class Probabilities(_Part):
    """What probabilities are worth: `ece`, `nll` in nats and `brier` in `metrics`, and what a diagram shows."""

    metrics: Metrics
    bins: list[ReliabilityBin]


class Calibration(_Part):
    """A model's probabilities on `judged_on`, as they come and at the temperature fitted to `n` dev examples.

    `reason` says why none was fitted and `temperature` is 1; None where one was.
    """

    temperature: Positive
    n: Count
    reason: str | None = None
    before: Probabilities
    after: Probabilities


class Threshold(_Part):
    """A confidence below which answers are withheld: what dev shows of it, and what it does on `judged_on`.

    Of dev are `coverage`, `precision` and its lower bound `at_least`. `judged_precision` is None where nothing is
    answered.
    """

    confidence: Probability
    coverage: Probability
    precision: Probability
    at_least: Probability
    judged_coverage: Score
    judged_precision: Score | None


class Wanted(_Part):
    """A precision that may be wanted, and the `confidence` of the threshold chosen for it; None where there is none."""

    precision: Probability
    confidence: Probability | None


class Abstention(_Part):
    """Withholding answers by their confidence: `thresholds` from the lowest to the highest."""

    thresholds: Annotated[list[Threshold], Field(min_length=1)]
    wanted: list[Wanted] = []
