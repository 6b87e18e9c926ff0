"""Steps that a budget leaves, and the time of a step that they rest on."""

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.pipeline.tiny_job import tiny_settings
from tests.training.toys import Lines

from potstill.pipeline.budget import Allotment, Budget, seconds_per_step, time_at_mean
from potstill.pipeline.distill import budget_notes
from potstill.pipeline.job import prepare_job
from potstill.pipeline.run import Context
from potstill.progress import SILENT
from potstill.training import AdamW


def context(folder: Path) -> Context:
    folder.mkdir(exist_ok=True)
    return Context(folder, folder, {}, SILENT)


def never() -> float:
    raise AssertionError("measured without need")


def steps(budget: Budget, where: Context, planned: int, measure: Callable[[], float], **more: float) -> int:
    stage = next(iter(budget.shares))
    return budget.allot(where, (stage, "a"), planned, measure, **more).steps


def test_without_a_budget_the_recipe_decides(tmp_path: Path) -> None:
    found = Budget(None, 0.0, never, {"student": 1.0}).allot(context(tmp_path), ("student", "a"), 70, never)
    assert (found.steps, found.planned, found.seconds) == (70, 70, None)


def test_a_share_of_what_is_left_by_the_time_of_a_step(tmp_path: Path) -> None:
    # (1000 − 100 − 300) s · 2/3 · 1/4 at 0.5 s a step.
    budget = Budget(1000.0, 100.0, lambda: 300.0, {"student": 2.0, "baseline": 1.0})
    assert steps(budget, context(tmp_path), 500, lambda: 0.5, portion=0.25) == pytest.approx(200, abs=1)
    # A resumed run goes on with its decision, whatever the clock says by then.
    kept = budget.allot(context(tmp_path), ("student", "a"), 500, never)
    assert kept.steps == pytest.approx(200, abs=1)
    assert kept.seconds == pytest.approx(100.0, abs=0.1)
    budget.ended("baseline")
    assert steps(budget, context(tmp_path / "more"), 900, lambda: 1.0) == pytest.approx(600, abs=1)
    # Of two trainings of as many steps, the second at half the time of a step, the first has two thirds.
    assert steps(budget, context(tmp_path / "two"), 900, lambda: 1.0, followers=0.5) == pytest.approx(400, abs=1)


@pytest.mark.parametrize(("stretch", "wanted"), [(1.0, 500), (4.0, 1200)])
def test_fine_tuning_is_never_stretched(tmp_path: Path, stretch: float, wanted: int) -> None:
    budget = Budget(1200.0, 0.0, lambda: 0.0, {"teacher": 1.0})
    assert steps(budget, context(tmp_path), 500, lambda: 1.0, stretch=stretch) == pytest.approx(wanted, abs=1)


def test_measuring_counts(tmp_path: Path) -> None:
    def slow() -> float:
        time.sleep(0.3)
        return 0.01

    found = Budget(1.0, 0.0, lambda: 0.0, {"teacher": 1.0}).allot(context(tmp_path), ("teacher", "a"), 900, slow)
    assert found.seconds is not None
    assert found.seconds < 0.71


def test_no_time_left_still_makes_ten_steps(tmp_path: Path) -> None:
    budget, said = Budget(10.0, 90.0, lambda: 500.0, {"student": 1.0}), Said()
    where = Context(tmp_path, tmp_path, {}, said)
    assert steps(budget, where, 500, lambda: 1.0, stretch=4.0) == 10
    assert said.warnings == [
        "no time is left of run.budget: student gets its fewest steps, 10, of the recipe's 500; allow a longer budget"
    ]


def test_the_latest_pace_decides_again() -> None:
    found = Allotment(600, 700, 300.0, 700)
    assert found.again(100, 51.0, 600) == 600  # 0.51 s a step: not worth a change
    assert found.again(200, 151.0, 600) == 200 + 149  # a second each by now
    assert found.again(300, 161.0, 349) == 700  # others have gone: never more than the recipe's
    assert found.again(400, 310.0, 700) == 401  # the time is over
    assert Allotment(10, 50, 0.5, 50).again(2, 40.0, 10) == 10  # the fewest stay


def test_the_line_at_the_mean_size() -> None:
    sizes = np.array([10.0] * 98 + [500.0, 600.0])
    measured = np.array([10.0, 10.0, 500.0, 600.0])
    assert time_at_mean(sizes, measured, 0.2 + 0.003 * measured) == pytest.approx(0.2 + 0.003 * sizes.mean())
    assert time_at_mean(np.array([4.0, 4.0]), np.array([4.0, 4.0]), np.array([1.0, 3.0])) == 2.0
    # Noise may tilt the line below anything that was seen.
    assert time_at_mean(np.array([1.0, 9.0]), np.array([1.0, 100.0]), np.array([0.5, 90.0])) >= 0.5


def test_measuring_changes_no_weight() -> None:
    program = Lines(rows=12, batch_size=5)
    before = {name: tensor.clone() for name, tensor in program.modules["model"].state_dict().items()}
    assert seconds_per_step(program, AdamW(program.modules, dtype=torch.bfloat16)) > 0
    for name, tensor in program.modules["model"].state_dict().items():
        assert torch.equal(tensor, before[name])


class Said:
    """Keeps warnings apart from notes."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.warnings: list[str] = []

    def stage(self, name: str, detail: str = "") -> None: ...

    def progress(self, done: float, total: float, **values: float) -> None: ...

    def note(self, message: str) -> None:
        self.notes.append(message)

    def warn(self, message: str) -> None:
        self.warnings.append(message)


def test_a_training_that_is_cut_short_is_a_warning(tmp_path: Path) -> None:
    said = Said()
    where = Context(tmp_path, tmp_path, {}, said)
    budget = Budget(600.0, 0.0, lambda: 0.0, {"teacher": 1.0})
    assert steps(budget, where, 700, lambda: 3.0) == pytest.approx(200, abs=1)
    assert said.notes == []
    assert "teacher is cut short" in said.warnings[0]


@pytest.mark.parametrize(
    ("takes", "said", "warned"),
    [
        (60, "", None),
        (40 * 60, "are left to train in, of about 40 that the recipe takes", False),
        (900 * 60, "of about 900 that the recipe takes; models that have learned so little", True),
    ],
)
def test_a_budget_says_how_much_of_the_recipe_it_leaves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, takes: int, said: str, warned: bool | None
) -> None:
    monkeypatch.setitem(budget_notes.__globals__, "training_seconds", lambda *_: {"student": float(takes)})
    job = prepare_job(tiny_settings(tmp_path, "run.budget=20"), SILENT)
    ((line, is_warning),) = budget_notes(job)
    assert "of the budget of 20 minutes" in line
    if warned is None:
        assert line.endswith("are left to train in")
        assert not is_warning
    else:
        assert said in line
        assert is_warning == warned
