"""Labelled files looked at before a run: rows, labels, lengths, what stands twice, and what a run would refuse.

Memory is flat whatever the files hold: rows pass in blocks, lengths are counted, keys lie on disk. Knows no model but
through its encoder, and no settings.
"""

import hashlib
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from potstill.data.encoding import TextEncoder
from potstill.data.key_store import KeyStore
from potstill.data.labels import GoldRule
from potstill.data.parts import Columns, Part, read_part
from potstill.data.rows import BadRow
from potstill.data.sources import Source
from potstill.data.tables import Table, read_blocks
from potstill.errors import DataError
from potstill.progress import SILENT, Reporter

__all__ = ["Lengths", "check_files"]

_SHOWN = 50
_MOST_LABELS = 10_000
_CUTS = (64, 128, 256, 512, 1024, 2048, 4096)


class Lengths:
    """How many texts have each length: all that is asked of lengths can be told from it."""

    def __init__(self) -> None:
        self.counts = np.zeros(1, np.int64)

    def add(self, lengths: np.ndarray) -> None:
        """Count some; int64 (n,)."""
        found = np.bincount(lengths, minlength=len(self.counts))
        found[: len(self.counts)] += self.counts
        self.counts = found

    def at(self, share: float) -> int:
        """The shortest length that so large a share of the texts does not exceed."""
        reached = np.cumsum(self.counts)
        return int(np.searchsorted(reached, math.ceil(share * int(reached[-1]))))

    def over(self, length: int) -> int:
        """How many texts are longer."""
        return int(self.counts[length + 1 :].sum())

    def facts(self) -> dict[str, Any] | None:
        """`shortest`, `mean`, `median`, `most` (which 95 % do not exceed) and `longest`; None of no texts."""
        if not (total := int(self.counts.sum())):
            return None
        lengths = np.arange(len(self.counts))
        return {
            "shortest": int(np.flatnonzero(self.counts)[0]),
            "mean": float(lengths @ self.counts / total),
            "median": self.at(0.5),
            "most": self.at(0.95),
            "longest": len(self.counts) - 1,
        }


@dataclass
class _Scores:
    """Gold answers that are numbers."""

    n: int = 0
    total: float = 0.0
    low: float = math.inf
    high: float = -math.inf

    def add(self, values: Sequence[float]) -> None:
        self.n, self.total = self.n + len(values), self.total + sum(values)
        self.low, self.high = min(self.low, *values), max(self.high, *values)

    def facts(self) -> dict[str, float]:
        return {"low": self.low, "mean": self.total / self.n, "high": self.high}


@dataclass
class _File:
    """What is known of one of the files so far."""

    name: str
    labelled: bool
    rows: int = 0
    usable: int = 0
    left_out: int = 0
    columns: dict[str, None] = field(default_factory=dict)
    set_aside: list[BadRow] = field(default_factory=list)
    set_aside_total: int = 0
    labels: Counter[str] = field(default_factory=Counter)
    most_labels: int = 0
    without_label: int = 0
    scores: _Scores = field(default_factory=_Scores)
    sides: dict[str, Lengths] = field(default_factory=dict)
    tokens: Lengths | None = None

    def add_bad(self, bad: Sequence[BadRow]) -> None:
        self.set_aside_total += len(bad)
        self.set_aside += bad[: max(0, _SHOWN - len(self.set_aside))]

    def add(self, table: Table, part: Part, rule: GoldRule, encoder: TextEncoder | None) -> None:
        self.columns.update(dict.fromkeys(table.columns))
        self.rows += len(table) + len(table.bad)
        self.usable, self.left_out = self.usable + len(part.texts), self.left_out + part.left_out
        self.add_bad(part.set_aside)
        for side, texts in (("text", part.texts), ("pair", part.pairs)):
            if texts is not None:
                self.sides.setdefault(side, Lengths()).add(np.array(list(map(len, texts)), np.int64))
        if encoder is not None:
            self.tokens = self.tokens or Lengths()
            self.tokens.add(encoder.count(part.texts, part.pairs))
        for gold in part.golds or ():
            names = rule.labels(gold)
            self.most_labels, self.without_label = max(self.most_labels, len(names)), self.without_label + (not names)
            for label in names:
                if label in self.labels or len(self.labels) < _MOST_LABELS:
                    self.labels[label] += 1
        if numbers := [gold for gold in part.golds or () if isinstance(gold, float)]:
            self.scores.add(numbers)

    def facts(self, longest: int | None) -> dict[str, Any]:
        tokens = self.tokens.facts() if self.tokens is not None else None
        if self.tokens is not None and tokens is not None and longest is not None:
            cuts = sorted({*(length for length in _CUTS if length < longest), longest})
            tokens["cut"] = {str(length): self.tokens.over(length) for length in cuts}
        return {
            "file": self.name,
            "rows": self.rows,
            "usable": self.usable,
            "columns": list(self.columns),
            "labels": dict(sorted(self.labels.items(), key=lambda one: (-one[1], one[0]))) if self.labels else None,
            "without_label": self.without_label if self.labels else None,
            "scores": self.scores.facts() if self.scores.n else None,
            "characters": {side: lengths.facts() for side, lengths in self.sides.items()},
            "tokens": tokens,
            "left_out_near_threshold": self.left_out,
            "set_aside": [{"file": bad.file, "row": bad.row, "reason": bad.reason} for bad in self.set_aside],
            "set_aside_total": self.set_aside_total,
        }


def check_files(
    sources: Sequence[Source],
    columns: Columns,
    rule: GoldRule,
    *,
    needs_label: bool = True,
    format: str | None = None,
    header: bool = True,
    encoder: TextEncoder | None = None,
    bad_budget: float = 0.01,
    report: Reporter = SILENT,
) -> dict[str, Any]:
    """Look at files as a run would read them.

    Args:
        sources: The files, those that are learned from first.
        columns: Where text, second text and label stand.
        rule: How cells of the label column are read.
        needs_label: Whether a file without the label's column is an error; else its texts are looked at alone.
        format: As for `read_blocks`; None: as each source says.
        header: As for `read_blocks`.
        encoder: Counts tokens; None: they are not counted. Its `max_length` is the model's longest input.
        bad_budget: Share of a file's rows that a run lets be unusable.
        report: Receives a stage a file, and progress.

    Returns:
        `files`, each `file`, `rows`, `usable`, `columns`, `labels` (name → rows; None without),
        `without_label` (rows with none of them), `scores` (`low`,
        `mean`, `high`; None without), `characters` of `text` and `pair`, `tokens` (`cut`: by length, how many texts are
        longer), `repeated_texts`, `conflicting_texts`, `conflicting_rows` (`Repeats`), `left_out_near_threshold`,
        `set_aside` (the first fifty) and `set_aside_total`; `overlaps`, each `between`, `texts`, `rows` and `examples`
        (the first rows that have the text in both); `refused`: why a run would refuse the files, in sentences.

    Raises:
        DataError: As for `read_blocks`; no such column.
    """
    found: list[_File] = []
    with KeyStore() as store:
        for number, source in enumerate(sources):
            report.stage("check", source.name)
            looked: _File | None = None
            for table in read_blocks(source.paths, format=format or source.format, header=header, report=report):
                if looked is None:
                    looked = _File(source.name, needs_label or columns.label in table.columns)
                _take(looked, number, table, columns, rule, encoder, store)
            found.append(looked or _File(source.name, needs_label))
        repeats, overlaps = store.compare(len(found))
    longest = None if encoder is None else encoder.max_length
    return {
        "files": [{**one.facts(longest), **vars(own)} for one, own in zip(found, repeats, strict=True)],
        "overlaps": [
            {
                "between": [found[place].name for place in overlap.between],
                "texts": overlap.texts,
                "rows": list(overlap.rows),
                "examples": [list(rows) for rows in overlap.examples],
            }
            for overlap in overlaps
        ],
        "refused": _refusals(found, rule, bad_budget),
    }


def _take(
    looked: _File,
    number: int,
    table: Table,
    columns: Columns,
    rule: GoldRule,
    encoder: TextEncoder | None,
    store: KeyStore,
) -> None:
    if len(table) == 0:
        looked.rows += len(table.bad)
        looked.add_bad(table.bad)
        return
    part = read_part(table, "train" if looked.labelled else "unlabelled", columns, rule, 1.0)
    looked.add(table, part, rule, encoder)
    golds = [_short_digest(gold) for gold in (part.golds if part.golds is not None else [""] * len(part.keys))]
    store.add(number, part.keys, golds, table.row_numbers[part.places])


def _short_digest(gold: Any) -> bytes:
    return hashlib.sha256(repr(gold).encode("utf-8", "surrogatepass")).digest()[:8]


def _refusals(found: Sequence[_File], rule: GoldRule, budget: float) -> list[str]:
    """Why a run that learns from the first file, and is judged on the others, would refuse them."""
    said = []
    for one in found:
        if one.set_aside_total > budget * one.rows:
            said.append(
                f"{one.name}: {one.set_aside_total:,} of {one.rows:,} rows cannot be used, where a run takes "
                f"{budget:.2%} at most (data.bad_rows)"
            )
        if one.scores.n and one.scores.low == one.scores.high:
            said.append(f"{one.name}: every {rule.word} is {one.scores.low:g}")
    learned = found[0]
    if learned.labelled and learned.usable and not learned.scores.n:
        try:
            rule.names(learned.labels, learned.usable, learned.most_labels, learned.name)
        except DataError as error:
            said.append(str(error))
        for one in found[1:]:
            if not one.labels and one.usable:
                said.append(f"{one.name} has no labels: nothing can be judged on it (data.unlabelled takes it)")
            if unknown := sorted(set(one.labels) - set(learned.labels)):
                more = "" if len(unknown) <= 12 else f", … ({len(unknown)} in all)"
                said.append(
                    f"{one.name} has labels that {learned.name} has not: {', '.join(map(repr, unknown[:12]))}{more}"
                )
    return said
