"""Columns that are asked for and are not there."""

import difflib
from collections.abc import Sequence

from potstill.errors import DataError

__all__ = ["missing_column", "require_columns"]

_SEPARATORS = {"\t": 'say format "tsv"', ";": "separate its fields by commas", ",": 'say format "csv"'}


def missing_column(name: str, columns: Sequence[str], where: str) -> DataError:
    """The error for a column that is not there: all names are in it, and the nearest where one is near."""
    by_fold = {column.casefold(): column for column in columns}
    near = difflib.get_close_matches(name.casefold(), by_fold, n=1, cutoff=0.6)
    fix = f"did you mean {by_fold[near[0]]!r}?" if near else "name the column that is meant (--text, --pair, --label)"
    if len(columns) == 1 and (found := next((mark for mark in _SEPARATORS if mark in columns[0]), None)):
        fix = f"its first line has {found!r} in it: {_SEPARATORS[found]}"
    return DataError(f"{where} has no column {name!r}", expected=f"one of {', '.join(map(repr, columns))}", fix=fix)


def require_columns(names: Sequence[str] | None, columns: Sequence[str], where: str) -> None:
    """Raise `missing_column` for the first of `names` that is not among `columns`."""
    for name in names or ():
        if name not in columns:
            raise missing_column(name, columns, where)
