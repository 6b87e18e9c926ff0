"""Rows of one file, one at a time, whatever its format: a row's texts, or why it cannot be used.

Nothing is guessed about values: `NA`, `null` and `None` are texts, numbers become the text that stands for them.
Knows columns, and neither labels nor splits.
"""

import itertools
import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from potstill.data.arrow import parquet_columns, parquet_rows
from potstill.data.columns import missing_column, require_columns
from potstill.data.delimited import delimited_rows
from potstill.data.lines import array_items, byte_pieces, csv_records, line_records, record_text
from potstill.data.words import is_blank
from potstill.errors import DataError
from potstill.progress import SILENT, Reporter

__all__ = ["EMPTY_ROW", "FORMATS", "BadRow", "Row", "file_format", "iter_rows"]

FORMATS = ("csv", "tsv", "jsonl", "json", "parquet", "tab", "txt")
EMPTY_ROW = "empty row"
_COMPRESSED = (".gz", ".bz2", ".xz", ".zst", ".zip")
_SUFFIXES = {f".{name}": name for name in FORMATS}
# How many records may pass before a column that none of them had is called missing.
_PATIENCE = 100


@dataclass(frozen=True, slots=True)
class Row:
    """One usable row.

    Attributes:
        row: Its number in its file: 1 is the first row of data, header rows are not counted, blank rows are.
        values: Column name to text; None where the file has no value there (JSON `null`, Parquet null, absent key).
    """

    row: int
    values: dict[str, str | None]


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row set aside.

    Attributes:
        file: The path it was read from.
        row: Its number, counted as in `Row`.
        reason: Why, in a few words.
    """

    file: str
    row: int
    reason: str


# A record on its way: its values, or the reason there are none.
_Record = dict[str, str | None] | str


def file_format(path: Path, given: str | None = None) -> str:
    """The format of a file: the one given, else by its suffix."""
    if path.suffix.lower() in _COMPRESSED:
        raise DataError(f"{path} is compressed", expected=" | ".join(FORMATS), fix="unpack it first")
    name = given or _SUFFIXES.get(path.suffix.lower())
    if name not in FORMATS:
        got = f"format {given!r}" if given else f"{path}, whose format its suffix does not tell"
        raise DataError(
            got,
            expected=" | ".join(FORMATS),
            fix=None if given else "name the format (data.format, or --format for predictions)",
        )
    return name


def iter_rows(
    path: Path,
    *,
    format: str | None = None,
    columns: Sequence[str] | None = None,
    blank: Collection[str] = (),
    header: bool = True,
    report: Reporter = SILENT,
) -> Iterator[Row | BadRow]:
    """Read a file row by row; memory stays flat.

    Args:
        path: The file. csv: RFC 4180, commas. tsv: quotes mean nothing. jsonl: an object a line. json: an array of
            objects, or JSON Lines under that name. parquet. tab: Orange's, with three header rows. txt: a text a line,
            in the column `text`. UTF-8, or UTF-16 with a byte order mark.
        format: One of `FORMATS`; None goes by the suffix.
        columns: The columns that must be there, the only ones to come back, and must not be blank. None: all columns,
            and any may be blank.
        blank: Those of `columns` that may be blank, though not without a value.
        header: False for csv and tsv without a header line; the columns are then "1", "2", ….
        report: Told of the bytes read.

    Yields:
        A `Row`, or a `BadRow` (wrong number of fields, not UTF-8, NUL, over 1 MB, blank, not JSON, …), in file order.
        Blank lines at the end of a file are no rows, except in txt.

    Raises:
        DataError: No such file, nothing in it, no such column, or damage that leaves the rows after it in doubt.
    """
    kind = file_format(path, format)
    number = 0
    seen: dict[str, None] = {}
    waiting = set(columns or ())
    for number, record in enumerate(_records(path, kind, columns, header, report), 1):
        if isinstance(record, str):
            yield BadRow(str(path), number, record)
            continue
        if waiting or columns is None:
            seen.update(dict.fromkeys(record))
            waiting -= record.keys()
            if waiting and number >= _PATIENCE:
                break
        yield _checked(path, number, record, columns, blank)
    if waiting and seen:
        raise missing_column(next(name for name in columns or () if name in waiting), list(seen), str(path))
    if number == 0:
        raise DataError(f"{path} has no rows", expected="at least one row of data")


def _checked(
    path: Path, number: int, record: dict[str, str | None], columns: Sequence[str] | None, blank: Collection[str]
) -> Row | BadRow:
    values = record if columns is None else {name: record.get(name) for name in columns}
    for name, value in values.items():
        if value is None:
            if columns is not None:
                return BadRow(str(path), number, f"no value in column {name!r}")
        elif "\0" in value:
            return BadRow(str(path), number, f"NUL in column {name!r}")
        elif columns is not None and name not in blank and is_blank(value):
            return BadRow(str(path), number, f"column {name!r} is empty")
        elif not value.isascii() and _has_surrogate(value):
            return BadRow(str(path), number, f"column {name!r} is not valid Unicode")
    return Row(number, values)


def _has_surrogate(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def _records(path: Path, kind: str, columns: Sequence[str] | None, header: bool, report: Reporter) -> Iterator[_Record]:
    if kind == "parquet":
        names = parquet_columns(path)
        require_columns(columns, names, str(path))
        return parquet_rows(path, columns or names, report)
    pieces = byte_pieces(path, report)
    if kind == "txt":
        return _text_lines(path, line_records(pieces), columns)
    if kind == "json":
        return _json_file(path, pieces)
    if kind == "jsonl":
        return map(_parse_object, _no_blank_end(line_records(pieces)))
    heads = int(header)
    where = str(path)
    if kind == "tsv":
        return delimited_rows(_no_blank_end(line_records(pieces)), columns, where=where, header_rows=heads)
    if kind == "tab":
        # Orange itself passes over blank lines, and puts one after its header.
        full = (record for record in csv_records(pieces, b"\t", where=where) if record.strip())
        return delimited_rows(full, columns, where=where, header_rows=3, quoted="\t")
    records = _no_blank_end(csv_records(pieces, where=where))
    return delimited_rows(records, columns, where=where, header_rows=heads, quoted=",")


def _no_blank_end(records: Iterable[bytes | str]) -> Iterator[bytes | str]:
    blank = 0
    for record in records:
        if isinstance(record, bytes) and not record.strip():
            blank += 1
            continue
        for _ in range(blank):
            yield EMPTY_ROW
        blank = 0
        yield record


def _text_lines(path: Path, records: Iterable[bytes | str], columns: Sequence[str] | None) -> Iterator[_Record]:
    head = b""
    for record in records:
        if not head and columns is not None and isinstance(record, bytes):
            head = record or b"\n"
            if any(name != "text" for name in columns):
                first = record[:200].decode("utf-8", "replace")
                names = ["text"] if "\t" not in first else [first]
                raise missing_column(next(name for name in columns if name != "text"), names, str(path))
        text, usable = record_text(record)
        yield text if not usable else {"text": text} if text.strip() else EMPTY_ROW


def _parse_object(record: bytes | str) -> _Record:
    text, usable = record_text(record)
    if not usable:
        return text
    try:
        # Numbers keep the digits they are written with: 1.0 stays "1.0".
        value = json.loads(text, parse_int=str, parse_float=str, parse_constant=str)
    except (ValueError, RecursionError):
        return "not JSON"
    if not isinstance(value, dict):
        return "a JSON value that is no object"
    return {name: _json_text(item) for name, item in value.items()}


def _json_text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    return json.dumps(value, ensure_ascii=False)


def _json_file(path: Path, pieces: Iterator[bytes]) -> Iterator[_Record]:
    head = b""
    for piece in pieces:
        head += piece
        if head.strip():
            break
    every = itertools.chain([head], pieces)
    first_line = head.lstrip().partition(b"\n")[0]
    # JSON Lines often go by the name .json; a line that is a whole object tells them.
    if first_line.startswith(b"{") and isinstance(_parse_object(first_line), dict):
        yield from map(_parse_object, _no_blank_end(line_records(every)))
    else:
        yield from map(_parse_object, array_items(every, where=str(path)))
