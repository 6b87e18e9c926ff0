"""The one training loop. It knows programs; it holds no teacher, no student and no task.

Randomness is counted, not streamed: before micro-batch m of update u the generator is seeded by (seed, stage, u, m), so
a run that was killed and goes on draws the same dropout as one that was not.
"""

import hashlib
import itertools
import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from potstill.errors import DataError, NonFiniteError, SettingsError, StorageError
from potstill.progress import SILENT, Reporter
from potstill.training.checkpoint import load_checkpoint, save_checkpoint
from potstill.training.gradients import collect_gradients
from potstill.training.interrupt import Stop, deferred_interrupts
from potstill.training.optimiser import AdamW
from potstill.training.processes import ALONE, Processes
from potstill.training.program import Program

__all__ = ["Schedule", "TrainingResult", "counter_seed", "train"]

Replan = Callable[[int, float, int], int]
_DEV_POINTS, _PLANS = 5, 7


def counter_seed(*parts: object) -> int:
    """A 63-bit seed from any parts, the same on every machine: SHA-256 of their text."""
    return int.from_bytes(hashlib.sha256(repr(parts).encode()).digest()[:8], "big") >> 1


@dataclass(frozen=True)
class Schedule:
    """How long and how fast.

    Attributes:
        steps: Number of updates.
        learning_rate: The peak.
        warmup: Share of the steps over which the rate rises from 0; 0 means none.
        decay: `linear` falls to 0 at the last step; `constant` stays.
        accumulate: Micro-batches an update.
        average: Share of the steps, at the end, whose weights are averaged into the result (Izmailov et al. 2018, arXiv
            1803.05407); 0 means the last weights.
        changes: (step, steps in all from there on), where the number of steps was changed on the way; a decaying rate
            then falls from where it stands to 0 at the new end.
    """

    steps: int
    learning_rate: float
    warmup: float = 0.1
    decay: Literal["linear", "constant"] = "linear"
    accumulate: int = 1
    average: float = 0.0
    changes: tuple[tuple[int, int], ...] = ()

    @property
    def total(self) -> int:
        """Number of updates in all, changes included."""
        return self.changes[-1][1] if self.changes else self.steps

    @property
    def averaged(self) -> int:
        """Number of last updates whose weights are averaged: `average` of them all, rounded."""
        return round(self.average * self.total)

    def changed(self, step: int, total: int) -> "Schedule":
        """The schedule with `total` updates in all, decided before update `step`."""
        return replace(self, changes=(*self.changes, (step, total)))

    def progress(self, step: int) -> float:
        """Share of the updates that is behind update `step` (0-based), 0 at the first to 1 at the last.

        Where their number was changed, it goes on from where it stood, evenly to 1 at the new end.
        """
        passed = [change for change in self.changes if change[0] <= step]
        if not passed:
            return step / max(1, self.steps - 1)
        at, total = passed[-1]
        begun = replace(self, changes=tuple(passed[:-1])).progress(at)
        return begun + (1.0 - begun) * (step - at) / max(1, total - 1 - at)

    def rate(self, step: int) -> float:
        """Learning rate of update `step` (0-based)."""
        passed = [change for change in self.changes if change[0] <= step]
        if passed and self.decay == "linear":
            at, total = passed[-1]
            before = replace(self, changes=tuple(passed[:-1]))
            return before.rate(at) * max(0.0, (total - step) / max(1.0, total - at))
        rising = self.warmup * self.steps
        if step < rising:
            return self.learning_rate * (step + 1) / (rising + 1)
        if self.decay == "constant":
            return self.learning_rate
        return self.learning_rate * max(0.0, (self.steps - step) / max(1.0, self.steps - rising))


@dataclass
class TrainingResult:
    """What a training leaves beside the weights in the program's modules.

    Attributes:
        curve: Points as in report.json's `curves`.
        seconds: Time spent in training, resumed parts included.
        examples: Examples seen.
        steps: Updates made.
    """

    curve: list[dict[str, Any]] = field(default_factory=list)
    seconds: float = 0.0
    examples: int = 0
    steps: int = 0


def _updates(program: Program, accumulate: int, skip: int) -> Iterator[list[np.ndarray]]:
    """Lists of micro-batches, one list an update, epoch after epoch, from update `skip` on."""
    for epoch in itertools.count():
        batches = program.batches(epoch)
        if not batches:
            raise DataError("a training without a single batch", expected="one text or more")
        updates = -(-len(batches) // accumulate)
        if skip >= updates:
            skip -= updates
            continue
        for update in range(skip, updates):
            yield list(batches[update * accumulate : (update + 1) * accumulate])
        skip = 0


class _Training:
    """The state of one call of `train`: everything that a checkpoint holds."""

    def __init__(
        self,
        program: Program,
        optimiser: AdamW,
        schedule: Schedule,
        identity: dict[str, Any],
        processes: Processes = ALONE,
    ) -> None:
        self.program, self.optimiser, self.schedule, self.processes = program, optimiser, schedule, processes
        asked = {name: value for name, value in asdict(schedule).items() if name != "changes"}
        self.identity = {**identity, **program.state(), "schedule": asked, "optimiser": optimiser.facts()}
        self.step = 0
        self.result = TrainingResult()
        self.sums: dict[str, float] = {}
        self.counts: dict[str, float] = {}

    def save(self, folder: Path) -> None:
        if self.processes.rank > 0:  # what it holds is the same
            return
        tensors, averaged = self.optimiser.state_tensors(), self.optimiser.averaged
        progress = {"schema_version": 1, "step": self.step, "averaged": averaged, "identity": self.identity}
        progress |= {"result": asdict(self.result), "sums": self.sums, "counts": self.counts}
        progress["changes"] = [list(change) for change in self.schedule.changes]
        save_checkpoint(folder, self.step, tensors, progress)

    def load(self, folder: Path) -> bool:
        found = load_checkpoint(folder)
        if found is None:
            return False
        tensors, progress = found
        if progress["identity"] != self.identity:
            raise StorageError(
                f"the checkpoint in {folder} is of another training", fix="remove that folder, or choose another --out"
            )
        self.optimiser.load_state_tensors(tensors, progress["averaged"])
        self.step = progress["step"]
        self.result = TrainingResult(**progress["result"])
        self.sums, self.counts = progress["sums"], progress["counts"]
        self.schedule = replace(self.schedule, changes=tuple((at, total) for at, total in progress["changes"]))
        return True

    def update(self, micro_batches: list[np.ndarray], seed: tuple[object, ...]) -> None:
        """One optimiser step: the loss is Σ weight · Σ sum / Σ count over all its micro-batches, whoever runs them."""
        self.program.advance(self.schedule.progress(self.step))
        seeds = [counter_seed(*seed, self.step, number) for number in range(len(micro_batches))]
        found = collect_gradients(self.program, self.optimiser, micro_batches, seeds, self.processes)
        for terms, rows in zip(found, micro_batches, strict=True):
            self._record(terms, rows)
            self.result.examples += len(rows)
        described = self.program.describe(np.concatenate(micro_batches))
        self.optimiser.step(self.schedule.rate(self.step), described, self.processes)
        self.step += 1
        self.result.steps = self.step
        if self.step > self.schedule.total - self.schedule.averaged:
            self.optimiser.add_to_average()

    def _record(self, terms: Mapping[str, tuple[float, float]], rows: np.ndarray) -> None:
        for name, (value, count) in terms.items():
            if not math.isfinite(value):
                raise NonFiniteError(
                    f"the {name} loss is {value} on the batch of {self.program.describe(rows)}",
                    fix="lower the learning rate, or set distill.precision to float32",
                )
            self.sums[name] = self.sums.get(name, 0.0) + value
            self.counts[name] = self.counts.get(name, 0.0) + count

    def passes(self, count: int) -> bool:
        """Whether the last update was the first at or beyond one of `count` equal parts of the training."""
        total = self.schedule.total
        return self.step * count // total > (self.step - 1) * count // total

    @property
    def risen(self) -> bool:
        """Whether the learning rate has reached its peak."""
        return self.step >= self.schedule.warmup * self.schedule.steps

    def change(self, total: int) -> None:
        """Make `total` updates in all."""
        if total != self.schedule.total:
            self.schedule = self.schedule.changed(self.step, total)

    def point(self, dev: float | None) -> dict[str, float]:
        """Add a point to the curve from the terms since the last one, and begin anew."""
        terms = {name: self.sums[name] / self.counts[name] for name in self.sums if self.counts[name]}
        self.result.curve.append(
            {
                "step": self.step,
                "seconds": round(self.result.seconds, 3),
                "examples": self.result.examples,
                "terms": terms,
                "dev": dev,
                "learning_rate": self.schedule.rate(max(0, self.step - 1)),
            }
        )
        self.sums, self.counts = {}, {}
        return terms

    def finish(self) -> None:
        """The averaged weights, where there are any, become the result; the modules hold it as float32."""
        self.optimiser.take_average()
        self.optimiser.release()


def train(
    program: Program,
    optimiser: AdamW,
    schedule: Schedule,
    *,
    seed: tuple[object, ...],
    checkpoints: Path | None = None,
    save_every: float = 120.0,
    evaluate: Callable[[], float] | None = None,
    points: int = 20,
    replan: Replan | None = None,
    report: Reporter = SILENT,
    processes: Processes = ALONE,
) -> TrainingResult:
    """Run a program for `schedule.steps` updates, going on from the newest checkpoint where there is one.

    Args:
        program: Its modules end with the trained weights, float32.
        optimiser: Made over the same modules.
        schedule: Steps and learning rates.
        seed: Parts of the counted randomness, such as (seed, stage name).
        checkpoints: Folder for the state; None means that the training cannot be resumed.
        save_every: Seconds between two checkpoints.
        evaluate: Called at the last point of the curve and at about four before it; its value is shown, never used.
        points: Points of the curve.
        replan: Asked a few times, once the rate has risen: (updates made, seconds they took, updates in all) → updates
            in all from here on. None: the number stays. A checkpoint keeps what was decided before it.
        report: Receives steps, loss terms and examples/s.
        processes: Those that train together, each calling this with the same arguments but for `report`: every one
            runs its share of an update's micro-batches, all end with the same weights, and the first one alone writes
            checkpoints, which all must be able to read. There are as many updates, of the same texts, as alone.

    Raises:
        SettingsError: Fewer micro-batches an update than processes.
        NonFiniteError: NaN or infinity in a loss or a gradient, before the update; the batch is named.
        StorageError: The checkpoint is damaged or of another training.
        KeyboardInterrupt: Passed on after the state was saved.
    """
    if schedule.accumulate < processes.count:
        raise SettingsError(
            f"{processes.count} processes with {schedule.accumulate} micro-batch(es) an update",
            expected="one for each process, or more",
            fix=f"set distill.accumulate to {processes.count} or more",
        )
    training = _Training(program, optimiser, schedule, {"seed": list(map(str, seed))}, processes)
    if checkpoints is not None and training.load(checkpoints):
        report.note(f"going on from step {training.step} of {training.schedule.total}")
    with deferred_interrupts() as stop:
        _run(training, seed, checkpoints, save_every, evaluate, points, replan, report, stop)
    training.finish()
    for module in program.modules.values():
        module.eval()
    return training.result


def _run(
    training: _Training,
    seed: tuple[object, ...],
    checkpoints: Path | None,
    save_every: float,
    evaluate: Callable[[], float] | None,
    points: int,
    replan: Replan | None,
    report: Reporter,
    stop: Stop,
) -> None:
    last_save, processes = time.monotonic(), training.processes
    for micro_batches in _updates(training.program, training.schedule.accumulate, training.step):
        if training.step >= training.schedule.total:
            return
        steps = training.schedule.total
        started = time.perf_counter()
        for module in training.program.modules.values():
            module.train()
        training.update(micro_batches, seed)
        training.result.seconds += time.perf_counter() - started
        if training.passes(points):
            training.point(evaluate() if evaluate is not None and training.passes(_DEV_POINTS) else None)
        if replan is not None and training.step < steps and training.passes(_PLANS) and training.risen:
            training.change(int(processes.first(replan(training.step, training.result.seconds, steps))))
        rate = training.result.examples / max(training.result.seconds, 1e-9)
        terms = training.result.curve[-1]["terms"] if training.result.curve else {}
        report.progress(training.step, training.schedule.total, **terms, examples_per_s=rate)
        due = training.step < training.schedule.total and time.monotonic() - last_save > save_every
        stopping = processes.any(stop.requested)
        if checkpoints is not None and (due or stopping):
            training.save(checkpoints)
            last_save = time.monotonic()
        if stopping:
            raise KeyboardInterrupt
