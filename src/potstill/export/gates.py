"""Whether an export may stand in for the model it was made from: parity of the logits, and the loss of task score."""

import math

import numpy as np

from potstill.data.encoding import Encodings
from potstill.engines import Engine
from potstill.errors import DataError, NonFiniteError

__all__ = ["judge", "parity"]


def parity(
    reference: Engine, other: Engine, encodings: Encodings, *, limit: int | None = 256, batch_size: int = 8
) -> float:
    """The largest absolute difference between two engines' logits.

    Batches mix short and long windows on purpose, so that padding is tested too.

    Args:
        reference: Usually torch in float32.
        other: The same model in another engine or precision.
        encodings: m ≥ 1 windows.
        limit: Compare at most this many, evenly spread; None compares all.
        batch_size: Windows in one run.

    Returns:
        max |reference - other|, in units of logits, ≥ 0.

    Raises:
        DataError: No windows.
        NonFiniteError: NaN or infinity among the logits of either.
    """
    if len(encodings) == 0:
        raise DataError("no texts to compare engines on", expected="at least 1")
    count = len(encodings) if limit is None else min(limit, len(encodings))
    chosen = np.linspace(0, len(encodings) - 1, count).round().astype(np.int64)
    worst = 0.0
    for start in range(0, count, batch_size):
        batch = encodings.batch(chosen[start : start + batch_size])
        expected, found = (_finite(engine, engine.run(batch)["logits"]) for engine in (reference, other))
        worst = max(worst, float(np.abs(expected - found).max()))
    return worst


def _finite(engine: Engine, logits: np.ndarray) -> np.ndarray:
    if not np.isfinite(logits).all():
        raise NonFiniteError(f"{engine.name} ({engine.precision}) gives NaN or infinity")
    return logits.astype(np.float64)


def judge(export_score: float, reference_score: float, tolerance: float = 0.01) -> tuple[bool, str | None]:
    """Whether an export keeps enough of the task's score: (reference - export) ≤ tolerance · |reference|.

    Args:
        export_score: The export's primary metric on dev; higher is better.
        reference_score: The same of the model in torch float32.
        tolerance: Share that may be lost, in [0, 1); 0.01 is 1 % relative.

    Returns:
        (accepted, None), or (False, the reason in plain words).
    """
    if not math.isfinite(export_score):
        return False, f"its score is {export_score}"
    lost = reference_score - export_score
    # A hair's breadth for scores like 0.89 · 0.99, whose product is not exact.
    if lost <= tolerance * abs(reference_score) + 1e-12:
        return True, None
    share = f"{lost / abs(reference_score):.1%} of the score" if reference_score else f"{lost:.3g} of score"
    return False, f"loses {share} ({export_score:.4f} against {reference_score:.4f}), more than {tolerance:.1%}"
