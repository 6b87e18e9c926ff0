"""Gold answers that are numbers: what a cell must hold, and what a split of them must be fit for."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from potstill.errors import DataError

__all__ = ["ScoreRule"]

_LARGEST = 1e18
"""The square of anything beyond it is no float32."""


@dataclass(frozen=True)
class ScoreRule:
    """How a cell of the label column becomes a score: the number that it holds, as it is.

    It is a `potstill.data.labels.GoldRule`, as `LabelRule` is.
    """

    word: ClassVar[str] = "score"
    reads_blank: ClassVar[bool] = False

    @staticmethod
    def name(cell: str) -> float:
        """The number in a cell.

        Raises:
            ValueError: It is none (`3,5`, `n/a`), not finite, or larger than can be learned.
        """
        shown = cell.strip()[:40]
        try:
            value = float(cell)
        except ValueError:
            value = math.nan
            if shown.lower().lstrip("+-") != "nan":
                raise ValueError(f"score {shown!r} is no number") from None
        if "_" in cell:  # Python's own notation
            raise ValueError(f"score {shown!r} is no number")
        if not math.isfinite(value):
            raise ValueError(f"score {shown!r} is not finite")
        if abs(value) > _LARGEST:
            raise ValueError(f"score {shown!r} is beyond ±{_LARGEST:g}")
        return value

    @staticmethod
    def labels(gold: float) -> tuple[str, ...]:
        """None."""
        return ()

    @staticmethod
    def names(labels: Collection[str], rows: int, most: int, where: str) -> tuple[str, ...]:
        """None."""
        return ()

    @classmethod
    def settle(cls, golds: Mapping[str, Sequence[Any]]) -> tuple[str, ...]:
        """Check the scores of all splits (role → scores); there are no label names.

        Raises:
            DataError: As `check_left`.
        """
        cls.check_left(golds)
        return ()

    @staticmethod
    def check_left(golds: Mapping[str, Sequence[Any]]) -> None:
        """Check that scores differ.

        Raises:
            DataError: A split whose scores are all the same: nothing can be learned from it, or judged on it.
        """
        for role, scores in golds.items():
            if scores and min(scores) == max(scores):
                raise DataError(
                    f"{role}: every score is {scores[0]:g} ({len(scores)} usable rows)",
                    expected="scores that differ: there is no correlation with a constant",
                    fix="check the label column, or give more rows",
                )

    @staticmethod
    def array(scores: Sequence[Any], names: Sequence[str]) -> np.ndarray:
        """float64 (n,); `names` are none."""
        return np.array(scores, dtype=np.float64)

    @staticmethod
    def missing(count: int, names: Sequence[str]) -> np.ndarray:
        """float64 (count,), NaN: no score; `names` are none."""
        return np.full(count, np.nan)

    @staticmethod
    def facts(golds: Mapping[str, Sequence[Any]], names: Sequence[str]) -> dict[str, Any]:
        """What the report says of them: no labels; lowest, mean and highest score of each split."""
        found = {
            role: {"low": float(min(scores)), "mean": float(np.mean(scores)), "high": float(max(scores))}
            for role, scores in golds.items()
        }
        return {"labels": {}, "scores": found}
