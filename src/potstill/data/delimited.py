"""CSV, TSV and Orange .tab: records to fields, and header rows to column names."""

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence

from potstill.data.columns import require_columns
from potstill.data.lines import record_text
from potstill.errors import DataError

__all__ = ["delimited_rows"]

_ORANGE_TYPES = {"", "c", "continuous", "d", "discrete", "s", "string", "t", "time", "basket"}
_ORANGE_FLAGS = {"c", "class", "m", "meta", "i", "ignore", "w", "weight"}
_ORANGE_HEADER = 3
_FIELDS = {mark: re.compile(rf'(?:"([^"]*+(?:""[^"]*+)*+)"|((?!")[^{mark}]*+))({mark}|\Z)') for mark in (",", "\t")}


def delimited_rows(
    records: Iterable[bytes | str],
    columns: Sequence[str] | None,
    *,
    where: str,
    header_rows: int,
    quoted: str | None = None,
) -> Iterator[dict[str, str | None] | str]:
    """Rows as column name → text, or the reason why a row has none.

    Args:
        records: What `potstill.data.lines` yields.
        columns: The columns that must be in the header; None: any.
        where: The file, for errors.
        header_rows: 1; 3 for Orange's names, types and flags; 0 where there are none: a row then has as many columns
            ("1", "2", …) as it has fields.
        quoted: The character between fields where quotes mean something; None: tabs, and they mean nothing.

    Raises:
        DataError: A header that cannot be used, or lacks a column.
    """
    stream = iter(records)
    heads = [_fields(record, quoted) for record in itertools.islice(stream, header_rows)]
    names = _column_names(heads, header_rows, where) if header_rows else None
    if names is not None:
        require_columns(columns, names, where)
    for record in stream:
        fields = _fields(record, quoted)
        if isinstance(fields, str):
            yield fields
        elif names is None:
            yield {str(number): text for number, text in enumerate(fields, 1)}
        elif len(fields) != len(names):
            yield f"{len(fields)} fields, not {len(names)}"
        else:
            yield dict(zip(names, fields, strict=True))


def _fields(record: bytes | str, quoted: str | None) -> list[str] | str:
    text, usable = record_text(record)
    if not usable:
        return text
    if quoted is None:
        return text.split("\t")
    if '"' not in text:
        return text.split(quoted)
    fields, at, pattern = [], 0, _FIELDS[quoted]
    while (match := pattern.match(text, at)) is not None:
        inside, plain, end = match.groups()
        fields.append(plain if inside is None else inside.replace('""', '"'))
        if not end:
            return fields
        at = match.end()
    return "text after a closing quote"


def _column_names(heads: Sequence[list[str] | str], header_rows: int, where: str) -> list[str]:
    rows = [head for head in heads if isinstance(head, list)]
    if unusable := [head for head in heads if isinstance(head, str)]:
        raise DataError(f"{where}: its header cannot be used ({unusable[0]})", fix="save the file as UTF-8 text")
    if not rows:
        raise DataError(f"{where} is empty", expected="a header and at least one row")
    names = [name.strip() or str(number) for number, name in enumerate(rows[0], 1)]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise DataError(f"{where} has more than one column {twice!r}", fix="rename one of them")
    if header_rows == _ORANGE_HEADER and not _is_orange(rows):
        raise DataError(
            f"{where} has no Orange header",
            expected="three rows: names, types, flags",
            fix='for one header row say format "tsv"',
        )
    return names


def _is_orange(rows: Sequence[list[str]]) -> bool:
    if len(rows) < _ORANGE_HEADER or len({len(row) for row in rows}) > 1:
        return False
    types_known = all(field.strip().lower() in _ORANGE_TYPES or " " in field.strip() for field in rows[1])
    flags = (flag for field in rows[2] for flag in field.lower().split())
    return types_known and all(flag in _ORANGE_FLAGS or "=" in flag for flag in flags)
