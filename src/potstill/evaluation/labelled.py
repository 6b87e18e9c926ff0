"""A finished model judged on a labelled file, through any engine: every metric, by label, by a column's values.

Knows no terminal and writes no file. Imports no torch by itself.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from potstill.data.columns import require_columns
from potstill.data.labels import GoldRule, check_labels_of_model
from potstill.data.parts import Columns, Part, read_part
from potstill.data.tables import Table, read_table
from potstill.errors import DataError
from potstill.evaluation.evaluate import predict_logits
from potstill.inference import Predictor
from potstill.metrics import Metric
from potstill.progress import SILENT, Reporter
from potstill.tasks import Task

__all__ = ["FEWEST", "Judged", "Labelled", "judge", "read_labelled"]

FEWEST = 10
"""Rows of a value of a column that are judged by themselves; rarer values are judged together."""

_ROLE = "test"


@dataclass(frozen=True)
class Labelled:
    """The rows of a labelled file that can be judged.

    Attributes:
        table: All rows as they were read.
        part: Those that can be judged.
        rule: How their gold answers were read.
    """

    table: Table
    part: Part
    rule: GoldRule

    def values(self, column: str) -> list[str]:
        """What a column holds in each of the n rows, whitespace around it taken off; empty where it holds nothing.

        Raises:
            DataError: No such column.
        """
        cells = self.table.column(column)
        return [(cells[place] or "").strip() for place in self.part.places.tolist()]


@dataclass(frozen=True)
class Judged:
    """What a model answered to n rows, and how that compares with what they should be.

    Attributes:
        task: The model's.
        labelled: The rows.
        gold: As in `Examples.labels`.
        logits: Of texts, as `Task.merge` makes them.
        windowed: How many texts were read in several windows.
        truncated: How many texts the model did not see to their end.
    """

    task: Task
    labelled: Labelled
    gold: np.ndarray
    logits: np.ndarray
    windowed: int
    truncated: int

    def __len__(self) -> int:
        return len(self.gold)

    @property
    def predictions(self) -> np.ndarray:
        """As `Task.metrics` judges them."""
        return self.task.predictions(self.logits)

    def facts(self) -> dict[str, Any]:
        """`task`, `n`, `metrics` by name (`value`, `low`, `high`), `windowed`, `truncated`."""
        metrics = _intervals(self.task.metrics(self.gold, self.predictions))
        counts = {"windowed": self.windowed, "truncated": self.truncated}
        return {"task": self.task.kind, "n": len(self), "metrics": metrics, **counts}

    def by_label(self) -> dict[str, dict[str, Any]] | None:
        """Label → `precision`, `recall`, `f1` with intervals, and `support`; None where answers are no labels."""
        found = self.task.by_label(self.gold, self.predictions)
        if found is None:
            return None
        return {
            label: {
                **_intervals({"precision": one.precision, "recall": one.recall, "f1": one.f1}),
                "support": one.support,
            }
            for label, one in found.items()
        }

    def by_value(self, column: str) -> dict[str, Any]:
        """The metrics of the rows of each value of a column.

        Returns:
            `column`; `groups`, each `value`, `n` and `metrics`, of values with `FEWEST` rows or more, those with most
            rows first; `rare`: `values` (how many), `n` and `metrics` of the rows of all other values, None without.

        Raises:
            DataError: No such column.
        """
        values = np.array(self.labelled.values(column), dtype=object)
        counted = sorted(Counter(values.tolist()).items(), key=lambda one: (-one[1], one[0]))
        groups = [{"value": value, **self._of(values == value)} for value, n in counted if n >= FEWEST]
        rare = [value for value, n in counted if n < FEWEST]
        others = {"values": len(rare), **self._of(np.isin(values, rare))} if rare else None
        return {"column": column, "groups": groups, "rare": others}

    def _of(self, chosen: np.ndarray) -> dict[str, Any]:
        rows = np.flatnonzero(chosen)
        return {"n": len(rows), "metrics": _intervals(self.task.metrics(self.gold[rows], self.predictions[rows]))}

    def answers(self) -> Iterator[dict[str, Any]]:
        """Row by row, in the order of the file: `id` (its number there, from 1), `gold`, and the answer as `predict`.

        Of several files each row also has its `file`.
        """
        table, part = self.labelled.table, self.labelled.part
        decoded = self.task.decode(self.logits)
        for place, gold, answer in zip(part.places.tolist(), part.golds or (), decoded, strict=True):
            file = {"file": table.sources[table.file_numbers[place]]} if len(table.sources) > 1 else {}
            yield {"id": int(table.row_numbers[place]), **file, "gold": gold, **answer}


def read_labelled(
    paths: Sequence[Path],
    columns: Columns,
    rule: GoldRule,
    *,
    format: str | None = None,
    header: bool = True,
    report: Reporter = SILENT,
) -> Labelled:
    """Read labelled rows; those that cannot be used are in `part.set_aside`.

    Args:
        paths: The files, as for `read_table`.
        columns: Where text, second text and label stand.
        rule: How cells of the label column are read.
        format: As for `read_table`.
        header: As for `read_table`.
        report: Told of the bytes read.

    Raises:
        DataError: As for `read_table`; no such column; not one row that can be judged.
    """
    table = read_table(paths, format=format, header=header, report=report)
    require_columns([*columns.texts, columns.label], table.columns, ", ".join(table.sources[:3]))
    part = read_part(table, _ROLE, columns, rule, 1.0)
    if not part.texts:
        first = part.set_aside[0] if part.set_aside else None
        why = f" (row {first.row}: {first.reason})" if first else f": all of {part.left_out} are near the threshold"
        raise DataError(f"no row of {', '.join(table.sources[:3])} can be judged{why}", expected="one at least")
    return Labelled(table, part, rule)


def judge(predictor: Predictor, labelled: Labelled, *, report: Reporter = SILENT) -> Judged:
    """Answer labelled rows with a model, as it is deployed.

    Args:
        predictor: The model.
        labelled: Read by its task's rule.
        report: Receives progress in windows.

    Raises:
        DataError: Labels that the model has not; both lists are shown.
        ModelError, NonFiniteError: As for `predict_logits`.
    """
    task, part, rule = predictor.task, labelled.part, labelled.rule
    found = {name for gold in part.golds or () for name in rule.labels(gold)}
    check_labels_of_model(found, task.labels, ", ".join(labelled.table.sources[:3]))
    examples = part.examples(rule, task.labels)
    encodings = predictor.encoder.encode(examples.texts, examples.pairs)
    logits = predict_logits(predictor.engine, encodings, merge=task.merge, report=report)
    return Judged(task, labelled, examples.labels, logits, encodings.windowed, encodings.truncated)


def _intervals(metrics: dict[str, Metric]) -> dict[str, dict[str, float]]:
    return {name: {"value": one.value, "low": one.low, "high": one.high} for name, one in metrics.items()}
