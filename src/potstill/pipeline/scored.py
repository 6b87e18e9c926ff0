"""The data of a run whose teacher is a file of scores: read, joined, and made into splits that each have a label.

Knows settings and files, no model and no stage. The same reading serves the plan, which keeps what it found out, and
the data stage, which writes the splits.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from potstill.config import Settings
from potstill.data.answers import LEAST, Layout, Scores, find_layout, read_scores
from potstill.data.columns import require_columns
from potstill.data.joining import ID, By, join
from potstill.data.labels import LabelRule, sort_labels
from potstill.data.parts import FIRST_ID, Columns
from potstill.data.rows import BadRow
from potstill.data.schema import SplitRule, Splits, load_splits
from potstill.data.sources import Source
from potstill.data.tables import Table, read_table
from potstill.data.words import is_blank
from potstill.errors import DataError
from potstill.pipeline.findings import Findings
from potstill.pipeline.inputs import concat_tables, unlabelled_table
from potstill.progress import Reporter

__all__ = ["Scored", "aligned", "read_scored", "scored_splits", "with_gold"]


@dataclass
class Scored:
    """Data and scores of a run.

    Attributes:
        tables: By role, ready for `load_splits`: rows without gold labels have the teacher's where the split needs one.
        logits: By role, float32 (n, C), one row for each of the table's; NaN where there is no score.
        findings: As in `Findings`.
        columns: Where the tables' texts and labels are.
    """

    tables: dict[str, Table]
    logits: dict[str, np.ndarray]
    findings: Findings
    columns: Columns


def read_scored(
    settings: Settings,
    data: Mapping[str, Source],
    unlabelled: Sequence[Source],
    scores: Source,
    columns: Columns,
    report: Reporter,
) -> Scored:
    """Read everything, and give each row its score.

    Raises:
        DataError: As `potstill.data.answers` and `potstill.data.joining`; no row of train or unlabelled has a score;
            more of the scores than `data.bad_rows` cannot be read.
    """
    tables = _tables(settings, data, unlabelled, columns, report)
    same = scores.sha256 == data["train"].sha256
    table = tables["train"] if same else read_table(scores.paths, format=scores.format, report=report)
    _check_readable(table, settings.data.bad_rows)
    labels = _gold_labels(tables["train"], columns.label, settings)
    layout = _layout(settings, table, columns, labels)
    if same and layout.form == "labels":
        labels = ()  # they are the teacher's: the file has no others
    read = read_scores(table, layout, labels)
    if not read.given.any():
        raise DataError(f"{scores.name}: none of its {len(table):,} rows holds an answer", expected="scores")
    logits, joined = {}, dict[str, By]()
    for role, own in tables.items():
        logits[role], by = _answers(read, layout, table, own, columns, role, same=same)
        joined |= {role: by} if by is not None else {}
    gold = {role: _has_gold(own, columns.label) for role, own in tables.items() if role != "unlabelled"}
    gold["train"] = gold["train"] and bool(labels)
    scored = {role: int(np.count_nonzero(~np.isnan(array[:, 0]))) for role, array in logits.items()}
    if not scored["train"] + scored.get("unlabelled", 0):
        raise _no_match(table, tables["train"], columns)
    rows, empty = len(table) + len(table.bad), int(np.count_nonzero(~read.given))
    counts = {role: len(own) for role, own in tables.items()}
    made = Scored(
        tables, logits, Findings(layout.form, read.labels, rows, empty, joined, scored, counts, gold), columns
    )
    _give_labels(made)
    return made


def _tables(
    settings: Settings, data: Mapping[str, Source], unlabelled: Sequence[Source], columns: Columns, report: Reporter
) -> dict[str, Table]:
    chosen = settings.data
    tables = {}
    for role, source in data.items():
        form = chosen.format or source.format
        tables[role] = read_table(source.paths, format=form, header=chosen.header, report=report)
        require_columns(columns.texts, tables[role].columns, source.name)
    if unlabelled:
        tables["unlabelled"] = unlabelled_table(unlabelled, columns, header=chosen.header, report=report)
    return tables


def _layout(settings: Settings, table: Table, columns: Columns, labels: Sequence[str]) -> Layout:
    label = columns.label if columns.label in table.columns else "label"
    form = None if settings.teacher.scores_form == "auto" else settings.teacher.scores_form
    return find_layout(table, form=form, labels=labels, label=label, others=(ID, *columns.texts))


def _check_readable(table: Table, budget: float) -> None:
    total = len(table) + len(table.bad)
    if table.bad and len(table.bad) > budget * total:
        first = ", ".join(f"{row.file} row {row.row} ({row.reason})" for row in table.bad[:3])
        raise DataError(
            f"scores: {len(table.bad)} of {total} rows cannot be read: {first}{', …' if len(table.bad) > 3 else ''}",
            expected=f"at most {budget:.2%}",
            fix="mend them, or allow more (data.bad_rows)",
        )


def _has_gold(table: Table, label: str) -> bool:
    return label in table.columns and any(cell is not None and not is_blank(cell) for cell in table.column(label))


def _gold_labels(table: Table, label: str, settings: Settings) -> tuple[str, ...]:
    if not _has_gold(table, label):
        return ()
    rule = LabelRule(settings.data.label_threshold, settings.data.label_margin or 0.0)
    names = set()
    for cell in table.column(label):
        try:
            names.add(rule.name(cell) if cell is not None and not is_blank(cell) else None)
        except ValueError:
            continue  # set aside with the reason when the splits are made
    return sort_labels([name for name in names if name is not None], len(table), "train")


def _answers(
    read: Scores, layout: Layout, table: Table, own: Table, columns: Columns, role: str, *, same: bool
) -> tuple[np.ndarray, By | None]:
    if same and role == "train":
        return read.logits, "the same row"
    beside = set(layout.columns) <= set(own.columns) and layout.form != "labels"
    if same and beside:  # the other files hold their scores as train does
        return read_scores(own, layout, read.labels).logits, "the same row"
    found = join(read, table, own, columns, role=role, layout=layout)
    given = np.where((found.rows >= 0)[:, None], read.logits[found.rows], np.float32(np.nan))
    return given.astype(np.float32), found.by


def _no_match(table: Table, train: Table, columns: Columns) -> DataError:
    key = ID if ID in table.columns and ID in train.columns else columns.text
    shown = [next((cell for cell in one.column(key) if cell), "") for one in (table, train) if key in one.columns]
    example = f": the first {key} is {shown[0][:60]!r} there and {shown[1][:60]!r} here" if len(shown) == 2 else ""
    return DataError(
        f"none of the {len(table):,} scores of {table.sources[0]} belongs to one of the {len(train):,} rows of "
        f"{train.sources[0]}{example}",
        expected="the same id, or the same text to the character",
    )


def _select(table: Table, keep: np.ndarray, reason: str | None = None) -> Table:
    """The rows where `keep`; the others are set aside with a reason where one is given."""
    bad = list(table.bad)
    if reason is not None:
        numbers, files = table.row_numbers[~keep], table.file_numbers[~keep]
        bad += [BadRow(table.sources[f], int(row), reason) for row, f in zip(numbers, files, strict=True)]
    rows = table.rows.filter(pa.array(keep))
    return replace(
        table,
        rows=rows,
        row_numbers=table.row_numbers[keep],
        file_numbers=table.file_numbers[keep],
        bad=tuple(bad),
    )


def _give_labels(made: Scored) -> None:
    """Make every row fit for its split, in place.

    Rows of train without a gold label, where others have one, go to the unlabelled; where none has, the teacher's
    answer stands as label. A row with neither label nor score is set aside.
    """
    label = made.columns.label
    for role, has_gold in made.findings.gold.items():
        table, logits = made.tables[role], made.logits[role]
        given = ~np.isnan(logits[:, 0])
        if not has_gold and role != "test":
            names = [made.findings.labels[index] for index in logits[given].argmax(axis=1)]
            kept = _select(table, given, "no score")
            rows = kept.rows.drop_columns([label]) if label in kept.columns else kept.rows
            rows = rows.append_column(label, pa.array(names, pa.large_string()))
            made.tables[role], made.logits[role] = replace(kept, rows=rows), logits[given]
        elif has_gold and role == "train":
            blank = np.array([cell is None or is_blank(cell) for cell in table.column(label)], dtype=bool)
            bare = blank & given
            if bare.any():
                _add_unlabelled(made, _select(replace(table, bad=()), bare), logits[bare])
            made.tables[role], made.logits[role] = _select(table, ~bare), logits[~bare]
    if (others := made.tables.get("unlabelled")) is not None:
        given = ~np.isnan(made.logits["unlabelled"][:, 0])
        made.tables["unlabelled"] = _select(others, given, "no score")
        made.logits["unlabelled"] = made.logits["unlabelled"][given]


def _add_unlabelled(made: Scored, table: Table, logits: np.ndarray) -> None:
    names = list(made.columns.texts)
    parts, values = [replace(table, rows=table.rows.select(names))], [logits]
    if (before := made.tables.get("unlabelled")) is not None:
        parts, values = [before, *parts], [made.logits["unlabelled"], *values]
    made.tables["unlabelled"], made.logits["unlabelled"] = concat_tables(parts), np.concatenate(values)


def scored_splits(made: Scored, labels: LabelRule, rule: SplitRule, report: Reporter) -> Splits:
    """The splits; labels are indices into the scores' label names."""
    # Where the teacher's answers stand as labels they are names already, which a threshold would not read.
    read = labels if made.findings.gold["train"] else LabelRule()
    tables = made.tables
    splits = load_splits(
        tables["train"],
        columns=made.columns,
        dev=tables.get("dev"),
        test=tables.get("test"),
        unlabelled=tables.get("unlabelled"),
        labels=read,
        rule=rule,
        report=report,
    )
    if splits.labels == made.findings.labels:
        return splits
    # A label that the teacher never found most probable is one all the same.
    place = np.array([made.findings.labels.index(name) for name in splits.labels], dtype=np.int64)

    def renamed(examples: Any) -> Any:
        return None if examples is None else replace(examples, labels=place[examples.labels])

    return replace(
        splits,
        train=renamed(splits.train),
        dev=renamed(splits.dev),
        test=renamed(splits.test),
        labels=made.findings.labels,
    )


def aligned(made: Scored, ids: np.ndarray) -> np.ndarray:
    """The scores of examples by their ids, float32 (n, C); NaN where there is none."""
    found = np.full((len(ids), len(made.findings.labels)), np.nan, dtype=np.float32)
    for role, first in FIRST_ID.items():
        if role in made.logits:
            own = (ids >= first) & (ids < first + (1 << 40))
            found[own] = made.logits[role][ids[own] - first]
    return found


def with_gold(logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Scores to learn from: where there is none, the gold label stands as the teacher's answer.

    Args:
        logits: float32 (n, C), NaN rows where there is no score.
        labels: int64 (n,).
    """
    bare = np.isnan(logits[:, 0])
    made = logits.copy()
    made[bare] = np.log(LEAST)
    made[np.flatnonzero(bare), labels[bare]] = 0.0
    return made
