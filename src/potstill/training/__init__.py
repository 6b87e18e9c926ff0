"""The one training loop, over programs: it knows modules, batches and loss terms, not teachers and students."""

from potstill.training.loop import Schedule, TrainingResult, train
from potstill.training.optimiser import AdamW
from potstill.training.processes import Processes
from potstill.training.program import LossTerm, Program, Ramp, TermValue, Value

__all__ = [
    "AdamW",
    "LossTerm",
    "Processes",
    "Program",
    "Ramp",
    "Schedule",
    "TermValue",
    "TrainingResult",
    "Value",
    "train",
]
