"""How many steps each training gets: its recipe's epochs, or what a budget of minutes leaves it.

A decision is written down before the first step, so that a resumed run goes on with it.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from potstill.pipeline.run import Context
from potstill.storage import read_json, write_json
from potstill.training.optimiser import AdamW
from potstill.training.program import Program

__all__ = ["Budget", "seconds_per_step"]

LONGEST = 4.0
"""A budget stretches a distillation to at most this many times its recipe's length; fine-tuning, which overfits on its
few labels, is never stretched."""


_MORE_MEASURES = 2


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

    def steps(
        self,
        context: Context,
        training: tuple[str, str],
        planned: int,
        measure: Callable[[], float],
        *,
        stretch: float = 1.0,
        portion: float = 1.0,
    ) -> int:
        """Steps for a training: `planned` without a budget, else what fits its share of the time left.

        Args:
            context: Its scratch keeps the decision.
            training: Name of the stage, whose share it has, and of the phase.
            planned: What the recipe says.
            measure: Gives seconds a step; called only with a budget. Where that leaves less than half of what is
                planned it is called again, and the least counts: other programs may have been busy for a moment.
            stretch: At most this many times `planned`.
            portion: Of the stage's share, where it has several phases.
        """
        stage, phase = training
        file = context.scratch / f"{phase}-steps.json"
        if file.is_file():
            return int(read_json(file)["steps"])
        steps = planned
        if self.seconds is not None:
            left = max(1.0, self.seconds - self.reserve - self.used())
            seconds = left * portion * self.shares[stage] / sum(self.shares.values())
            per_step = measure()
            for _ in range(_MORE_MEASURES):
                if seconds / per_step < planned / 2:
                    per_step = min(per_step, measure())
            steps = int(np.clip(seconds / per_step, min(10, planned), stretch * planned))
            said = f"{steps:,} steps (recipe: {planned:,}) fit {seconds / 60:.1f} minutes at {per_step:.3f} s each"
            if seconds / per_step < min(10, planned):
                context.report.warn(f"no time is left of run.budget: {stage} gets its fewest steps, {steps}")
            elif stretch == 1.0 and steps < planned / 2:
                context.report.warn(f"{said}: {stage} is cut short, and a longer budget would serve it better")
            else:
                context.report.note(said)
        write_json(file, {"steps": steps})
        return steps

    def ended(self, stage: str) -> None:
        """A training has ended: its share goes to those that have not."""
        self.shares.pop(stage, None)


def seconds_per_step(program: Program, optimiser: AdamW, batches: int = 8) -> float:
    """Mean time of a step of an epoch, measured without changing a weight: learning rate 0, a throw-away optimiser.

    A few batches, from the smallest to the largest, are gone through twice, and only the second time counts: a batch
    of a new length makes kernels and memory that later ones of its length find ready. The line through their times
    gives the time of a batch of mean size.
    """
    every = program.batches(0)
    sizes = np.array([program.size(rows) for rows in every])
    picked = np.argsort(sizes, kind="stable")[np.linspace(0, len(every) - 1, min(batches, len(every))).astype(int)]
    for module in program.modules.values():
        module.train()
    times = []
    for rows in [every[index] for index in (*picked, *picked)]:
        started = time.perf_counter()
        optimiser.zero_grad()
        terms = program.step(rows)
        total = sum(program.weights[name] * term.sum / max(term.count, 1.0) for name, term in terms.items())
        total.backward()  # type: ignore[union-attr]
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
