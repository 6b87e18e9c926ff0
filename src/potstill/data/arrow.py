"""Arrow columns to texts, and Parquet files row by row.

Strings stay as they are, numbers and truth values become the text that stands for them, a class label of the Hugging
Face kind becomes its name. Lists and structures become JSON.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from potstill.data.lines import ROW_LIMIT, TOO_LONG
from potstill.errors import DataError
from potstill.progress import SILENT, Reporter

__all__ = ["class_names", "column_texts", "parquet_columns", "parquet_rows"]

_ROWS_AT_ONCE = 1024


def _open(path: Path) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(str(path))
    except FileNotFoundError as error:
        raise DataError(f"{path} does not exist", fix="check the path") from error
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path} cannot be read as Parquet", fix="fetch it again, or name its format") from error


def parquet_columns(path: Path) -> list[str]:
    """The names of a Parquet file's columns."""
    with _open(path) as file:
        return list(file.schema_arrow.names)


def class_names(schema: pa.Schema) -> dict[str, list[str]]:
    """Column → its class names, for the columns that the `datasets` library marked as `ClassLabel`."""
    try:
        features = json.loads((schema.metadata or {})[b"huggingface"])["info"]["features"]
        return {
            name: [str(item) for item in kind["names"]]
            for name, kind in features.items()
            if isinstance(kind, dict) and kind.get("_type") == "ClassLabel" and isinstance(kind.get("names"), list)
        }
    except (KeyError, TypeError, ValueError, AttributeError):
        return {}


def column_texts(column: pa.Array | pa.ChunkedArray, names: Sequence[str] | None = None) -> list[str | None]:
    """The n values as texts; None for a null.

    A value that is not UTF-8 comes back with lone surrogates in place of the bad bytes. With `names`, integers that
    are an index into them become the name.
    """
    kind = column.type
    if pa.types.is_dictionary(kind):
        return column_texts(column.cast(kind.value_type), names)
    if names is not None and pa.types.is_integer(kind):
        return [
            None if value is None else names[value] if 0 <= value < len(names) else str(value)
            for value in column.to_pylist()
        ]
    if (
        pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_decimal(kind)
    ):
        return list(column.cast(pa.large_string()).to_pylist())
    if (
        pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
    ):
        values = column.cast(pa.large_binary()).to_pylist()
        return [None if value is None else value.decode("utf-8", "surrogateescape") for value in values]
    return [None if value is None else _as_json(value) for value in column.to_pylist()]


def _as_json(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def parquet_rows(
    path: Path, columns: Sequence[str], report: Reporter = SILENT
) -> Iterator[dict[str, str | None] | str]:
    """The rows of a Parquet file, `columns` only: a dict, or why there is none (over 1 MB, damaged text).

    Raises:
        DataError: The file is missing or damaged.
    """
    with _open(path) as file:
        names = class_names(file.schema_arrow)
        done, total = 0, file.metadata.num_rows
        try:
            for batch in file.iter_batches(batch_size=_ROWS_AT_ONCE, columns=list(columns)):
                texts = [column_texts(batch.column(name), names.get(name)) for name in columns]
                for values in zip(*texts, strict=True):
                    size = sum(len(value) for value in values if value is not None)
                    yield TOO_LONG if size > ROW_LIMIT else dict(zip(columns, values, strict=True))
                done += batch.num_rows
                report.progress(done, total)
        except (pa.ArrowException, OSError) as error:
            raise DataError(f"{path} is damaged after row {done}", fix="fetch it again") from error
