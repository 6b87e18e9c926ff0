"""Gold answers that are sets of labels: how a cell holds several, and what the splits of them must be fit for."""

import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from potstill.data.examples import UNLABELLED
from potstill.data.labels import check_known, sort_labels
from potstill.errors import DataError, SettingsError

__all__ = ["SEPARATORS", "LabelSetRule", "no_separator"]

SEPARATORS = (",", ";", "|")
"""What may stand between the labels in a cell."""


@dataclass(frozen=True)
class LabelSetRule:
    """How a cell of the label column becomes a set of labels; a `potstill.data.labels.GoldRule`.

    A cell holds names with a separator between them (`joy,love`), or a JSON list (`["joy", "love"]`), which is also how
    a list in JSON Lines or Parquet arrives. A blank cell and an empty list are a text that has none of the labels.

    Attributes:
        separator: Between two names; one of `SEPARATORS`.
    """

    separator: str = ","
    word: ClassVar[str] = "set of labels"
    reads_blank: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.separator not in SEPARATORS:
            raise SettingsError(f"the label separator {self.separator!r}", expected=" | ".join(map(repr, SEPARATORS)))

    def name(self, cell: str) -> tuple[str, ...]:
        """The labels in a cell, each once, sorted by name.

        Raises:
            ValueError: An empty name between separators, or what looks like a list and is no JSON list of names.
        """
        text = cell.strip()
        if not text:
            return ()
        named = _listed(text) if text[0] == "[" and text[-1] == "]" else text.split(self.separator)
        names = [name.strip() for name in named]
        if not all(names):
            raise ValueError(f"labels {text[:40]!r} with an empty name among them")
        return tuple(sorted(set(names)))

    @staticmethod
    def labels(gold: tuple[str, ...]) -> tuple[str, ...]:
        """All of the set."""
        return gold

    def names(self, labels: Collection[str], rows: int, most: int, where: str) -> tuple[str, ...]:
        """As `sort_labels` has them.

        Where no row has two labels, yet some hold another separator, that is what stands between labels.
        """
        for mark in SEPARATORS if most <= 1 else ():
            joined = sorted(name for name in labels if mark in name)
            if joined:
                raise DataError(
                    f"{where}: no row has two labels, and {len(joined)} of the labels have {mark!r} in them "
                    f"({joined[0][:40]!r})",
                    expected=f"labels with {self.separator!r} between them",
                    fix=f'name the separator (data.label_separator = "{mark}", or --label-separator)',
                )
        return sort_labels(labels, rows, where)

    def settle(self, golds: Mapping[str, Sequence[Any]]) -> tuple[str, ...]:
        """The names of train's labels, in order (`sort_labels`).

        Raises:
            DataError: As `names`; a label in dev or test that train has not.
        """
        labels = {role: {name for found in sets for name in found} for role, sets in golds.items()}
        most = max(map(len, golds["train"]), default=0)
        names = self.names(labels["train"], len(golds["train"]), most, "train")
        check_known(labels, names)
        return names

    @staticmethod
    def check_left(golds: Mapping[str, Sequence[Any]]) -> None:
        """Raise `DataError` for a split none of whose texts has a label: nothing can be learned, or judged on it."""
        for role, sets in golds.items():
            if sets and not any(sets):
                raise DataError(
                    f"{role}: none of its {len(sets)} usable rows has a label",
                    expected="labels in some of them",
                    fix="check the label column; texts whose labels are not known can be given as unlabelled",
                )

    @staticmethod
    def array(golds: Sequence[Any], names: Sequence[str]) -> np.ndarray:
        """int8 (n, C), 1 where the row has the label, else 0."""
        place = {name: index for index, name in enumerate(names)}
        marks = np.zeros((len(golds), len(names)), dtype=np.int8)
        for row, found in enumerate(golds):
            marks[row, [place[name] for name in found]] = 1
        return marks

    @staticmethod
    def missing(count: int, names: Sequence[str]) -> np.ndarray:
        """int8 (count, C), −1: labels that are not known."""
        return np.full((count, len(names)), UNLABELLED, dtype=np.int8)

    @staticmethod
    def facts(golds: Mapping[str, Sequence[Any]], names: Sequence[str]) -> dict[str, Any]:
        """How many rows of each split have each label, and how many have none."""
        counted = {role: Counter(name for found in sets for name in found) for role, sets in golds.items()}
        return {
            "labels": {role: {name: found[name] for name in names} for role, found in counted.items()},
            "without_label": {role: sum(not found for found in sets) for role, sets in golds.items()},
        }


def no_separator(separator: str, answers: str) -> None:
    """Raise `SettingsError` where a separator is named for `answers` that are no sets of labels."""
    if separator != ",":
        raise SettingsError(
            f"the label separator {separator!r} for {answers}", expected="sets of labels", fix="leave the separator out"
        )


def _listed(text: str) -> list[str]:
    """The names in a JSON list; a whole number stands for itself."""
    try:
        found = json.loads(text, parse_int=str)
    except (ValueError, RecursionError):
        raise ValueError(f"labels {text[:40]!r} look like a list and are no JSON list") from None
    if not all(isinstance(name, str) for name in found):
        raise ValueError(f"labels {text[:40]!r} are no list of names")
    return list(found)
