"""Bytes of a text file to records, in pieces, so that memory stays flat whatever the file holds.

Every record comes out as bytes in UTF-8 without its line end, or as a sentence (str) that says why there is none.
Byte order marks, UTF-16 and UTF-32, the three line ends, quoted CSV records and the objects of a JSON array are handled
here; what the records mean is not known here.
"""

import codecs
import itertools
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from potstill.errors import DataError
from potstill.progress import SILENT, Reporter

__all__ = ["ROW_LIMIT", "TOO_LONG", "array_items", "byte_pieces", "csv_records", "line_records", "record_text"]

ROW_LIMIT = 1_000_000
"""Longest row in bytes of UTF-8."""
TOO_LONG = "over 1 MB"
_PIECE = 1 << 18
_HEAD = 1 << 16
_MARKS = (
    (codecs.BOM_UTF8, None),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


def _mark_damage(error: UnicodeError) -> tuple[str | bytes, int]:
    if isinstance(error, UnicodeDecodeError):
        return "\udcff", error.end
    raise error


# A damaged unit becomes a lone surrogate, which is no UTF-8 once encoded: its row is found undecodable, and only that.
codecs.register_error("potstill-mark-damage", _mark_damage)


def byte_pieces(path: Path, report: Reporter = SILENT) -> Iterator[bytes]:
    """A text file as pieces of UTF-8, its byte order mark taken off; UTF-16 and UTF-32 with a mark are converted.

    Raises:
        DataError: The file is missing, a folder, not readable, or has nothing in it.
    """
    try:
        with path.open("rb") as file:
            total = os.fstat(file.fileno()).st_size
            piece = file.read1(_PIECE)
            if not piece:
                raise DataError(f"{path} is empty", expected="at least one row")
            mark, encoding = next(((mark, name) for mark, name in _MARKS if piece.startswith(mark)), (b"", None))
            decoder = None if encoding is None else codecs.getincrementaldecoder(encoding)("potstill-mark-damage")
            piece = piece if decoder else piece[len(mark) :]
            done = 0
            while piece or done == 0:
                done += len(piece) or 1
                yield piece if decoder is None else decoder.decode(piece).encode("utf-8", "surrogatepass")
                if total:
                    report.progress(min(done, total), total)
                piece = file.read1(_PIECE)
            if decoder is not None:
                yield decoder.decode(b"", final=True).encode("utf-8", "surrogatepass")
    except FileNotFoundError as error:
        raise DataError(f"{path} does not exist", fix="check the path") from error
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}") from error


def _separator(head: bytes, final: bool) -> bytes | None:
    # Files of the old Mac end their lines in CR alone; a stray CR in any other file is part of its text. What begins
    # with more CR than LF is looked at further before it is believed.
    whole = head if final or not head.endswith(b"\r") else head[:-1]
    line_feeds, alone = whole.count(b"\n"), whole.count(b"\r") - head.count(b"\r\n")
    if line_feeds and alone <= line_feeds:
        return b"\n"
    if not final and len(head) < _HEAD:
        return None
    return b"\r" if alone else b"\n" if final else None


def _without_end(line: bytes) -> bytes:
    return line[:-1] if line.endswith(b"\r") else line


def line_records(pieces: Iterable[bytes], limit: int = ROW_LIMIT) -> Iterator[bytes | str]:
    """Lines without their ends (LF, CRLF, or CR where the file has no other); one over `limit` bytes is a `str`."""
    separator: bytes | None = None
    rest, too_long = b"", False
    for piece in itertools.chain(pieces, [None]):
        rest += piece or b""
        separator = separator or _separator(rest, piece is None)
        if separator is not None:
            *lines, rest = rest.split(separator)
            for line in lines:
                yield TOO_LONG if too_long or len(line) > limit + 1 else _without_end(line)
                too_long = False
        if len(rest) > limit + 1:
            rest, too_long = rest[-1:] if separator is None else b"", True
    if rest or too_long:
        yield TOO_LONG if too_long else _without_end(rest)


_IN_QUOTES = re.compile(rb'[^"]*+(?:""[^"]*+)*+')


class _QuotedSplitter:
    """Cuts CSV at line ends outside quotes; a quote opens a field only at the field's start (RFC 4180)."""

    def __init__(self, delimiter: bytes, where: str, limit: int) -> None:
        self.delimiter, self.where, self.limit = delimiter, where, limit
        self.separator: bytes | None = None
        self.outside = re.compile(b"")
        self.rest = b""
        self.at = 0
        self.records, self.lines = 0, 1
        self.at_start, self.in_quotes, self.too_long = True, False, False

    def feed(self, piece: bytes, final: bool = False) -> Iterator[bytes | str]:
        self.rest += piece
        if self.separator is None:
            self.separator = _separator(self.rest, final or len(self.rest) > self.limit)
            if self.separator is None:
                return
            self.outside = re.compile(re.escape(self.separator) + b"|" + re.escape(self.delimiter) + b'(?=")')
        # The last byte waits for its successor: a delimiter or a quote means something else before a quote.
        end = len(self.rest) if final else len(self.rest) - 1
        start = 0
        while self.at < end:
            if self.at_start:
                self.at_start = False
                if self.rest.startswith(b'"', self.at):
                    self.in_quotes = True
                    self.at += 1
            elif self.in_quotes:
                self._to_closing_quote(end)
            else:
                found = self.outside.search(self.rest, self.at, len(self.rest))
                if found is None or found.start() >= end:
                    self.at = end
                elif found.group() == self.separator:
                    yield self._record(self.rest[start : found.start()])
                    start = self.at = found.end()
                    self.at_start, self.lines = True, 1
                else:
                    self.at, self.at_start = found.end(), True
        self._keep(start)

    def _to_closing_quote(self, end: int) -> None:
        inside = _IN_QUOTES.match(self.rest, self.at, end)
        found = inside.end() if inside else self.at
        self.lines += self.rest.count(self.separator or b"\n", self.at, found)
        if found == end:
            self.at = end
        else:
            # A doubled quote is stopped at only where its second half lies at `end`.
            self.in_quotes = self.rest.startswith(b'"', found + 1)
            self.at = found + 1 + self.in_quotes

    def _record(self, record: bytes) -> bytes | str:
        self.records += 1
        too_long, self.too_long = self.too_long or len(record) > self.limit + 1, False
        return TOO_LONG if too_long else _without_end(record)

    def _keep(self, start: int) -> None:
        self.rest, self.at = self.rest[start:], self.at - start
        if len(self.rest) > self.limit + 2:
            self.rest, self.at, self.too_long = self.rest[self.at :], 0, True

    def end(self) -> Iterator[bytes | str]:
        yield from self.feed(b"", final=True)
        if self.in_quotes:
            lines = self.lines - self.rest.endswith(self.separator or b"\n")
            if lines > 1:
                raise DataError(
                    f"{self.where}: a quote opened in record {self.records + 1} takes in the last {lines} lines",
                    fix='close or double the quote, or say format "tsv" if quotes mean nothing in this file',
                )
            yield "a quote is opened and never closed"
        elif self.rest or self.too_long:
            yield self._record(self.rest)


def csv_records(
    pieces: Iterable[bytes], delimiter: bytes = b",", *, where: str = "the file", limit: int = ROW_LIMIT
) -> Iterator[bytes | str]:
    """CSV records, line ends inside quoted fields kept; one over `limit` bytes, or left open at the end, is a `str`.

    Raises:
        DataError: A quote that is never closed has swallowed lines; how many rows are lost cannot be told. `where`
            names the file in it.
    """
    splitter = _QuotedSplitter(delimiter, where, limit)
    for piece in pieces:
        yield from splitter.feed(piece)
    yield from splitter.end()


def record_text(record: bytes | str) -> tuple[str, bool]:
    """A record's text and True; or the reason why it has none (NUL, not UTF-8, what the `str` said) and False."""
    if isinstance(record, str):
        return record, False
    if b"\0" in record:
        return "NUL", False
    try:
        return record.decode("utf-8"), True
    except UnicodeDecodeError as error:
        return f"not UTF-8 at byte {error.start + 1}", False


_IN_STRING = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+)*+', re.DOTALL)
_ITEM_ENDS = re.compile(rb'["\[\]{},]')
_BRACKETS = re.compile(rb'["\[\]{}]')


def array_items(pieces: Iterable[bytes], *, where: str = "the file", limit: int = ROW_LIMIT) -> Iterator[bytes | str]:
    """The items of one JSON array, each as its bytes; one over `limit` bytes is a `str`.

    Raises:
        DataError: What is read is not one whole array. `where` names the file in it.
    """
    splitter = _ArraySplitter(where, limit)
    for piece in pieces:
        yield from splitter.feed(piece)
    splitter.end()


class _ArraySplitter:
    def __init__(self, where: str, limit: int) -> None:
        self.where, self.limit = where, limit
        self.rest = b""
        self.at = self.depth = self.items = 0
        self.in_string = self.too_long = self.done = False

    def feed(self, piece: bytes) -> Iterator[bytes | str]:
        self.rest += piece
        start = 0
        while not self.done:
            if self.in_string and not self._to_end_of_string():
                break
            found = (_ITEM_ENDS if self.depth <= 1 else _BRACKETS).search(self.rest, self.at)
            self.at = len(self.rest) if found is None else found.end()
            if found is None:
                break
            mark = found.group()
            if self.depth == 0:
                if mark != b"[" or self.rest[: found.start()].strip():
                    raise self._no_array()
                start, self.depth = self.at, 1
            elif mark == b'"':
                self.in_string = True
            elif self.depth == 1 and mark in b",]":
                item = self.rest[start : found.start()].strip()
                if item or mark == b"," or self.too_long:
                    yield TOO_LONG if self.too_long or len(item) > self.limit else item
                    self.items += 1
                start, self.too_long, self.done = self.at, False, mark == b"]"
            else:
                self.depth += 1 if mark in b"[{" else -1
                if self.depth == 0:
                    raise DataError(f"{self.where}: brackets do not match in item {self.items + 1} of its JSON array")
        self._keep(start)

    def _to_end_of_string(self) -> bool:
        inside = _IN_STRING.match(self.rest, self.at)
        self.at = inside.end() if inside else self.at
        self.in_string = not self.rest.startswith(b'"', self.at)
        self.at += not self.in_string
        return not self.in_string

    def _no_array(self) -> DataError:
        return DataError(f"{self.where} holds no JSON array", expected="an array of objects: [{...}, {...}]")

    def _keep(self, start: int) -> None:
        self.rest, self.at = self.rest[start:], self.at - start
        if self.depth == 0 and self.rest.strip():
            raise self._no_array()
        if self.done and self.rest.strip():
            raise DataError(f"{self.where} goes on after the end of its JSON array", expected="one array in a file")
        if len(self.rest) > self.limit + 2:
            self.rest, self.at, self.too_long = self.rest[self.at :], 0, not self.done

    def end(self) -> None:
        if not self.done:
            raise DataError(
                f"{self.where}: its JSON array never ends", expected="] at its end", fix="fetch the file again"
            )
