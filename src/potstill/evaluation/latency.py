"""How long engines take, measured by turns in one run, so that a busy machine is busy for all of them alike.

A turn is a short burst of one engine, then the next engine takes its turn on the same texts, round after round. In a
turn of several runs the first is not counted: it wakes the engine's threads and refills the caches that the engine
before it used. All engines make the same number of counted runs on the same texts, so their quotients are paired.

Knows engines and arrays, not models, files or tokenizers (tokenisation is measured apart, by `measure_tokenisation`).
"""

import contextlib
import gc
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from potstill.errors import DataError
from potstill.evaluation.latency_inputs import Inputs, Quantiles, quantiles
from potstill.progress import SILENT, Reporter

if TYPE_CHECKING:
    from potstill.engines import Engine

__all__ = [
    "Latency",
    "measure_latency",
    "measure_tokenisation",
    "speedup_shares",
    "speedups",
]

_BURST_SECONDS = 0.2
_LONGEST_BURST = 8
_WAKE_BELOW_SECONDS = 0.05


@dataclass(frozen=True)
class Latency:
    """What `measure_latency` found.

    Attributes:
        ms: By engine, then length, then batch size: p50 and p95 in milliseconds.
        repeats: By length, then batch size: counted runs of each engine.
    """

    ms: dict[str, dict[str, dict[str, Quantiles]]]
    repeats: dict[str, dict[str, int]]

    def on(self, length: str = "dev") -> dict[str, dict[str, Quantiles]]:
        """By engine, then batch size: the times on one length."""
        return {name: dict(cells[length]) for name, cells in self.ms.items()}

    @property
    def fewest_repeats(self) -> int:
        """Counted runs where there were fewest."""
        return min(count for sizes in self.repeats.values() for count in sizes.values())


def measure_latency(
    engines: Mapping[str, "Engine"],
    inputs: Mapping[str, Inputs],
    *,
    seconds: float = 40.0,
    least: int = 3,
    most: int = 200,
    clock: Callable[[], float] = time.perf_counter,
    report: Reporter = SILENT,
) -> Latency:
    """Measure all engines, length by length and batch size by batch size, by turns.

    Args:
        engines: What to measure, by name; the reference (the teacher) among them.
        inputs: For each engine, what `latency_inputs` made of its encodings; the same lengths and sizes for all.
        seconds: For the whole table. It is exceeded only where `least` runs of each engine do not fit.
        least: Fewest counted runs of each engine in each cell.
        most: Most counted runs of each engine in each cell, at least `least`.
        clock: Seconds; another one in tests.
        report: Receives progress in cells.

    Raises:
        DataError: No engines, or inputs that do not fit each other.
    """
    cells = _cells(engines, inputs)
    ms: dict[str, dict[str, dict[str, Quantiles]]] = {name: {} for name in engines}
    repeats: dict[str, dict[str, int]] = {}
    end = clock() + seconds
    with _no_collection():
        for done, (length, size) in enumerate(cells):
            report.progress(done, len(cells), length=float(length) if length.isdigit() else 0.0, batch=float(size))
            batches = {name: inputs[name][length][size] for name in engines}
            share = max(0.0, end - clock()) / (len(cells) - done)
            times = _by_turns(engines, batches, share, least, max(least, most), clock)
            for name, runs in times.items():
                ms[name].setdefault(length, {})[size] = quantiles(1000 * np.array(runs))
            repeats.setdefault(length, {})[size] = len(next(iter(times.values())))
    report.progress(len(cells), len(cells))
    return Latency(ms, repeats)


def _cells(engines: Mapping[str, "Engine"], inputs: Mapping[str, Inputs]) -> list[tuple[str, str]]:
    """(length, batch size) of each cell, cheapest first, so that time left over goes to the costly ones."""
    if not engines or set(engines) - set(inputs):
        missing = sorted(set(engines) - set(inputs))
        raise DataError(f"{len(engines)} engines, no inputs for {missing}", expected="inputs for every engine, by name")
    shapes = {
        name: {
            (length, size): len(batches) for length, sizes in inputs[name].items() for size, batches in sizes.items()
        }
        for name in engines
    }
    first = next(iter(shapes))
    for name, counts in shapes.items():
        if counts != shapes[first] or not counts or min(counts.values()) < 1:
            raise DataError(
                f"inputs {counts} for {name}", expected=f"{shapes[first]} as for {first}, one batch at least"
            )
    cost = {
        (length, size): sum(batch["input_ids"].size for batch in inputs[first][length][size]) / count
        for (length, size), count in shapes[first].items()
    }
    return sorted(cost, key=lambda cell: cost[cell])


def _by_turns(
    engines: Mapping[str, "Engine"],
    batches: Mapping[str, Sequence[Mapping[str, np.ndarray]]],
    seconds: float,
    least: int,
    most: int,
    clock: Callable[[], float],
) -> dict[str, list[float]]:
    """Seconds of every counted run of each engine, equally many for all."""
    began = clock()
    typical = {
        name: _warm_up(engine, batches[name], seconds / (4 * len(engines)), clock) for name, engine in engines.items()
    }
    burst = int(np.clip(_BURST_SECONDS / max(*typical.values(), 1e-9), 1, _LONGEST_BURST))
    times: dict[str, list[float]] = {name: [] for name in engines}
    count, round_seconds = 0, 0.0
    while count < least or (count < most and clock() - began + round_seconds <= seconds):
        round_began = clock()
        turn = min(burst, most - count)
        for name, engine in engines.items():
            own = batches[name]
            if turn > 1 and typical[name] < _WAKE_BELOW_SECONDS:
                engine.run(own[(count - 1) % len(own)])
            for position in range(count, count + turn):
                before = clock()
                engine.run(own[position % len(own)])
                times[name].append(clock() - before)
        count += turn
        round_seconds = clock() - round_began
    return times


def _warm_up(
    engine: "Engine", batches: Sequence[Mapping[str, np.ndarray]], seconds: float, clock: Callable[[], float]
) -> float:
    """Show an engine its batches, so that what it prepares for a new shape is prepared; the seconds of a run."""
    began = clock()
    shortest = float("inf")
    # Twice over the first batch: an engine's very first run is not typical.
    for batch in [batches[0], *batches]:
        before = clock()
        engine.run(batch)
        shortest = min(shortest, clock() - before)
        if clock() - began > seconds:
            break
    return shortest


def measure_tokenisation(
    encode: Callable[[Sequence[str], Sequence[str] | None], object],
    texts: Sequence[str],
    pairs: Sequence[str] | None = None,
    *,
    batch_sizes: Sequence[int] = (1, 32),
    repeats: int = 100,
    seed: int = 0,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, Quantiles]:
    """Measure what turns texts into ids, on texts drawn as `latency_inputs` draws them.

    Args:
        encode: `TextEncoder.encode`.
        texts: One at least.
        pairs: The second text of each pair; None for tasks on one text.
        batch_sizes: Texts in one call.
        repeats: Counted calls of each size.
        seed: Of the drawing.
        clock: Seconds; another one in tests.

    Returns:
        By batch size: p50 and p95 in milliseconds.
    """
    if not len(texts):
        raise DataError("no texts", expected="one at least")
    order = np.random.default_rng(seed).permutation(len(texts))
    result: dict[str, Quantiles] = {}
    with _no_collection():
        for size in batch_sizes:
            runs = []
            for row in np.resize(order, (repeats + 1, size)):
                first = [texts[i] for i in row]
                second = None if pairs is None else [pairs[i] for i in row]
                before = clock()
                encode(first, second)
                runs.append(1000 * (clock() - before))
            result[str(size)] = quantiles(np.array(runs[1:]))
    return result


def speedups(latency: Mapping[str, Mapping[str, Quantiles]], reference: str) -> dict[str, dict[str, float]]:
    """How many times faster than the reference each engine is: p50 of the reference / p50 of the engine.

    Args:
        latency: By engine, then batch size (`Latency.on`).
        reference: The engine that is 1.

    Returns:
        By engine, then batch size.
    """
    base = _of(latency, reference)
    return {
        name: {size: base[size]["p50"] / times["p50"] for size, times in sizes.items()}
        for name, sizes in latency.items()
    }


def speedup_shares(
    latency: Mapping[str, Mapping[str, Quantiles]], *, reference: str, teacher: str, student: str
) -> dict[str, dict[str, float]]:
    """What of a speed-up is the engine's doing and what the student's: speedup = engine_share × student_share.

    engine_share = reference / teacher, student_share = teacher / student, each a quotient of p50.

    Args:
        latency: By engine, then batch size (`Latency.on`).
        reference: The teacher as it was, in torch float32.
        teacher: The teacher in the student's engine and precision.
        student: The student there.

    Returns:
        `{"speedup", "engine_share", "student_share"}`, each by batch size.
    """
    before, same, after = (_of(latency, name) for name in (reference, teacher, student))
    return {
        "speedup": {size: before[size]["p50"] / after[size]["p50"] for size in after},
        "engine_share": {size: before[size]["p50"] / same[size]["p50"] for size in after},
        "student_share": {size: same[size]["p50"] / after[size]["p50"] for size in after},
    }


def _of(latency: Mapping[str, Mapping[str, Quantiles]], name: str) -> Mapping[str, Quantiles]:
    if name not in latency:
        raise DataError(f"no engine {name!r} was measured", expected=" | ".join(latency))
    return latency[name]


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """Python's garbage collector off, so that none of its pauses is charged to an engine."""
    was_on = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
