"""Pace and wording of progress: how far a stage is, how long it still takes, and its figures in words."""

from collections.abc import Callable

__all__ = ["Clock", "Pace", "duration", "one_line"]

Clock = Callable[[], float]
"""Seconds that only grow."""
_RATES = ("_per_second", "_per_s")


class Pace:
    """How far the present stage is, and when it will be done."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.begin("")

    def begin(self, name: str) -> None:
        """A stage begins."""
        self.name, self.started = name, self.clock()
        self.first: tuple[float, float] | None = None
        self.done = self.total = 0.0
        self.values: dict[str, float] = {}

    def update(self, done: float, total: float, values: dict[str, float]) -> None:
        """So much of the stage is done, with these figures."""
        # A resumed stage starts in the middle: the pace is that of what this process did.
        if self.first is None or done < self.first[1]:
            self.first = (self.clock(), done)
        self.done, self.total, self.values = done, total, values

    @property
    def seconds(self) -> float:
        """Since the stage began."""
        return self.clock() - self.started

    def percent(self) -> str:
        """How much of the stage is done; empty where its total is not known."""
        return f"{100 * min(self.done / self.total, 1):.0f} %" if self.total > 0 else ""

    def left(self) -> str:
        """Time left at the pace of this process; empty until there is a pace."""
        if self.first is None or self.done <= self.first[1] or self.total <= self.done:
            return ""
        since = self.clock() - self.first[0]
        return f"{duration(since * (self.total - self.done) / (self.done - self.first[1]))} left"

    def figures(self) -> str:
        """The last named values, rates first."""
        names = sorted(self.values, key=lambda name: not name.endswith(_RATES))
        return "  ".join(_figure(name, self.values[name]) for name in names)

    def line(self) -> str:
        """What to show while the stage runs; a narrow terminal cuts its end."""
        return "  ".join(part for part in (self.percent(), self.left(), self.figures()) if part)

    def summary(self) -> str:
        """What to show when it has ended."""
        return "  ".join(part for part in (f"{self.name}: {duration(self.seconds)}", self.figures()) if part)


def duration(seconds: float) -> str:
    """Seconds as a person says them."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def _figure(name: str, value: float) -> str:
    for suffix in _RATES:
        if name.endswith(suffix):
            return f"{value:,.0f} {name.removesuffix(suffix)}/s"
    return f"{name.replace('_', ' ')} {value:.4g}"


def one_line(text: str) -> str:
    """The text with its line breaks turned into spaces."""
    return " ".join(text.splitlines())
