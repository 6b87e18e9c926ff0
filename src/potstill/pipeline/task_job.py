"""What the stages that read labelled data and fine-tune on it ask of a run, whichever command's it is."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from potstill.config import DataSettings, RunSettings, TuningSettings
from potstill.data.parts import Columns
from potstill.data.sources import Source
from potstill.pipeline.training import Conditions

__all__ = ["TaskJob", "TaskSettings"]


class TaskSettings(Protocol):
    """The sections that they read."""

    @property
    def data(self) -> DataSettings:
        """What is learned from."""

    @property
    def run(self) -> RunSettings:
        """Seed, threads, budget."""


class TaskJob(Protocol):
    """A checked run on labelled data."""

    @property
    def settings(self) -> TaskSettings:
        """As resolved."""

    @property
    def data(self) -> Mapping[str, Source]:
        """Role (train, dev, test) → source; absent roles are cut from train or do not exist."""

    @property
    def unlabelled(self) -> Sequence[Source]:
        """Sources of rows without labels."""

    @property
    def sources(self) -> Sequence[tuple[str, Source]]:
        """Every data source with its role, as a report names them."""

    @property
    def columns(self) -> Columns:
        """Where text, pair and label stand."""

    @property
    def tuning(self) -> TuningSettings:
        """How an encoder is fine-tuned."""

    @property
    def conditions(self) -> Conditions:
        """Of its trainings."""
