"""Labelled texts in memory and on disk: what every stage passes to the next."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.feather as feather

__all__ = ["UNLABELLED", "Examples"]

UNLABELLED = -1


@dataclass(frozen=True)
class Examples:
    """Texts, or pairs of texts, and their labels.

    Attributes:
        example_id: int64 (n,); stays with a text through every stage, unique within one `Examples`.
        texts: n strings.
        pairs: n strings, the second text of each pair; None for tasks on one text.
        labels: int64 (n,); the index of the label's name in the task's list, -1 (`UNLABELLED`) where there is none.
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
        columns["label"] = pa.array(self.labels, pa.int64())
        feather.write_feather(pa.table(columns), str(path), compression="zstd")

    @classmethod
    def read(cls, path: Path) -> "Examples":
        """Read what `write` wrote."""
        table = feather.read_table(str(path))
        pairs = table["pair"].to_pylist() if "pair" in table.column_names else None
        return cls(table["example_id"].to_numpy(), table["text"].to_pylist(), pairs, table["label"].to_numpy())
