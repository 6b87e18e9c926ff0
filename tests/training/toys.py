"""Programs small enough to be trained in a blink."""

import numpy as np
import torch
from tests.small_models import random_encodings, small_model
from torch import nn

from potstill.data.batching import Batches
from potstill.recipes import RECIPES, build_terms
from potstill.recipes.distilling import Distilling, projections_for
from potstill.recipes.guidance import LiveGuide
from potstill.training import TermValue


class Lines:
    """Least squares on fixed rows; `spoil(rows, total)` may change what a step gives."""

    def __init__(self, rows=12, width=5, batch_size=3, seed=0, dropout=0.0, spoil=None):
        generator = torch.Generator().manual_seed(seed)
        self.inputs = torch.randn(rows, width, generator=generator)
        self.targets = torch.randn(rows, 2, generator=generator)
        model = nn.Sequential(nn.Linear(width, 4), nn.Tanh(), nn.Dropout(dropout), nn.Linear(4, 2))
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.copy_(torch.randn(parameter.shape, generator=generator))
        self.modules = {"model": model}
        self.weights = {"error": 2.0, "size": 0.5}
        self.batch_size, self.spoil = batch_size, spoil
        self.seen: list[list[int]] = []

    def batches(self, epoch):
        order = np.random.default_rng(epoch).permutation(len(self.inputs))
        return [order[start : start + self.batch_size] for start in range(0, len(order), self.batch_size)]

    def advance(self, progress):
        self.told = [*getattr(self, "told", []), progress]

    def size(self, rows):
        return float(len(rows))

    def counts(self, rows):
        return {"error": 2.0 * len(rows), "size": float(len(rows))}

    def step(self, rows):
        self.seen.append(rows.tolist())
        model = self.modules["model"]
        given = model(self.inputs[rows].to(next(model.parameters()).dtype)).float()
        total = (given - self.targets[rows]).square().sum()
        if self.spoil is not None:
            total = self.spoil(rows, total)
        return {
            "error": TermValue(total, 2.0 * len(rows)),
            "size": TermValue(given.square().sum(), float(len(rows))),
        }

    def describe(self, rows):
        return f"rows {' '.join(map(str, rows))}"

    def state(self):
        return {"program": "lines", "batch_size": self.batch_size}


def weights_of(program):
    return {
        f"{module}.{name}": parameter.detach().clone()
        for module, part in program.modules.items()
        for name, parameter in part.named_parameters()
    }


def distilling(*, dropout=0.1, mode="potstill", phase="distil", seed=0, batch_size=3, texts=14):
    """A real little student under a real little teacher, dropout on."""
    student = small_model(layers=2, hidden=16, ffn=24, seed=seed, dropout=dropout)
    teacher = small_model(layers=3, hidden=24, seed=seed + 1)
    chosen = next(part for part in RECIPES[mode].phases if part.name == phase)
    terms = build_terms(chosen, student=2, teacher=3, mapping="uniform", temperature=1.0)
    generator = np.random.default_rng(seed)
    encodings = random_encodings(generator.integers(3, 12, texts), seed=seed)
    batches = Batches(encodings, generator.integers(0, 3, texts), np.arange(100, 100 + texts), batch_size, seed=seed)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        projections = projections_for(terms, 16, 24, shared=RECIPES[mode].projection == "shared")
    return Distilling(student, LiveGuide(teacher, terms, encodings), terms, projections, batches)
