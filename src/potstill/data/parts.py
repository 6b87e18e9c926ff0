"""One table to the rows of one split: cells checked, label names made, keys to compare by. Knows no other split."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from potstill.data.columns import missing_column
from potstill.data.examples import Examples
from potstill.data.labels import GoldRule
from potstill.data.rows import BadRow
from potstill.data.tables import Table
from potstill.data.words import is_blank, text_key
from potstill.errors import DataError, SettingsError

__all__ = ["FIRST_ID", "Columns", "Part", "read_part", "text_digest"]

FIRST_ID = {"train": 0, "dev": 1 << 40, "test": 2 << 40, "unlabelled": 3 << 40}
"""Id of the first row of each role's table; the others count on from there."""


@dataclass(frozen=True)
class Columns:
    """Which column holds what.

    Attributes:
        text: The text, or the first text of a pair.
        pair: The second text; None for tasks on one text.
        label: The label, or the score.
    """

    text: str
    pair: str | None = None
    label: str = "label"

    @classmethod
    def chosen(cls, declared: Mapping[str, str], *, text: str | None, pair: str | None, label: str | None) -> "Columns":
        """The columns named; of text and label, else those that the source declares, else `text` and `label`.

        Raises:
            SettingsError: One column in two parts.
        """
        columns = cls(text or declared.get("text", "text"), pair, label or declared.get("label", "label"))
        named = [*columns.texts, columns.label]
        if len(set(named)) < len(named):
            raise SettingsError(
                f"text, pair and label in the columns {', '.join(named)}",
                expected="a column for each",
                fix="name them",
            )
        return columns

    @property
    def texts(self) -> tuple[str, ...]:
        """The columns of texts: one, or two."""
        return (self.text,) if self.pair is None else (self.text, self.pair)


@dataclass
class Part:
    """One split on its way to `Examples`: the rows that can be used.

    Attributes:
        role: train, dev, test or unlabelled.
        ids: int64 (n,); unique over all splits.
        texts: n texts.
        pairs: n second texts; None for tasks on one text.
        golds: n label names, scores or tuples of label names; None in unlabelled.
        keys: n digests, equal where rows count as the same.
        set_aside: The rows that cannot be used.
        left_out: How many rows are too near the label threshold.
    """

    role: str
    ids: np.ndarray
    texts: list[str]
    pairs: list[str] | None
    golds: list[Any] | None
    keys: list[bytes] = field(default_factory=list)
    set_aside: tuple[BadRow, ...] = ()
    left_out: int = 0

    @property
    def places(self) -> np.ndarray:
        """int64 (n,): where each row stood in the table it was read from."""
        return self.ids - FIRST_ID[self.role]

    def select(self, rows: Iterable[int], role: str | None = None) -> "Part":
        """The rows at positions `rows`, in that order, under another role where one is given."""
        kept = list(rows)
        return Part(
            role or self.role,
            self.ids[kept],
            [self.texts[row] for row in kept],
            None if self.pairs is None else [self.pairs[row] for row in kept],
            None if self.golds is None else [self.golds[row] for row in kept],
            [self.keys[row] for row in kept],
        )

    def examples(self, rule: GoldRule, names: Sequence[str]) -> Examples:
        """The rows, their gold answers as `rule` holds them; `names`: the task's label names."""
        labels = rule.missing(len(self.texts), names) if self.golds is None else rule.array(self.golds, names)
        return Examples(self.ids, self.texts, self.pairs, labels)


def read_part(table: Table, role: str, columns: Columns, rule: GoldRule, budget: float) -> Part:
    """The usable rows of a table: text, second text and label all there, the label read by `rule`.

    Raises:
        DataError: A column is missing, a dev or test has no labels at all, or more than the share `budget` of the rows
            cannot be used.
    """
    texts = table.column(_text_column(table, role, columns))
    pairs = None if columns.pair is None else table.column(columns.pair)
    cells = None if role == "unlabelled" else _label_cells(table, role, columns.label)
    kept: list[int] = []
    golds: list[Any] = []
    bad: list[BadRow] = list(table.bad)
    left_out = 0
    for row, text in enumerate(texts):
        try:
            _check_texts(text, pairs[row] if pairs else text)
            if cells is not None:
                _check_gold(cells[row], rule)
            gold = rule.name(cells[row] or "") if cells else ""
        except ValueError as error:
            bad.append(BadRow(table.sources[table.file_numbers[row]], int(table.row_numbers[row]), str(error)))
            continue
        if gold is None:
            left_out += 1
        else:
            kept.append(row)
            golds.append(gold)
    _check_budget(bad, len(texts) + len(table.bad), role, budget)
    part = Part(
        role,
        np.array(kept, dtype=np.int64) + FIRST_ID[role],
        [texts[row] or "" for row in kept],
        None if pairs is None else [pairs[row] or "" for row in kept],
        None if cells is None else golds,
        set_aside=tuple(bad),
        left_out=left_out,
    )
    sides: Sequence[str | None] = part.pairs if part.pairs is not None else [None] * len(kept)
    part.keys = [text_digest(text, pair) for text, pair in zip(part.texts, sides, strict=True)]
    return part


def text_digest(text: str, pair: str | None) -> bytes:
    """128 bits of the SHA-256 of `text_key(text, pair)`."""
    return hashlib.sha256(text_key(text, pair).encode("utf-8", "surrogatepass")).digest()[:16]


def _text_column(table: Table, role: str, columns: Columns) -> str:
    if role == "unlabelled" and columns.pair is None and columns.text not in table.columns and len(table.columns) == 1:
        return table.columns[0]
    return columns.text


def _label_cells(table: Table, role: str, label: str) -> list[str | None]:
    where = f"{role} ({', '.join(table.sources[:3])})"
    fix = "give rows with labels; texts without can be given as unlabelled"
    if label not in table.columns:
        if role == "test":
            raise DataError(
                f"{where} has no column {label!r}, so nothing can be judged on it", expected="labels", fix=fix
            )
        raise missing_column(label, table.columns, where)
    cells = table.column(label)
    if role != "train" and cells and all(cell is not None and cell.strip() == "-1" for cell in cells):
        raise DataError(f"{where}: every label is -1, so nothing can be judged on it", expected="labels", fix=fix)
    return cells


def _check_texts(text: str | None, pair: str | None) -> None:
    if text is None or is_blank(text):
        raise ValueError("empty text")
    if pair is None or is_blank(pair):
        raise ValueError("empty second text")


def _check_gold(cell: str | None, rule: GoldRule) -> None:
    if cell is None or (is_blank(cell) and not rule.reads_blank):
        raise ValueError(f"no {rule.word}")


def _check_budget(bad: Sequence[BadRow], total: int, role: str, budget: float) -> None:
    if total == 0:
        raise DataError(f"{role} has no rows", expected="one at least")
    if len(bad) > budget * total:
        undecodable = sum("UTF-8" in row.reason for row in bad)
        encoding = "write the file in UTF-8 (iconv -f latin1 -t utf-8 FILE), or " if undecodable * 2 > len(bad) else ""
        first = ", ".join(f"{row.file} row {row.row} ({row.reason})" for row in bad[:3])
        if len(bad) == total and all(row.reason.startswith("score ") for row in bad):
            encoding = "if the labels are names, leave --task regression out; else "
        raise DataError(
            f"{role}: {len(bad)} of {total} rows cannot be used: {first}{', …' if len(bad) > 3 else ''}",
            expected=f"at most {budget:.2%}",
            fix=f"{encoding}mend them, or allow more (data.bad_rows)",
        )
