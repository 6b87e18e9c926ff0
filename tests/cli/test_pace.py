"""Pace and wording of progress."""

import pytest

from potstill.cli.pace import Pace, duration, one_line


class Clock:
    def __init__(self):
        self.time = 100.0

    def __call__(self):
        return self.time


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0.0 s"),
        (9.94, "9.9 s"),
        (10.4, "10 s"),
        (59.4, "59 s"),
        (59.6, "1 min 00 s"),
        (125, "2 min 05 s"),
        (3599.7, "1 h 00 min"),
        (7262, "2 h 01 min"),
    ],
)
def test_duration(seconds, words):
    assert duration(seconds) == words


def test_time_left_is_at_the_pace_so_far():
    clock = Clock()
    pace = Pace(clock)
    pace.begin("distill")
    pace.update(0, 100, {})
    assert pace.left() == ""
    clock.time += 30
    pace.update(25, 100, {"loss": 0.123456, "examples_per_second": 1234.4})
    assert pace.left() == "1 min 30 s left"
    assert pace.line() == "25 %  1 min 30 s left  1,234 examples/s  loss 0.1235"
    assert pace.summary() == "distill: 30 s  1,234 examples/s  loss 0.1235"


def test_a_resumed_stage_counts_only_what_this_process_did():
    clock = Clock()
    pace = Pace(clock)
    pace.begin("distill")
    pace.update(900, 1000, {})
    clock.time += 10
    pace.update(950, 1000, {})
    assert pace.left() == "10 s left"


def test_progress_that_begins_again_has_a_pace_of_its_own():
    clock = Clock()
    pace = Pace(clock)
    pace.begin("evaluate")
    pace.update(100, 100, {})
    clock.time += 50
    pace.update(0, 10, {})
    clock.time += 2
    pace.update(5, 10, {})
    assert pace.left() == "2.0 s left"


def test_without_a_total_there_is_neither_percent_nor_time_left():
    pace = Pace(Clock())
    pace.begin("read")
    pace.update(5, 0, {"rows": 5})
    assert pace.line() == "rows 5"


def test_a_message_stays_one_line():
    assert one_line("a\nb\r\nc") == "a b c"
