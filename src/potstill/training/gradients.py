"""The gradient of one update: of several micro-batches, run by one process or by several."""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from potstill.training.optimiser import AdamW
from potstill.training.processes import ALONE, Processes
from potstill.training.program import Program

__all__ = ["collect_gradients"]


def collect_gradients(
    program: Program,
    optimiser: AdamW,
    micro_batches: Sequence[np.ndarray],
    seeds: Sequence[int] = (),
    processes: Processes = ALONE,
) -> list[dict[str, tuple[float, float]]]:
    """Leave the gradient of Σ weight · Σ sum / Σ count in the optimiser, its part of this process's micro-batches.

    Counts depend on the texts alone, so each process knows their totals before any has run.

    Args:
        program: What is trained.
        optimiser: Made over its modules; gradients of earlier updates are forgotten.
        micro_batches: Of the whole update.
        seeds: What torch's generator is seeded with before each; empty: it is left alone.
        processes: Those that share the update.

    Returns:
        Of each micro-batch, whoever ran it, term → (sum, count).
    """
    optimiser.zero_grad()
    shared = len(micro_batches) > 1 or processes.count > 1
    counts = [program.counts(rows) for rows in micro_batches] if shared else []
    totals = {name: sum(count[name] for count in counts) for name in program.weights} if shared else {}
    sums: dict[int, dict[str, Tensor]] = {}
    for number in processes.share(micro_batches):
        if seeds:
            torch.manual_seed(seeds[number])
        terms = program.step(micro_batches[number])
        counts = counts if shared else [{name: term.count for name, term in terms.items()}]
        losses = [
            program.weights[name] * term.sum / max(totals.get(name, term.count), 1.0) for name, term in terms.items()
        ]
        torch.stack(losses).sum().backward()
        optimiser.collect()
        sums[number] = {name: term.sum.detach() for name, term in terms.items()}
    return _told(sums, counts, processes)


def _told(
    sums: Mapping[int, Mapping[str, Tensor]], counts: Sequence[Mapping[str, float]], processes: Processes
) -> list[dict[str, tuple[float, float]]]:
    """The sums of every micro-batch, where each process knows its own."""
    values = torch.zeros(len(counts), len(counts[0]), dtype=torch.float64)
    for number, terms in sums.items():
        values[number] = torch.stack([terms[name].double() for name in counts[number]]).cpu()
    processes.sum([values])
    return [
        {name: (float(value), count[name]) for name, value in zip(count, row, strict=True)}
        for count, row in zip(counts, values, strict=True)
    ]
