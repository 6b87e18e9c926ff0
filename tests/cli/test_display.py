"""What is shown while a run works: on a terminal, in lines, quietly."""

import io
from datetime import datetime

import pytest
from rich.console import Console

from potstill.cli.display import FanOut, PlainDisplay, QuietDisplay, TerminalDisplay, display
from potstill.progress import SILENT


class Clock:
    def __init__(self):
        self.time = 0.0

    def __call__(self):
        return self.time


def act(reporter, clock):
    """A run of three minutes: two stages, 300 calls of progress."""
    reporter.stage("teacher", "fine-tuning minilm")
    for step in range(200):
        clock.time += 0.5
        reporter.progress(step + 1, 200, loss=1 / (step + 1))
    reporter.note("accuracy 0.91")
    reporter.stage("distill")
    for step in range(100):
        clock.time += 0.8
        reporter.progress(step + 1, 100, hidden=0.5, examples_per_second=480)
    reporter.warn("one label\nis rare")


def test_plain_lines():
    clock, stream = Clock(), io.StringIO()
    plain = PlainDisplay(stream, clock=clock, now=lambda: datetime(2026, 1, 2, 3, 4, 5))
    act(plain, clock)
    plain.close()
    lines = stream.getvalue().splitlines()
    assert all(line.startswith("03:04:05  ") for line in lines)
    told = [line.removeprefix("03:04:05  ") for line in lines]
    assert told[0] == "teacher: fine-tuning minilm"
    assert told[1] == "teacher  10 %  1 min 30 s left  loss 0.05"
    assert "teacher: 1 min 40 s  loss 0.005" in told
    assert told[-1] == "distill: 1 min 20 s  480 examples/s  hidden 0.5"
    assert "warning: one label is rare" in told
    # One line each ten seconds, and not one a call.
    assert sum(line.startswith("teacher  ") for line in told) == 10
    assert sum(line.startswith("distill  ") for line in told) in (7, 8)


def test_plain_lines_without_a_stage():
    stream = io.StringIO()
    plain = PlainDisplay(stream)
    plain.note("a")
    plain.close()
    assert stream.getvalue().count("\n") == 1


def test_quiet_shows_warnings_alone():
    stream = io.StringIO()
    act(QuietDisplay(stream), Clock())
    assert stream.getvalue() == "warning: one label is rare\n"


@pytest.mark.parametrize("width", [20, 80, 200])
def test_a_terminal_shows_the_stage_and_leaves_a_line_for_each(width):
    stream, clock = io.StringIO(), Clock()
    console = Console(file=stream, force_terminal=True, width=width, color_system=None, legacy_windows=False)
    with TerminalDisplay(console, clock=clock) as live:
        act(live, clock)
        live._live.refresh()
    shown = stream.getvalue()
    left = [line.strip() for line in shown.replace("\r", "\n").splitlines()]
    if width > 20:
        assert any("teacher: 1 min 40 s" in line for line in left)
        assert any("distill: 1 min 20 s" in line for line in left)
        assert "warning: one label is rare" in shown
    if width == 200:
        assert "100 %  480 examples/s  hidden 0.5" in shown


def test_a_terminal_takes_markup_in_messages_for_text():
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, width=80, color_system=None)
    with TerminalDisplay(console) as live:
        live.stage("data", "[bold]x[/nope]")
        live._live.refresh()
        live.note("[/red] [link=x]")
        live.progress(1, 2)
        live._live.refresh()
    assert "[/red] [link=x]" in stream.getvalue()
    assert "[bold]x[/nope]" in stream.getvalue()


def test_progress_before_any_stage_is_no_error():
    with TerminalDisplay(Console(file=io.StringIO(), force_terminal=True)) as live:
        live.progress(1, 2, loss=0.1)


def test_which_display_suits(monkeypatch):
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    with display(io.StringIO()) as shown:
        assert isinstance(shown, PlainDisplay)
    with display(io.StringIO(), quiet=True) as shown:
        assert isinstance(shown, QuietDisplay)

    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.setenv("TERM", "xterm")
    with display(Terminal()) as shown:
        assert isinstance(shown, TerminalDisplay)
    monkeypatch.setenv("TERM", "dumb")
    with display(Terminal()) as shown:
        assert isinstance(shown, PlainDisplay)


def test_the_last_stage_ends_with_a_line_whatever_happens():
    stream = io.StringIO()
    with pytest.raises(KeyboardInterrupt), display(stream) as shown:
        shown.stage("distill")
        raise KeyboardInterrupt
    assert "distill: " in stream.getvalue().splitlines()[-1]


def test_fan_out_passes_all_on():
    one, two = io.StringIO(), io.StringIO()
    clock = Clock()
    act(FanOut(SILENT, PlainDisplay(one, clock=clock), PlainDisplay(two, clock=clock)), clock)
    assert one.getvalue() == two.getvalue() != ""
