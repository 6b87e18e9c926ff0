"""Steps that a budget leaves, and the time of a step that they rest on."""

from pathlib import Path

import numpy as np
import pytest
import torch
from tests.training.toys import Lines

from potstill.pipeline.budget import Budget, seconds_per_step, time_at_mean
from potstill.pipeline.run import Context
from potstill.progress import SILENT
from potstill.training import AdamW


def context(folder: Path) -> Context:
    folder.mkdir(exist_ok=True)
    return Context(folder, folder, {}, SILENT)


def never() -> float:
    raise AssertionError("measured without need")


def test_without_a_budget_the_recipe_decides(tmp_path: Path) -> None:
    assert Budget(None, 0.0, never, {"student": 1.0}).steps(context(tmp_path), ("student", "a"), 70, never) == 70


def test_a_share_of_what_is_left_by_the_time_of_a_step(tmp_path: Path) -> None:
    # (1000 − 100 − 300) s · 2/3 · 1/4 at 0.5 s a step.
    budget = Budget(1000.0, 100.0, lambda: 300.0, {"student": 2.0, "baseline": 1.0})
    assert budget.steps(context(tmp_path), ("student", "a"), 500, lambda: 0.5, portion=0.25) == 200
    # A resumed run goes on with its decision, whatever the clock says by then.
    assert budget.steps(context(tmp_path), ("student", "a"), 500, never) == 200
    budget.ended("baseline")
    assert budget.steps(context(tmp_path / "more"), ("student", "a"), 900, lambda: 1.0) == 600


@pytest.mark.parametrize(("stretch", "steps"), [(1.0, 500), (4.0, 1200)])
def test_fine_tuning_is_never_stretched(tmp_path: Path, stretch: float, steps: int) -> None:
    budget = Budget(1200.0, 0.0, lambda: 0.0, {"teacher": 1.0})
    assert budget.steps(context(tmp_path), ("teacher", "a"), 500, lambda: 1.0, stretch=stretch) == steps


def test_no_time_left_still_makes_ten_steps(tmp_path: Path) -> None:
    budget, said = Budget(10.0, 90.0, lambda: 500.0, {"student": 1.0}), Said()
    where = Context(tmp_path, tmp_path, {}, said)
    assert budget.steps(where, ("student", "a"), 500, lambda: 1.0, stretch=4.0) == 10
    assert said.warnings == ["no time is left of run.budget: student gets its fewest steps, 10"]


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


def test_a_moment_in_which_others_had_the_processor_does_not_decide(tmp_path: Path) -> None:
    said = Said()
    times = iter([5.0, 1.0])
    where = Context(tmp_path, tmp_path, {}, said)
    budget = Budget(600.0, 0.0, lambda: 0.0, {"teacher": 1.0})
    assert budget.steps(where, ("teacher", "a"), 700, lambda: next(times)) == 600
    assert (len(said.notes), said.warnings) == (1, [])


def test_a_training_that_is_cut_short_is_a_warning(tmp_path: Path) -> None:
    said = Said()
    times = iter([5.0, 4.0, 3.0])
    where = Context(tmp_path, tmp_path, {}, said)
    budget = Budget(600.0, 0.0, lambda: 0.0, {"teacher": 1.0})
    assert budget.steps(where, ("teacher", "a"), 700, lambda: next(times)) == 200
    assert said.notes == []
    assert "teacher is cut short" in said.warnings[0]
