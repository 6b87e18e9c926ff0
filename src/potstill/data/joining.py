"""Which row of a table of scores belongs to which row of the data: by id, by text, by row number, or by order.

Told from the columns that are there, never guessed from values; every way is named, so that plan and report can say it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from potstill.data.answers import CONFIDENCE, Layout, Scores, place
from potstill.data.parts import Columns
from potstill.data.tables import Table
from potstill.errors import DataError

__all__ = ["ID", "By", "Join", "join"]

ID = "id"
"""The column that names rows."""

By = Literal["id", "text", "row number", "row order", "the same row"]
_ALIKE = 0.01  # difference of probabilities up to which two answers are the same
_PREDICTED = {"id", "label", "probabilities"}
_Key = str | tuple[str, ...]


@dataclass(frozen=True)
class Join:
    """Rows of data and the scores that belong to them.

    Attributes:
        rows: int64 (n,), for each row of the data the row of the scores; −1 where there is none.
        by: How they were matched; None where nothing could match them.
    """

    rows: np.ndarray
    by: By | None


def join(scores: Scores, table: Table, data: Table, columns: Columns, *, role: str, layout: Layout) -> Join:
    """Match the rows of `data` with those of a table of scores.

    By the column `id` where both have one; else by the text (and the second text), character by character; else, of
    train alone, by row number where the scores have an `id` (what `potstill predict` writes), or by order where they
    have no column but the scores and are as many. Scores that stand twice must agree within 0.01 of
    probability; the first counts.

    Args:
        scores: n answers.
        table: The n rows that they were read from.
        data: The rows of a split.
        columns: Where the data's texts are.
        role: The split: train, dev, test or unlabelled.
        layout: Where the answers stand in `table`.

    Raises:
        DataError: One key with two different answers; ids that may be either row numbers or the data's own; another
            text under an id; rows that could be matched by order alone, and are not as many.
    """
    texts = list(columns.texts)
    by_text = all(name in table.columns for name in texts)
    if ID in table.columns and ID in data.columns:
        if set(table.columns) <= _PREDICTED and role == "train":
            _check_numbering(table, data)
        joined = _by_key(scores, table, data, [ID], "id")
        _check_texts(table, data, joined.rows, texts if by_text else [])
        return joined
    if by_text:
        return _by_key(scores, table, data, texts, "text")
    if role != "train":
        return Join(np.full(len(data), -1, np.int64), None)
    if ID in table.columns:
        return _by_number(scores, table, data)
    if others := set(table.columns) - {*layout.columns, columns.label, "label", *CONFIDENCE}:
        raise DataError(
            f"{', '.join(table.sources[:3])} has the columns {', '.join(map(repr, sorted(others)))} beside the scores, "
            f"and neither {ID!r} nor {' and '.join(map(repr, texts))}, by which the data could be joined",
            expected="the data's names, or no other column",
            fix=f"rename the column that holds the texts to {texts[0]!r}, or the data's with --text",
        )
    if len(table) != len(data) or table.bad or data.bad:
        found = f"{len(table) + len(table.bad):,} scores and {len(data) + len(data.bad):,} rows of train"
        unusable = f", {len(table.bad) + len(data.bad)} of which cannot be read" if table.bad or data.bad else ""
        raise DataError(
            f"{', '.join(table.sources[:3])} has neither the column {ID!r} nor {texts[0]!r}, and there are "
            f"{found}{unusable}",
            expected="as many of both, where their order is all that joins them",
            fix=f"write the column {texts[0]!r} or {ID!r} beside the scores",
        )
    return Join(np.arange(len(data), dtype=np.int64), "row order")


def _differ(scores: Scores, one: int, other: int) -> bool:
    """Whether two answers say different things: a model in bfloat16 never says the same twice."""
    both = scores.logits[[one, other]].astype(np.float64)
    shares = np.exp(both - both.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    return bool(np.abs(shares[0] - shares[1]).max() > _ALIKE)


def _keys(table: Table, names: Sequence[str]) -> list[_Key | None]:
    if len(names) == 1:
        own: list[_Key | None] = [cell.strip() if cell and names[0] == ID else cell for cell in table.column(names[0])]
        return own
    every = zip(*(table.column(name) for name in names), strict=True)
    return [None if None in cells else tuple(map(str, cells)) for cells in every]


def _by_key(scores: Scores, table: Table, data: Table, names: Sequence[str], by: By) -> Join:
    first: dict[_Key, int] = {}
    given = scores.given
    for row, key in enumerate(_keys(table, names)):
        if key is None or not given[row]:
            continue
        other = first.setdefault(key, row)
        if other != row and _differ(scores, other, row):
            shown = key if isinstance(key, str) else " | ".join(key)
            raise DataError(
                f"{place(table, other)} and {place(table, row)} score the same {by} {shown[:60]!r} differently",
                expected="one answer for each",
                fix="keep one of them, or their mean",
            )
    return Join(np.array([-1 if key is None else first.get(key, -1) for key in _keys(data, names)], np.int64), by)


def _whole(cell: str | None) -> int | None:
    return int(cell) if cell is not None and cell.strip().isdecimal() else None


def _check_numbering(table: Table, data: Table) -> None:
    """Row numbers are what `potstill predict` writes as ids; the data's own ids may be others."""
    own = [_whole(cell) for cell in data.column(ID)]
    theirs = [_whole(cell) for cell in table.column(ID)]
    if own == data.row_numbers.tolist() or None in theirs:
        return
    last = int(data.row_numbers.max(initial=0))
    if all(1 <= number <= last for number in theirs if number is not None):
        raise DataError(
            f"{table.sources[0]}: its ids may be row numbers, as potstill predict writes them, or those of the "
            f"column {ID!r} of {data.sources[0]}, which are others",
            expected="ids that can only be one of the two",
            fix=f"write the texts beside the scores, or rename the column {ID!r} of the data to join by row number",
        )


def _check_texts(table: Table, data: Table, rows: np.ndarray, texts: Sequence[str]) -> None:
    for name in texts:
        theirs, own = table.column(name), data.column(name)
        for row in np.flatnonzero(rows >= 0):
            if theirs[rows[row]] is not None and theirs[rows[row]] != own[row]:
                raise DataError(
                    f"{place(table, int(rows[row]))} and {place(data, int(row))} have the same id and another {name}",
                    expected="ids that mean the same text in both",
                )


def _by_number(scores: Scores, table: Table, data: Table) -> Join:
    """By the numbers of rows in the data's file."""
    if len(data.sources) > 1:
        raise DataError(
            f"{table.sources[0]} names rows by number, and train is {len(data.sources)} files",
            expected="one file",
            fix="write the texts beside the scores",
        )
    place_of = {int(number): row for row, number in enumerate(data.row_numbers)}
    unusable = {row.row for row in data.bad}
    rows, seen = np.full(len(data), -1, np.int64), dict[int, int]()
    given = scores.given
    for row, cell in enumerate(table.column(ID)):
        number = _whole(cell)
        if number is None or (number not in place_of and number not in unusable):
            raise DataError(
                f"{place(table, row)}: the id {cell!r}",
                expected=f"the number of a row of {data.sources[0]}, 1 to {max(place_of, default=0):,}, which has no "
                f"column {ID!r}",
                fix="write the texts beside the scores",
            )
        if number in unusable or not given[row]:
            continue
        other = seen.setdefault(number, row)
        if other != row and _differ(scores, other, row):
            raise DataError(
                f"{place(table, other)} and {place(table, row)} score the row {number} differently",
                expected="one answer for each",
                fix="keep one of them, or their mean",
            )
        rows[place_of[number]] = other
    return Join(rows, "row number")
