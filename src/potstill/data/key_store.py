"""Which texts stand more than once in files of any size: their keys on disk, compared a part at a time.

Knows keys, and neither texts nor labels.
"""

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from types import TracebackType

import numpy as np

from potstill.storage import told

__all__ = ["KeyStore", "Overlap", "Repeats"]

_PARTS = 64
_SHOWN = 3
_RECORD = np.dtype([("high", "<u8"), ("low", "<u8"), ("gold", "<u8"), ("row", "<i8"), ("file", "<i4")])


@dataclass(frozen=True)
class Repeats:
    """Rows of one file with the same key.

    Attributes:
        repeated_texts: Rows beyond the first of their key.
        conflicting_texts: Keys with more than one gold answer.
        conflicting_rows: The rows that these stand in.
    """

    repeated_texts: int
    conflicting_texts: int
    conflicting_rows: int


@dataclass(frozen=True)
class Overlap:
    """Keys that stand in two files.

    Attributes:
        between: The files' numbers, the lower first.
        texts: How many keys.
        rows: In how many rows of each they stand.
        examples: The first row of each file for up to three of them.
    """

    between: tuple[int, int]
    texts: int
    rows: tuple[int, int]
    examples: tuple[tuple[int, int], ...]


class KeyStore:
    """Keys of rows, 36 bytes each, in a temporary folder; a context manager.

    They lie in 64 parts by their first bits, so that equal keys lie together; comparing holds one part in memory.

    Attributes:
        folder: Where they lie until the context ends.

    Raises:
        StorageError: No space for them.
    """

    def __init__(self) -> None:
        self._made = tempfile.TemporaryDirectory(prefix="potstill-keys-")
        self.folder = Path(self._made.name)

    def __enter__(self) -> "KeyStore":
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._made.cleanup()

    def _path(self, part: int) -> Path:
        return self.folder / str(part)

    def add(self, file: int, keys: Sequence[bytes], golds: Sequence[bytes], rows: np.ndarray) -> None:
        """Keep rows of a file.

        Args:
            file: Its number.
            keys: 16 bytes each.
            golds: 8 bytes each, equal where gold answers are.
            rows: int64 (n,), what the rows are called by.
        """
        made = np.zeros(len(keys), _RECORD)
        halves = np.frombuffer(b"".join(keys), "<u8").reshape(-1, 2)
        made["high"], made["low"] = halves[:, 0], halves[:, 1]
        made["gold"], made["row"], made["file"] = np.frombuffer(b"".join(golds), "<u8"), rows, file
        parts = (made["high"] >> np.uint64(58)).astype(np.int64)
        with told(self.folder):
            for part in np.unique(parts).tolist():
                with self._path(part).open("ab") as stream:
                    made[parts == part].tofile(stream)

    def compare(self, files: int) -> tuple[list[Repeats], list[Overlap]]:
        """What stands more than once: in each of `files` files, and between every two with something in common."""
        pairs = list(combinations(range(files), 2))
        repeats = np.zeros((files, 3), np.int64)
        shared = np.zeros((len(pairs), 3), np.int64)
        examples: list[list[tuple[int, int]]] = [[] for _ in pairs]
        for records in self._parts():
            group = _groups(records)
            counts = _table(group, records["file"], files)
            repeats[:, 0] += (counts - (counts > 0)).sum(0)
            conflicting = _golds(group, records, files) > 1
            repeats[:, 1] += conflicting.sum(0)
            repeats[:, 2] += (counts * conflicting).sum(0)
            for place, (one, other) in enumerate(pairs):
                both = (counts[:, one] > 0) & (counts[:, other] > 0)
                shared[place] += (both.sum(), counts[both, one].sum(), counts[both, other].sum())
                for found in np.flatnonzero(both)[: _SHOWN - len(examples[place])].tolist():
                    rows = records[group == found]
                    first = (int(rows["row"][rows["file"] == file].min()) for file in (one, other))
                    examples[place].append((next(first), next(first)))
        overlaps = [
            Overlap(pair, int(texts), (int(ours), int(theirs)), tuple(shown))
            for pair, (texts, ours, theirs), shown in zip(pairs, shared.tolist(), examples, strict=True)
            if texts
        ]
        return [Repeats(*map(int, row)) for row in repeats.tolist()], overlaps

    def _parts(self) -> Iterator[np.ndarray]:
        for part in range(_PARTS):
            if self._path(part).is_file():
                yield np.fromfile(self._path(part), _RECORD)


def _groups(records: np.ndarray) -> np.ndarray:
    """int64 (n,): a number for each row, the same where keys are."""
    order = np.lexsort((records["low"], records["high"]))
    high, low = records["high"][order], records["low"][order]
    new = np.concatenate([[0], (high[1:] != high[:-1]) | (low[1:] != low[:-1])])
    numbers = np.empty(len(records), np.int64)
    numbers[order] = np.cumsum(new)
    return numbers


def _table(group: np.ndarray, file: np.ndarray, files: int) -> np.ndarray:
    """int64 (groups, files): how many rows."""
    size = int(group.max()) + 1
    return np.bincount(group * files + file, minlength=size * files).reshape(size, files)


def _golds(group: np.ndarray, records: np.ndarray, files: int) -> np.ndarray:
    """int64 (groups, files): how many different gold answers."""
    cells = group * files + records["file"]
    order = np.lexsort((records["gold"], cells))
    cell, gold = cells[order], records["gold"][order]
    first = np.concatenate([[True], (cell[1:] != cell[:-1]) | (gold[1:] != gold[:-1])])
    size = int(group.max()) + 1
    return np.bincount(cell[first], minlength=size * files).reshape(size, files)
