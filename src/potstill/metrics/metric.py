"""A score and how sure of it we are."""

from dataclasses import asdict, dataclass

__all__ = ["Metric"]


@dataclass(frozen=True)
class Metric:
    """A score with its interval.

    Attributes:
        value: The score on the examples as they are.
        low: Lower end of the 95 % interval.
        high: Upper end of it.
        n: How many examples it was computed on.
    """

    value: float
    low: float
    high: float
    n: int

    def as_dict(self) -> dict[str, float | int]:
        """`{"value", "low", "high", "n"}`, as it stands in report.json; `Metric(**...)` reads it back."""
        return asdict(self)
