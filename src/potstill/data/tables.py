"""Files to tables of texts: what can be used, and what was set aside with its row number and the reason.

Knows formats and columns, and neither labels nor splits: those are `potstill.data.schema`'s.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from potstill.data.arrow import class_names, column_texts
from potstill.data.columns import missing_column
from potstill.data.data_files import is_data_file
from potstill.data.rows import EMPTY_ROW, FORMATS, BadRow, Row, file_format, iter_rows
from potstill.errors import DataError
from potstill.progress import SILENT, Reporter

__all__ = ["FORMATS", "BadRow", "Row", "Table", "iter_rows", "read_blocks", "read_table", "read_texts"]

_BLOCK = 1 << 16


@dataclass(frozen=True)
class Table:
    """Rows of one or more files, every value a text.

    Attributes:
        rows: n rows of large_string columns; null where a file has no value there.
        row_numbers: int64 (n,); each row's number in its file. 1 is the first row of data: header rows are not counted,
            rows set aside and blank lines are.
        file_numbers: int32 (n,); each row's file, as an index into `sources`.
        bad: The rows set aside, in file order.
        sources: The files read, as given.
    """

    rows: pa.Table
    row_numbers: np.ndarray
    file_numbers: np.ndarray
    bad: tuple[BadRow, ...] = ()
    sources: tuple[str, ...] = field(default=("table",))

    def __len__(self) -> int:
        return int(self.rows.num_rows)

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns, in file order."""
        return tuple(self.rows.column_names)

    def column(self, name: str) -> list[str | None]:
        """The n values of a column; a `DataError` with the nearest name and all names where there is no such column."""
        if name not in self.columns:
            raise missing_column(name, self.columns, ", ".join(self.sources[:3]))
        values: list[str | None] = self.rows[name].to_pylist()
        return values

    @classmethod
    def from_arrow(cls, table: pa.Table, source: str) -> "Table":
        """A table from an Arrow table of any column types (a `datasets` dataset, say); rows are numbered from 1."""
        names = class_names(table.schema)
        columns: Mapping[str, pa.Array] = {
            name: pa.array(column_texts(table[name], names.get(name)), pa.large_string()) for name in table.column_names
        }
        numbers = np.arange(1, table.num_rows + 1, dtype=np.int64)
        return cls(pa.table(columns), numbers, np.zeros(len(numbers), np.int32), (), (source,))


class _Builder:
    """Collects rows into Arrow blocks, so that Python holds no more than one block of them."""

    def __init__(self, columns: Sequence[str] | None) -> None:
        self.columns = columns
        self.blocks: list[pa.Table] = []
        self.pending: list[dict[str, str | None]] = []
        self.row_numbers: list[int] = []
        self.file_numbers: list[int] = []

    def add(self, row: Row, file_number: int) -> None:
        self.pending.append(row.values)
        self.row_numbers.append(row.row)
        self.file_numbers.append(file_number)
        if len(self.pending) >= _BLOCK:
            self.flush()

    def flush(self) -> None:
        names = (
            list(self.columns) if self.columns is not None else list(dict.fromkeys(n for v in self.pending for n in v))
        )
        if self.pending:
            arrays = {name: pa.array([v.get(name) for v in self.pending], pa.large_string()) for name in names}
            self.blocks.append(pa.table(arrays))
            self.pending = []

    def table(self, bad: Sequence[BadRow], sources: tuple[str, ...]) -> Table:
        self.flush()
        empty = pa.table({name: pa.array([], pa.large_string()) for name in self.columns or ()})
        rows = pa.concat_tables(self.blocks, promote_options="default") if self.blocks else empty
        numbers = np.array(self.row_numbers, np.int64)
        return Table(rows, numbers, np.array(self.file_numbers, np.int32), tuple(bad), sources)


def read_table(
    paths: Sequence[Path],
    *,
    format: str | None = None,
    columns: Sequence[str] | None = None,
    blank: Collection[str] = (),
    header: bool = True,
    report: Reporter = SILENT,
) -> Table:
    """Read files into one table, one after the other.

    Args:
        paths: The files; each must hold every column in `columns`.
        format: As for `iter_rows`; None goes by each file's suffix.
        columns: The columns wanted: each must be there, and a row where one is blank is set aside. None: all columns
            of all files.
        blank: Those of `columns` in which a blank cell is an answer, and not a reason to set a row aside.
        header: False for csv and tsv without a header line.
        report: Told of the bytes read in each file.

    Returns:
        The usable rows, and those set aside. Blank lines of txt files are gaps between texts: neither.

    Raises:
        DataError: As for `iter_rows`.
    """
    if not paths:
        raise DataError("no files to read", expected="at least one")
    builder = _Builder(columns)
    bad: list[BadRow] = []
    for file_number, path in enumerate(paths):
        for row in _rows_of(path, format, columns, blank, header, report):
            if isinstance(row, Row):
                builder.add(row, file_number)
            else:
                bad.append(row)
    return builder.table(bad, tuple(map(str, paths)))


def read_blocks(
    paths: Sequence[Path], *, format: str | None = None, header: bool = True, report: Reporter = SILENT
) -> Iterator[Table]:
    """The rows of `read_table`, all columns of them, as tables of so many rows that memory stays flat.

    A column that an earlier block had and a later one has not is there, without values.

    Raises:
        DataError: As for `iter_rows`.
    """
    names: dict[str, None] = {}
    sources = tuple(map(str, paths))
    for file_number, path in enumerate(paths):
        builder, bad = _Builder(None), list[BadRow]()
        for row in _rows_of(path, format, None, (), header, report):
            if isinstance(row, Row):
                builder.add(row, file_number)
            else:
                bad.append(row)
            if len(builder.row_numbers) + len(bad) >= _BLOCK:
                yield _with_columns(builder.table(bad, sources), names)
                builder, bad = _Builder(None), []
        if builder.row_numbers or bad:
            yield _with_columns(builder.table(bad, sources), names)


def _with_columns(table: Table, names: dict[str, None]) -> Table:
    """The table with all of `names` as columns; they learn its own."""
    names.update(dict.fromkeys(table.columns))
    rows = table.rows
    for name in names.keys() - set(table.columns):
        rows = rows.append_column(name, pa.nulls(len(table), pa.large_string()))
    return replace(table, rows=rows.select(list(names)))


def _rows_of(
    path: Path,
    format: str | None,
    columns: Sequence[str] | None,
    blank: Collection[str],
    header: bool,
    report: Reporter,
) -> Iterator[Row | BadRow]:
    """The rows of a file; blank lines of a txt file are none."""
    is_plain = file_format(path, format) == "txt"
    for row in iter_rows(path, format=format, columns=columns, blank=blank, header=header, report=report):
        if isinstance(row, Row) or not (is_plain and row.reason == EMPTY_ROW):
            yield row


def read_texts(
    paths: Sequence[Path], *, format: str | None = None, column: str | None = None, report: Reporter = SILENT
) -> Iterator[str]:
    """The texts of a plain corpus, one by one, in the order of the files; memory stays flat.

    Args:
        paths: Files, or folders: of a folder every data file below it, sorted by path.
        format: As for `iter_rows`; None goes by each file's suffix.
        column: Where the texts are, in files that have columns; None means `text`.
        report: Warned, file by file, of rows that could not be used.

    Raises:
        DataError: No files, or as for `iter_rows`.
    """
    files = [file for path in paths for file in _files(path)]
    if not files:
        raise DataError(
            f"no text files in {', '.join(map(str, paths))}", expected=f"files ending in {' | '.join(FORMATS)}"
        )
    for file in files:
        name = column or "text"
        set_aside, first = 0, ""
        for row in iter_rows(file, format=format, columns=[name], report=report):
            if isinstance(row, Row):
                yield row.values[name] or ""
            elif row.reason != EMPTY_ROW:
                set_aside, first = set_aside + 1, first or f"row {row.row}: {row.reason}"
        if set_aside:
            report.warn(f"{file}: {set_aside} rows set aside ({first})")


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    return [file for file in sorted(path.rglob("*")) if file.is_file() and is_data_file(file.name)]
