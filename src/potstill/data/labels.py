"""Label names: where they come from, their order, and which output of a model stands for which.

Labels are matched by name, never by position, unless the user says that the order is the same.
"""

import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np

from potstill.data.examples import UNLABELLED
from potstill.errors import DataError, SettingsError

__all__ = [
    "GoldRule",
    "LabelRule",
    "check_known",
    "check_labels_of_model",
    "match_labels",
    "no_threshold",
    "sort_labels",
]

_SHOWN = 12
_MANY_CLASSES = 100


class GoldRule(Protocol):
    """How cells of the label column become gold answers, and what those of a run must be fit for."""

    @property
    def word(self) -> str:
        """What one is called: label, score."""

    @property
    def reads_blank(self) -> bool:
        """Whether a blank cell is an answer too: none of the labels."""

    def name(self, cell: str) -> Any:
        """The gold answer in a cell; None where the row is left out; `ValueError`, why the row cannot be used."""

    def labels(self, gold: Any) -> tuple[str, ...]:
        """The names of the labels in a gold answer; none where it is a number."""

    def names(self, labels: Collection[str], rows: int, most: int, where: str) -> tuple[str, ...]:
        """The names of train's labels, in the order of a model's outputs; none where answers are numbers.

        Args:
            labels: Those found.
            rows: How many rows they come from.
            most: How many the row with most of them has.
            where: What they come from, for errors.

        Raises:
            DataError: As `sort_labels`, or labels that look as if they were several in one.
        """

    def settle(self, golds: Mapping[str, Sequence[Any]]) -> tuple[str, ...]:
        """Check the gold answers of all splits (role → golds, train first); the label names, where answers have any."""

    def check_left(self, golds: Mapping[str, Sequence[Any]]) -> None:
        """Check them once missing splits are cut and overlaps are out."""

    def array(self, golds: Sequence[Any], names: Sequence[str]) -> np.ndarray:
        """Golds as `Examples.labels`."""

    def missing(self, count: int, names: Sequence[str]) -> np.ndarray:
        """`Examples.labels` of rows without one."""

    def facts(self, golds: Mapping[str, Sequence[Any]], names: Sequence[str]) -> dict[str, Any]:
        """What the report's "data" says of them."""


@dataclass(frozen=True)
class LabelRule:
    """How a cell of the label column becomes a label's name.

    Attributes:
        threshold: None: the cell is the name, whitespace around it taken off. A number: cells are numbers, those
            from it up are `positive`, those below it `negative`.
        margin: With a threshold: rows with |value − threshold| < margin are left out (and counted); ≥ 0.
    """

    threshold: float | None = None
    margin: float = 0.0
    word: ClassVar[str] = "label"
    reads_blank: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.threshold is not None and not math.isfinite(self.threshold):
            raise SettingsError(f"a label threshold of {self.threshold}", expected="a finite number")
        if not self.margin >= 0 or (self.margin and self.threshold is None):
            raise SettingsError(f"a label margin of {self.margin}", expected="0 or more, and a label threshold with it")

    def name(self, cell: str) -> str | None:
        """The label's name; None where the row is left out.

        Raises:
            ValueError: With a threshold, the cell is no finite number.
        """
        if self.threshold is None:
            return cell.strip()
        value = _number(cell)
        if value is None:
            raise ValueError(f"label {cell.strip()[:40]!r} is no number")
        if abs(value - self.threshold) < self.margin:
            return None
        return "positive" if value >= self.threshold else "negative"

    @staticmethod
    def labels(gold: str) -> tuple[str, ...]:
        """It alone."""
        return (gold,)

    @staticmethod
    def names(labels: Collection[str], rows: int, most: int, where: str) -> tuple[str, ...]:
        """As `sort_labels` has them."""
        return sort_labels(labels, rows, where)

    @classmethod
    def settle(cls, golds: Mapping[str, Sequence[Any]]) -> tuple[str, ...]:
        """The names of train's labels, in order (`sort_labels`).

        Raises:
            DataError: As `sort_labels`; a label in dev or test that train has not.
        """
        names = cls.names(set(golds["train"]), len(golds["train"]), 1, "train")
        check_known(golds, names)
        return names

    @staticmethod
    def check_left(golds: Mapping[str, Sequence[Any]]) -> None:
        """Raise `DataError` where train has one class alone left."""
        if len(classes := set(golds["train"])) < 2:
            raise DataError(
                f"train: one class only, {min(classes)!r}, once dev and test are out", expected="two or more"
            )

    @staticmethod
    def array(golds: Sequence[Any], names: Sequence[str]) -> np.ndarray:
        """int64 (n,), indices into `names`."""
        place = {name: index for index, name in enumerate(names)}
        return np.array([place[name] for name in golds], dtype=np.int64)

    @staticmethod
    def missing(count: int, names: Sequence[str]) -> np.ndarray:
        """int64 (count,), −1; `names` play no part."""
        return np.full(count, UNLABELLED, dtype=np.int64)

    @staticmethod
    def facts(golds: Mapping[str, Sequence[Any]], names: Sequence[str]) -> dict[str, Any]:
        """How many rows of each split have each label."""
        counted = {role: Counter(found) for role, found in golds.items()}
        return {"labels": {role: {name: found[name] for name in names} for role, found in counted.items()}}


def check_known(labels: Mapping[str, Iterable[str]], names: Sequence[str]) -> None:
    """Raise `DataError` for the first split (role → its labels) with labels that are not among train's `names`."""
    for role, found in labels.items():
        if unknown := sorted(set(found) - set(names)):
            raise DataError(
                f"{role} has labels that train has not: {_shown(unknown)} among {_shown(sorted(set(found)))}",
                expected=f"those of train: {_shown(names)}",
                fix="write labels alike in every split",
            )


def no_threshold(threshold: float | None, margin: float, answers: str) -> None:
    """Raise `SettingsError` where a threshold or a margin is given for `answers` that are not made by one."""
    if threshold is not None or margin:
        raise SettingsError(
            f"a label threshold of {threshold} for {answers}",
            expected=f"{answers} as they are",
            fix="leave the threshold and its margin out",
        )


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def sort_labels(names: Iterable[str], rows: int, where: str) -> tuple[str, ...]:
    """The distinct names, sorted: by value where all are numbers, else by name with numbers in them by value.

    Args:
        names: The name of every labelled row, repeats included or not.
        rows: How many rows they come from.
        where: What they come from, for errors.

    Raises:
        DataError: Fewer than two; two that differ only in spelling (`1` and `1.0`, `Yes` and `yes`); or a column that
            holds measurements or texts, not classes.
    """
    distinct = set(names)
    values = {name: _number(name) for name in distinct}
    if len(distinct) < 2:
        found = f"one class only, {min(distinct)!r}," if distinct else "no labels"
        raise DataError(
            f"{where}: {found} in {rows} rows", expected="two classes or more", fix="check the label column"
        )
    spelled: dict[str | float, str] = {}
    for name in sorted(distinct):
        value = values[name]
        other = spelled.setdefault(name.casefold() if value is None else value, name)
        if other != name:
            raise DataError(f"{where}: labels {other!r} and {name!r} differ only in spelling", fix="write them alike")
    numbers = [value for value in values.values() if value is not None]
    if len(numbers) == len(distinct) > _MANY_CLASSES and any(value % 1 for value in numbers):
        raise DataError(
            f"{where}: {len(distinct)} different numbers as labels",
            fix='learn them as scores (data.task = "regression"), or set data.label_threshold to make two classes',
        )
    if len(distinct) > _MANY_CLASSES and len(distinct) * 2 > rows:
        raise DataError(
            f"{where}: {len(distinct)} different labels in {rows} rows", expected="classes", fix="check the column"
        )
    if len(numbers) == len(distinct):
        return tuple(sorted(distinct, key=lambda name: (float(name), name)))
    return tuple(sorted(distinct, key=_natural))


def _natural(name: str) -> list[tuple[int, int, str]]:
    parts = re.split(r"([0-9]+)", name)
    return [(0, int(part), part) if index % 2 else (1, 0, part) for index, part in enumerate(parts)]


def match_labels(data: Sequence[str], model: Sequence[str], *, assume_order: bool = False) -> np.ndarray:
    """Which output of a model stands for each label of the data, by name.

    Args:
        data: The k label names of the data, in its order.
        model: The k names of the model's outputs, in its order.
        assume_order: Where not one name is shared (`LABEL_0`, …, or `NEGATIVE` for `0`): take the order to be the same.

    Returns:
        int64 (k,): `logits[:, result]` has the data's order. Names are matched exactly, else without regard to case.

    Raises:
        DataError: The names are not the same set; both lists are shown.
    """
    for fold in (str, str.casefold):
        places = {fold(name): place for place, name in enumerate(model)}
        wanted = [fold(name) for name in data]
        if len(places) == len(model) == len(set(wanted)) and places.keys() == set(wanted):
            return np.array([places[name] for name in wanted], dtype=np.int64)
    shared = {name.casefold() for name in data} & {name.casefold() for name in model}
    if assume_order and not shared and len(data) == len(model):
        return np.arange(len(model), dtype=np.int64)
    if shared or len(data) != len(model):
        fix = "give both the same labels, or fine-tune the model on the data's (teacher.trained = false)"
    else:
        fix = (
            "write the data's names into the model's id2label, or, if they are known to stand in the data's order, set "
            "teacher.same_label_order = true"
        )
    raise DataError(f"labels of the model: {_shown(model)}", expected=f"those of the data: {_shown(data)}", fix=fix)


def check_labels_of_model(found: Iterable[str], model: Sequence[str], where: str) -> None:
    """Raise `DataError`, with both lists, where labels found in a file are not the model's; it need not hold all."""
    names = set(found)
    if unknown := names - set(model):
        shown = sorted(unknown, key=_natural) + sorted(names - unknown, key=_natural)
        raise DataError(
            f"labels of {where}: {_shown(shown)}",
            expected=f"those of the model: {_shown(model)}",
            fix="write labels as the model does, or name the column that holds them (--label)",
        )


def _shown(names: Sequence[str]) -> str:
    more = f", … ({len(names)} in all)" if len(names) > _SHOWN else ""
    return ", ".join(map(repr, names[:_SHOWN])) + more
