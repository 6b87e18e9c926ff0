"""Labelled texts in memory and on disk: what every stage passes to the next."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.feather as feather

__all__ = ["UNLABELLED", "Examples", "is_labelled", "without_labels"]

UNLABELLED = -1


def is_labelled(labels: np.ndarray) -> np.ndarray:
    """Where there is a gold answer, bool (n,): a label's index or marks that are not −1, a score that is not NaN."""
    first = labels[:, 0] if labels.ndim == 2 else labels
    found: np.ndarray = ~np.isnan(first) if first.dtype.kind == "f" else first >= 0
    return found


def without_labels(like: np.ndarray, count: int) -> np.ndarray:
    """`count` absent gold answers of the kind that `like` holds."""
    absent = np.nan if like.dtype.kind == "f" else UNLABELLED
    return np.full((count, *like.shape[1:]), absent, dtype=like.dtype)


@dataclass(frozen=True)
class Examples:
    """Texts, or pairs of texts, and their gold answers.

    Attributes:
        example_id: int64 (n,); stays with a text through every stage, unique within one `Examples`.
        texts: n strings.
        pairs: n strings, the second text of each pair; None for tasks on one text.
        labels: int64 (n,), the index of the label's name in the task's list, -1 (`UNLABELLED`) where there is none; or
            float64 (n,), scores, NaN where there is none; or int8 (n, C), a mark for each label of the task's list: 1
            where the text has it, 0 where not; -1 throughout where its labels are not known.
    """

    example_id: np.ndarray
    texts: Sequence[str]
    pairs: Sequence[str] | None
    labels: np.ndarray

    def __len__(self) -> int:
        return len(self.texts)

    def select(self, rows: np.ndarray) -> "Examples":
        """The examples at integer positions `rows`, in that order."""
        return Examples(
            self.example_id[rows],
            [self.texts[row] for row in rows],
            None if self.pairs is None else [self.pairs[row] for row in rows],
            self.labels[rows],
        )

    def write(self, path: Path) -> None:
        """Write to an Arrow (Feather) file."""
        columns = {"example_id": pa.array(self.example_id, pa.int64()), "text": pa.array(self.texts, pa.large_string())}
        if self.pairs is not None:
            columns["pair"] = pa.array(self.pairs, pa.large_string())
        flat = pa.array(self.labels.reshape(-1))
        marks = self.labels.ndim == 2
        columns["label"] = pa.FixedSizeListArray.from_arrays(flat, self.labels.shape[1]) if marks else flat
        feather.write_feather(pa.table(columns), str(path), compression="zstd")

    @classmethod
    def read(cls, path: Path) -> "Examples":
        """Read what `write` wrote."""
        table = feather.read_table(str(path))
        pairs = table["pair"].to_pylist() if "pair" in table.column_names else None
        kind, column = table.schema.field("label").type, table["label"]
        if pa.types.is_fixed_size_list(kind):
            labels = column.combine_chunks().flatten().to_numpy().reshape(len(column), kind.list_size)
        else:
            labels = column.to_numpy()
        return cls(table["example_id"].to_numpy(), table["text"].to_pylist(), pairs, labels)
