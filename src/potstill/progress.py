"""How long work tells what it does. Whoever shows it (a terminal, a log) passes a `Reporter` in.

This module knows no terminal: `potstill.cli` draws.
"""

from typing import Protocol

__all__ = ["SILENT", "Reporter"]


class Reporter(Protocol):
    """Receives what happens, as it happens; must be cheap to call."""

    def stage(self, name: str, detail: str = "") -> None:
        """A stage begins; it replaces the stage before."""

    def progress(self, done: float, total: float, **values: float) -> None:
        """`done` of `total` units of the present stage; `values` are named figures to show (loss terms, examples/s)."""

    def note(self, message: str) -> None:
        """A fact worth a line of its own."""

    def warn(self, message: str) -> None:
        """Something the user should look at."""


class _Silent:
    def stage(self, name: str, detail: str = "") -> None: ...

    def progress(self, done: float, total: float, **values: float) -> None: ...

    def note(self, message: str) -> None: ...

    def warn(self, message: str) -> None: ...


SILENT: Reporter = _Silent()
"""Shows nothing: the default of every function that takes a reporter."""
