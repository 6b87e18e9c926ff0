"""A teacher's answers out of a table: probabilities, logits or labels, whoever gave them. Knows no model and no split.

    text,neg,pos                    a column for each label
    {"probabilities": {"neg": …}}   an object for each row, as `potstill predict` writes it (`logits` alike)
    text,label[,score]              a label, and how sure of it the teacher is

What cannot be a teacher's answer is refused, with its file and row.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from potstill.data.labels import match_labels, sort_labels
from potstill.data.tables import Table
from potstill.data.words import is_blank
from potstill.errors import DataError

__all__ = ["CONFIDENCE", "LEAST", "NESTED", "Form", "Layout", "Scores", "find_layout", "place", "read_scores"]

Form = Literal["probabilities", "logits", "labels"]
NESTED = ("probabilities", "logits")
"""Columns that hold an object: label → number."""

CONFIDENCE = ("score", "confidence")
"""Columns that say how sure the teacher is of its label."""

LEAST = 1e-6
"""The smallest probability that a teacher is taken to mean: 0 has no logarithm."""

_TOLERANCE = 0.01  # of a row's sum: answers are often written with three decimals


@dataclass(frozen=True)
class Layout:
    """Where answers stand in a table.

    Attributes:
        form: What they are.
        columns: Probabilities or logits: one column a label, or one (of `NESTED`) that holds an object. Labels: the
            label's column, and that of the confidence where there is one.
        names: The labels, where `columns` are named after them; else empty.
    """

    form: Form
    columns: tuple[str, ...]
    names: tuple[str, ...] = ()


@dataclass(frozen=True)
class Scores:
    """A teacher's answers.

    Attributes:
        labels: The C label names.
        logits: float32 (n, C), one row for each of the table's: log-probabilities, or the logits as given. NaN where
            the teacher gave no answer. log p is the teacher's logit up to a constant of the row, which no softmax sees:
            softmax(log p / t) = softmax(z / t) at every temperature t.
        form: What they were made from.
    """

    labels: tuple[str, ...]
    logits: np.ndarray
    form: Form

    @property
    def given(self) -> np.ndarray:
        """Bool (n,): whether there is an answer."""
        return np.asarray(~np.isnan(self.logits[:, 0]))

    @property
    def answers(self) -> np.ndarray:
        """int64 (n,): the index of the most probable label; −1 where there is no answer."""
        found = np.where(self.given[:, None], self.logits, 0.0).argmax(axis=1)
        return np.where(self.given, found, -1)


def place(table: Table, row: int) -> str:
    """Where a row of a table came from: its file, and its number there (1 is the first row of data)."""
    return f"{table.sources[table.file_numbers[row]]} row {int(table.row_numbers[row])}"


def find_layout(
    table: Table, *, form: Form | None, labels: Sequence[str], label: str, others: Sequence[str | None]
) -> Layout:
    """Tell where the answers stand.

    Args:
        table: The scores.
        form: What they are; None: `probabilities` or `logits` by the name of a column that holds objects, else
            probabilities in columns named after the labels, else labels. Columns of logits are never guessed.
        labels: The data's label names; empty where they are not known: then those of the table.
        label: Name of the column of labels.
        others: Columns that hold something else: id, text, second text.

    Raises:
        DataError: There are no such columns, or not for every label.
    """
    wanted = [name for name in NESTED if form in (None, name) and name in table.columns]
    if wanted and form != "labels":
        return Layout("logits" if wanted[0] == "logits" else "probabilities", (wanted[0],))
    has_labels = label in table.columns
    if form != "labels":
        names = _label_columns(table, labels, label if has_labels else None, others)
        if names:
            return Layout(form or "probabilities", names, names)
    if has_labels and form in (None, "labels"):
        sure = [name for name in CONFIDENCE if name in table.columns]
        return Layout("labels", (label, *sure[:1]))
    shown = ", ".join(map(repr, labels[:12])) or "the labels"
    columns = ", ".join(map(repr, table.columns))
    raise DataError(
        f"{', '.join(table.sources[:3])}: no {form or 'scores'} among the columns {columns}",
        expected=f"a column for each of {shown}, one called {' or '.join(NESTED)} that holds objects, or one called "
        f"{label!r}",
        fix="rename the columns, or name what they hold with teacher.scores_form" if form is None else None,
    )


def _label_columns(
    table: Table, labels: Sequence[str], label: str | None, others: Sequence[str | None]
) -> tuple[str, ...]:
    """Columns named after the labels; empty where there are none."""
    free = [name for name in table.columns if name not in {*others, label, *CONFIDENCE, *NESTED}]
    if not labels and label is not None:  # the labels that it gives are the only ones known
        labels = sorted({cell.strip() for cell in table.column(label) if cell and not is_blank(cell)})
    if not labels:
        return tuple(name for name in free if _is_numeric(table, name))
    by_fold = {name.casefold(): name for name in free}
    found = [name if name in free else by_fold.get(name.casefold()) for name in labels]
    if not any(found):
        return ()
    missing = [name for name, column in zip(labels, found, strict=True) if column is None]
    if missing and label is not None:
        return ()
    if missing:
        raise DataError(
            f"{', '.join(table.sources[:3])}: no column for the label {missing[0]!r} beside {[c for c in found if c]}",
            expected=f"a column for each of {', '.join(map(repr, labels[:12]))}",
            fix="add it, or give a column of labels and one of confidences (docs/scores.md)",
        )
    return tuple(name for name in found if name is not None)


def _is_numeric(table: Table, name: str) -> bool:
    cells = [cell for cell in table.column(name) if cell is not None and not is_blank(cell)]
    return bool(cells) and all(_number(cell) is not None for cell in cells)


def _number(cell: Any) -> float | None:
    if isinstance(cell, bool):
        return None
    try:
        return float(cell)
    except (TypeError, ValueError):
        return None


def read_scores(table: Table, layout: Layout, labels: Sequence[str] = ()) -> Scores:
    """The answers of a table, one row for each of its.

    A row whose cells are all blank is one without an answer.

    Args:
        table: The scores.
        layout: By `find_layout`.
        labels: The C label names of the data, in its order; empty: those of the table, sorted.

    Raises:
        DataError: Labels that are not the data's; a number that is none, not finite or out of range; probabilities
            that do not add up to 1 within 0.01; a confidence below 1/C. Each with file and row.
    """
    if layout.form == "labels":
        return _from_labels(table, layout, tuple(labels))
    if layout.names:
        names, cells = layout.names, [table.column(name) for name in layout.columns]
    else:
        names, cells = _objects(table, layout.columns[0])
    order = _order(table, labels or sort_labels(names, len(table), table.sources[0]), names)
    values = _numbers(table, [cells[index] for index in order], [names[index] for index in order])
    ordered = tuple(labels) or tuple(names[index] for index in order)
    if layout.form == "probabilities":
        values = _logarithms(table, values, ordered)
    return Scores(ordered, values.astype(np.float32), layout.form)


def _order(table: Table, labels: Sequence[str], names: Sequence[str]) -> list[int]:
    try:
        return [int(index) for index in match_labels(labels, names)]
    except DataError as error:
        where = f"{', '.join(table.sources[:3])}: scores for the labels {', '.join(map(repr, names[:12]))}"
        raise DataError(where, expected=f"those of the data: {', '.join(map(repr, labels[:12]))}") from error


def _objects(table: Table, column: str) -> tuple[tuple[str, ...], list[list[Any]]]:
    """The labels of a column of objects, and for each its n cells; None where a row has no object."""
    names: tuple[str, ...] = ()
    cells: list[list[Any]] = []
    for row, text in enumerate(table.column(column)):
        value = None if text is None or is_blank(text) else _object(table, row, column, text)
        if value is not None and not names:
            names = tuple(value)
            cells = [[None] * row for _ in names]
        if value is not None and value.keys() != set(names):
            odd = sorted(value.keys() ^ set(names))
            raise DataError(
                f"{place(table, row)}: {column} of {', '.join(map(repr, list(value)[:12]))}",
                expected=f"those of the rows before it: {', '.join(map(repr, names[:12]))} (look at {odd[0]!r})",
            )
        for index, name in enumerate(names):
            cells[index].append(None if value is None else value[name])
    if not names:
        raise DataError(f"{', '.join(table.sources[:3])}: the column {column!r} is empty", expected="an object a row")
    return names, cells


def _object(table: Table, row: int, column: str, text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict) or not value:
        raise DataError(
            f"{place(table, row)}: {column} {text[:60]!r}", expected='an object such as {"neg": 0.1, "pos": 0.9}'
        )
    return value


def _numbers(table: Table, cells: Sequence[Sequence[Any]], names: Sequence[str]) -> np.ndarray:
    """float64 (n, C), all of a row's NaN where all its cells are blank."""
    values = np.full((len(table), len(names)), np.nan)
    for row in range(len(table)):
        own = [column[row] for column in cells]
        if all(cell is None or (isinstance(cell, str) and is_blank(cell)) for cell in own):
            continue
        for index, cell in enumerate(own):
            number = _number(cell)
            if number is None or not math.isfinite(number):
                shown = "nothing" if cell is None or cell == "" else repr(cell)[:40]
                raise DataError(
                    f"{place(table, row)}: {shown} for the label {names[index]!r}",
                    expected="a finite number",
                    fix="mend the row, or leave all its scores empty: it then has none",
                )
            values[row, index] = number
    return values


def _logarithms(table: Table, values: np.ndarray, names: Sequence[str]) -> np.ndarray:
    """Log p of rows that are probabilities, brought to a sum of 1 and no less than `LEAST`."""
    with np.errstate(invalid="ignore"):
        outside = (values < 0) | (values > 1 + 1e-9)
        sums = values.sum(axis=1)
        off = np.abs(sums - 1) > _TOLERANCE
    for row in np.flatnonzero(outside.any(axis=1))[:1]:
        index = int(np.flatnonzero(outside[row])[0])
        raise DataError(
            f"{place(table, row)}: {values[row, index]:g} for the label {names[index]!r}",
            expected="a probability from 0 to 1",
            fix='if these are logits, set teacher.scores_form to "logits"; percentages are to be divided by 100',
        )
    for row in np.flatnonzero(off)[:1]:
        shown = ", ".join(f"{name} {value:g}" for name, value in list(zip(names, values[row], strict=True))[:12])
        raise DataError(
            f"{place(table, row)}: {shown} add up to {sums[row]:g}",
            expected=f"probabilities that add up to 1 within {_TOLERANCE:g}",
            fix='give a column for every label; if these are logits, set teacher.scores_form to "logits"',
        )
    return np.asarray(np.log(np.maximum(values / sums[:, None], LEAST)))


def _from_labels(table: Table, layout: Layout, labels: tuple[str, ...]) -> Scores:
    cells = table.column(layout.columns[0])
    sure = table.column(layout.columns[1]) if len(layout.columns) > 1 else [None] * len(cells)
    own = [None if cell is None or is_blank(cell) else cell.strip() for cell in cells]
    names = labels or sort_labels([cell for cell in own if cell is not None], len(own), table.sources[0])
    index = {name: number for number, name in enumerate(names)}
    folded = {name.casefold(): number for name, number in index.items()}
    logits = np.full((len(own), len(names)), np.nan)
    for row, (cell, confidence) in enumerate(zip(own, sure, strict=True)):
        if cell is None:
            continue
        number = index.get(cell, folded.get(cell.casefold()))
        if number is None:
            raise DataError(
                f"{place(table, row)}: the label {cell[:60]!r}",
                expected=f"one of the data's: {', '.join(map(repr, names[:12]))}",
                fix="write labels alike; leave the cell empty where the teacher gave no answer",
            )
        share = _confidence(table, row, confidence, len(names))
        logits[row] = np.log(max((1 - share) / (len(names) - 1), LEAST))
        logits[row, number] = np.log(share)
    return Scores(names, logits.astype(np.float32), "labels")


def _confidence(table: Table, row: int, cell: str | None, count: int) -> float:
    if cell is None or is_blank(cell):
        return 1.0
    value = _number(cell)
    if value is None or not 1 / count <= value <= 1:
        raise DataError(
            f"{place(table, row)}: a confidence of {cell.strip()[:40]!r}",
            expected=f"a number from 1/{count} (a mere guess among {count} labels) to 1",
            fix="percentages are to be divided by 100; leave the cell empty where it is not known",
        )
    return value
