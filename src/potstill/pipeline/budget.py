"""How many steps each training gets: its recipe's epochs, or what a budget of minutes leaves it.

The first decision is written down before the first step, so that a resumed run goes on with it. Under a budget it is
looked at again while training goes on: other programs may have come or gone.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from potstill.pipeline.run import Context
from potstill.storage import read_json, write_json
from potstill.training.gradients import collect_gradients
from potstill.training.optimiser import AdamW
from potstill.training.program import Program

__all__ = ["FEWEST", "Allotment", "Budget", "seconds_per_step"]

LONGEST = 4.0
"""A budget stretches a distillation to at most this many times its recipe's length; fine-tuning, which overfits on its
few labels, is never stretched."""

FEWEST = 10
"""Steps that a training gets though no time is left for it."""

_WORTH_CHANGING = 0.1
"""Share of the steps by which another number of them must differ to be chosen."""


class Allotment:
    """What a training was given.

    Attributes:
        steps: To begin with.
        planned: The recipe's.
        seconds: Time for these steps; None without a budget: the number of steps then stays.
        most: Steps at most, however fast they are.
    """

    def __init__(self, steps: int, planned: int, seconds: float | None, most: int) -> None:
        self.steps, self.planned, self.seconds, self.most = steps, planned, seconds, most
        self._seen: tuple[int, float] = (0, 0.0)

    def again(self, step: int, seconds: float, total: int) -> int:
        """Steps in all, once `step` of `total` have taken `seconds`: at the latest pace, to the end of the time."""
        assert self.seconds is not None
        before, spent = self._seen
        pace = (seconds - spent) / max(1, step - before)
        self._seen = (step, seconds)
        wanted = step + (self.seconds - seconds) / max(pace, 1e-9)
        found = int(np.clip(wanted, max(step + 1, min(FEWEST, self.planned)), self.most))
        return found if abs(found - total) > _WORTH_CHANGING * total else total


@dataclass
class Budget:
    """Time for the whole run.

    Attributes:
        seconds: None means that recipes decide.
        reserve: Seconds kept for what is not training: baselines, export, measuring.
        used: Gives the seconds spent so far in stages that ended.
        shares: Shares of the trainings that have not ended yet, by stage name.
    """

    seconds: float | None
    reserve: float
    used: Callable[[], float]
    shares: dict[str, float]

    def allot(
        self,
        context: Context,
        training: tuple[str, str],
        planned: int,
        measure: Callable[[], float],
        *,
        stretch: float = 1.0,
        portion: float = 1.0,
        followers: float = 0.0,
        spent: float = 0.0,
    ) -> Allotment:
        """Steps for a training: `planned` without a budget, else what fits its share of the time left.

        Args:
            context: Its scratch keeps the decision.
            training: Name of the stage, whose share it has, and of the phase.
            planned: What the recipe says.
            measure: Gives seconds a step; called only with a budget. What it takes itself counts.
            stretch: At most this many times `planned`.
            portion: Of the stage's share, where it has several phases.
            followers: Time of trainings of the same number of steps that come after, as a multiple of this one's.
            spent: Seconds of its time that are gone: what was prepared for it.
        """
        stage, phase = training
        file, most = context.scratch / f"{phase}-steps.json", int(stretch * planned)
        if file.is_file():
            kept = read_json(file)
            return Allotment(int(kept["steps"]), planned, kept["seconds"], most)
        steps, seconds = planned, None
        if self.seconds is not None:
            started = time.monotonic()
            left = max(0.0, self._left(stage, portion) - spent)
            per_step = measure()
            left = max(0.5, left / (1.0 + followers))
            seconds = max(0.5, left - (time.monotonic() - started))
            steps = int(np.clip(seconds / per_step, min(FEWEST, planned), most))
            self._say(context, stage, steps, planned, seconds, per_step, stretch)
        write_json(file, {"steps": steps, "planned": planned, "seconds": seconds})
        return Allotment(steps, planned, seconds, most)

    def seconds_for(self, stage: str, portion: float = 1.0) -> float | None:
        """Seconds that a portion of a stage's share comes to now; None without a budget."""
        return None if self.seconds is None else self._left(stage, portion)

    def _left(self, stage: str, portion: float) -> float:
        assert self.seconds is not None
        left = max(1.0, self.seconds - self.reserve - self.used())
        return left * portion * self.shares[stage] / sum(self.shares.values())

    @staticmethod
    def _say(
        context: Context, stage: str, steps: int, planned: int, seconds: float, per_step: float, stretch: float
    ) -> None:
        said = f"{steps:,} steps (recipe: {planned:,}) fit {seconds / 60:.1f} minutes at {per_step:.3f} s each"
        if seconds / per_step < min(FEWEST, planned):
            context.report.warn(
                f"no time is left of run.budget: {stage} gets its fewest steps, {steps}, of the recipe's {planned:,}; "
                "allow a longer budget"
            )
        elif stretch == 1.0 and steps < planned / 2:
            context.report.warn(f"{said}: {stage} is cut short, and a longer budget would serve it better")
        else:
            context.report.note(said)

    def ended(self, stage: str) -> None:
        """A training has ended: its share goes to those that have not."""
        self.shares.pop(stage, None)


def seconds_per_step(program: Program, optimiser: AdamW, batches: int = 4) -> float:
    """Mean time of a step of an epoch, measured without changing a weight: learning rate 0, a throw-away optimiser.

    A few batches, from the smallest to the largest, are gone through twice, and only the second time counts: a batch
    of a new length makes kernels and memory that later ones of its length find ready. The line through their times
    gives the time of a batch of mean size. It is a first estimate: `Allotment.again` corrects it.
    """
    every = program.batches(0)
    sizes = np.array([program.size(rows) for rows in every])
    picked = np.argsort(sizes, kind="stable")[np.linspace(0, len(every) - 1, min(batches, len(every))).astype(int)]
    for module in program.modules.values():
        module.train()
    times = []
    for rows in [every[index] for index in (*picked, *picked)]:
        started = time.perf_counter()
        collect_gradients(program, optimiser, [rows])
        optimiser.step(0.0)
        times.append(time.perf_counter() - started)
    optimiser.zero_grad()
    optimiser.release()
    return time_at_mean(sizes, sizes[picked], np.array(times[len(picked) :]))


def time_at_mean(sizes: np.ndarray, measured: np.ndarray, times: np.ndarray) -> float:
    """The least-squares line through (`measured`, `times`), at the mean of `sizes`; no less than the shortest time."""
    if np.ptp(measured) == 0:
        return float(times.mean())
    slope = np.cov(measured, times, bias=True)[0, 1] / measured.var()
    return float(max(times.min(), times.mean() + slope * (sizes.mean() - measured.mean())))
