"""Shows what a run does: live on a terminal, as plain timestamped lines elsewhere, warnings alone where quiet.

Everything here goes to standard error or to a file; standard output belongs to results. Knows no stage by name.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn
from rich.table import Column
from rich.text import Text

from potstill.cli.pace import Clock, Pace, one_line
from potstill.progress import Reporter

__all__ = ["FanOut", "PlainDisplay", "QuietDisplay", "TerminalDisplay", "display"]


class PlainDisplay:
    """A line when a stage begins and ends, and in between at most one every `interval` seconds.

    Args:
        stream: Where lines go.
        interval: Seconds.
        clock: Seconds that only grow.
        now: The time that stands before each line.
    """

    def __init__(
        self,
        stream: TextIO,
        *,
        interval: float = 10.0,
        clock: Clock = time.monotonic,
        now: Callable[[], datetime] = datetime.now,
    ) -> None:
        self._stream, self._interval, self._now = stream, interval, now
        self._pace = Pace(clock)
        self._last = clock()

    def stage(self, name: str, detail: str = "") -> None:
        """End the stage before with a line, and begin this one with another."""
        self.close()
        self._pace.begin(name)
        self._last = self._pace.clock()
        self.write(f"{name}: {detail}" if detail else name)

    def progress(self, done: float, total: float, **values: float) -> None:
        """Write a line if the last one is long enough ago."""
        self._pace.update(done, total, values)
        if self._pace.clock() - self._last >= self._interval:
            self._last = self._pace.clock()
            self.write(f"{self._pace.name}  {self._pace.line()}")

    def note(self, message: str) -> None:
        """Write the message."""
        self.write(message)

    def warn(self, message: str) -> None:
        """Write the message, marked."""
        self.write(f"warning: {message}")

    def close(self) -> None:
        """End the present stage, if there is one, with its time and last figures."""
        if self._pace.name:
            self.write(self._pace.summary())
        self._pace.begin("")

    def write(self, line: str) -> None:
        """Write one line with the time before it."""
        self._stream.write(f"{self._now():%H:%M:%S}  {one_line(line)}\n")
        self._stream.flush()


class QuietDisplay:
    """Warnings alone."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def stage(self, name: str, detail: str = "") -> None:
        """Show nothing."""

    def progress(self, done: float, total: float, **values: float) -> None:
        """Show nothing."""

    def note(self, message: str) -> None:
        """Show nothing."""

    def warn(self, message: str) -> None:
        """Write the message, marked."""
        self._stream.write(f"warning: {one_line(message)}\n")
        self._stream.flush()


class TerminalDisplay:
    """One live line for the present stage; finished stages, notes and warnings scroll above it.

    Args:
        console: A rich console on standard error.
        clock: Seconds that only grow.
    """

    def __init__(self, console: Console, *, clock: Clock = time.monotonic) -> None:
        self._console, self._pace = console, Pace(clock)
        self._task: TaskID | None = None
        self._live = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True)),
            BarColumn(bar_width=20),
            TextColumn(
                "{task.fields[line]}", markup=False, table_column=Column(no_wrap=True, overflow="ellipsis", ratio=1)
            ),
            console=console,
            refresh_per_second=2,  # the cores are needed elsewhere
            transient=True,
            expand=True,
        )

    def __enter__(self) -> "TerminalDisplay":
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end()
        self._live.stop()

    def stage(self, name: str, detail: str = "") -> None:
        """Leave a line for the stage before, and show this one."""
        self._end()
        self._pace.begin(name)
        self._task = self._live.add_task(name, total=None, line=detail)

    def progress(self, done: float, total: float, **values: float) -> None:
        """Move the bar; its figures are drawn twice a second."""
        self._pace.update(done, total, values)
        if self._task is None:
            self._task = self._live.add_task(self._pace.name, total=None, line="")
        self._live.update(self._task, completed=done, total=total if total > 0 else None, line=self._pace.line())

    def note(self, message: str) -> None:
        """Print the message above the live line."""
        self._console.print(Text(one_line(message)))

    def warn(self, message: str) -> None:
        """Print the message above the live line, marked."""
        self._console.print(Text(f"warning: {one_line(message)}", style="yellow"))

    def _end(self) -> None:
        if self._pace.name:
            self._console.print(Text(self._pace.summary()))
        if self._task is not None:
            self._live.remove_task(self._task)
            self._task = None
        self._pace.begin("")


class FanOut:
    """Passes everything on to several reporters, in their order."""

    def __init__(self, *reporters: Reporter) -> None:
        self._reporters = reporters

    def stage(self, name: str, detail: str = "") -> None:
        """Pass on."""
        for reporter in self._reporters:
            reporter.stage(name, detail)

    def progress(self, done: float, total: float, **values: float) -> None:
        """Pass on."""
        for reporter in self._reporters:
            reporter.progress(done, total, **values)

    def note(self, message: str) -> None:
        """Pass on."""
        for reporter in self._reporters:
            reporter.note(message)

    def warn(self, message: str) -> None:
        """Pass on."""
        for reporter in self._reporters:
            reporter.warn(message)


@contextmanager
def display(stream: TextIO, *, quiet: bool = False) -> Iterator[Reporter]:
    """The reporter that suits a stream: live on a terminal, lines elsewhere, warnings alone where `quiet`."""
    console = Console(file=stream, highlight=False)
    if quiet:
        yield QuietDisplay(stream)
    elif console.is_terminal and not console.is_dumb_terminal:
        with TerminalDisplay(console) as live:
            yield live
    else:
        lines = PlainDisplay(stream)
        try:
            yield lines
        finally:
            lines.close()
