"""Files of a cache: one tensor of rows in a safetensors file, its facts and SHA-256 beside it. Knows no model.

Rows are read by position from the file, not through a mapping, so that memory stays flat whatever is read.
"""

import os
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor

from potstill.errors import StorageError
from potstill.storage import digest, digest_file, read_json, told, write_json

__all__ = ["Shard", "ShardReader", "find_shards", "write_shard"]

_DTYPES = {str(dtype): dtype for dtype in (torch.float32, torch.bfloat16, torch.float16)}
_TENSOR = "rows"


@dataclass(frozen=True)
class Shard:
    """A file of the cache.

    Attributes:
        path: The safetensors file; its facts are in the .json of the same name.
        fields, widths: What its columns hold, in their order, and how many columns each has.
        rows: Number of rows.
        dtype: Of its numbers.
        sha256: Of the file.
    """

    path: Path
    fields: tuple[str, ...]
    widths: tuple[int, ...]
    rows: int
    dtype: torch.dtype
    sha256: str

    @property
    def row_bytes(self) -> int:
        """Bytes of a row."""
        return sum(self.widths) * self.dtype.itemsize

    @property
    def size(self) -> int:
        """Bytes of its numbers."""
        return self.rows * self.row_bytes

    def columns(self, field: str) -> slice:
        """Where a field stands in a row."""
        index = self.fields.index(field)
        first = sum(self.widths[:index])
        return slice(first, first + self.widths[index])

    def is_whole(self) -> bool:
        """Whether the file is there and has its SHA-256."""
        return self.path.is_file() and digest_file(self.path) == self.sha256

    def remove(self) -> None:
        """Remove the file; its facts go first, so that no half of it is ever taken for the whole."""
        self.path.with_suffix(".json").unlink(missing_ok=True)
        self.path.unlink(missing_ok=True)


def write_shard(folder: Path, fields: Sequence[str], widths: Sequence[int], rows: Tensor) -> Shard:
    """Write rows (n, Σ widths) whole or not at all: the file under another name, then renamed, then its facts."""
    final = folder / f"{digest(list(fields))[:16]}.safetensors"
    work = final.with_suffix(f".{os.getpid()}.tmp")
    with told(final):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            save_file({_TENSOR: rows}, work)
            with work.open("rb") as file:
                os.fsync(file.fileno())
            sha256 = digest_file(work)
            os.replace(work, final)
        finally:
            work.unlink(missing_ok=True)
    facts = {"fields": list(fields), "widths": list(widths), "rows": len(rows), "dtype": str(rows.dtype)}
    write_json(final.with_suffix(".json"), {"schema_version": 1, **facts, "sha256": sha256})
    return Shard(final, tuple(fields), tuple(widths), len(rows), rows.dtype, sha256)


def find_shards(folder: Path) -> Iterator[Shard]:
    """The files of a folder by what their facts say, by name; facts that cannot be read are passed over."""
    for path in sorted(folder.glob("*.json")):
        try:
            facts = read_json(path)
            dtype = _DTYPES[facts["dtype"]]
            found = Shard(
                path.with_suffix(".safetensors"),
                tuple(map(str, facts["fields"])),
                tuple(map(int, facts["widths"])),
                int(facts["rows"]),
                dtype,
                str(facts["sha256"]),
            )
        except (StorageError, KeyError, TypeError, ValueError):
            continue
        yield found


class ShardReader:
    """Reads rows of many files, of which it holds `most` open, those used last."""

    def __init__(self, most: int = 256) -> None:
        self._most = most
        self._open: OrderedDict[Path, tuple[int, int]] = OrderedDict()

    def _file(self, path: Path) -> tuple[int, int]:
        """Descriptor, and the byte where the numbers begin."""
        if path in self._open:
            self._open.move_to_end(path)
            return self._open[path]
        with told(path):
            descriptor = os.open(path, os.O_RDONLY)
            header = int.from_bytes(os.pread(descriptor, 8, 0), "little")
        self._open[path] = descriptor, 8 + header
        if len(self._open) > self._most:
            os.close(self._open.popitem(last=False)[1][0])
        return self._open[path]

    def read(self, shard: Shard, first: int, into: np.ndarray) -> None:
        """Fill `into`, uint8 (count, bytes of a row), with rows from `first` on.

        Raises:
            StorageError: The file is gone, or shorter than it was.
        """
        descriptor, start = self._file(shard.path)
        with told(shard.path):
            got = os.preadv(descriptor, [into.data], start + first * shard.row_bytes)
        if got != into.nbytes:
            raise StorageError(f"{shard.path} has been cut short", fix="run again: what is lost is made again")

    def all_rows(self, shard: Shard) -> Tensor:
        """Every row: (n, Σ widths)."""
        rows = torch.empty((shard.rows, sum(shard.widths)), dtype=shard.dtype)
        self.read(shard, 0, rows.view(torch.uint8).numpy())
        return rows

    def close(self) -> None:
        """Close all files."""
        for descriptor, _ in self._open.values():
            os.close(descriptor)
        self._open.clear()
