"""Arrow columns and Parquet files to texts."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from potstill.data.arrow import column_texts
from potstill.data.rows import BadRow, Row, iter_rows
from potstill.errors import DataError


def test_column_texts():
    assert column_texts(pa.array(["NA", None, "é"])) == ["NA", None, "é"]
    assert column_texts(pa.array(["a", "b", "a"]).dictionary_encode()) == ["a", "b", "a"]
    assert column_texts(pa.array([1.0, None, 1.0]).dictionary_encode()) == ["1", None, "1"]
    assert column_texts(pa.array([1, None, -3], pa.int8())) == ["1", None, "-3"]
    assert column_texts(pa.array([1.0, 0.1], pa.float32())) == ["1", "0.1"]
    assert column_texts(pa.array([True, False])) == ["true", "false"]
    assert column_texts(pa.array([b"x\xff"])) == ["x\udcff"]
    assert column_texts(pa.array([[1, 2], None])) == ["[1, 2]", None]
    assert column_texts(pa.array([0, 1, -1, 5]), ["no", "yes"]) == ["no", "yes", "-1", "5"]
    assert column_texts(pa.chunked_array([["a"], ["b"]])) == ["a", "b"]


def test_parquet_rows(tmp_path):
    path = tmp_path / "x.parquet"
    table = pa.table(
        {
            "text": ["good", "", None, "n\0l", "x" * 1_000_001, "last"],
            "label": pa.array([0, 1, 1, 1, 1, 0], pa.int64()),
            "unused": [[1]] * 6,
        }
    )
    pq.write_table(table, path)
    rows = list(iter_rows(path, columns=["text", "label"]))
    good = {row.row: row.values for row in rows if isinstance(row, Row)}
    bad = {row.row: row.reason for row in rows if isinstance(row, BadRow)}
    assert good == {1: {"text": "good", "label": "0"}, 6: {"text": "last", "label": "0"}}
    assert bad == {
        2: "column 'text' is empty",
        3: "no value in column 'text'",
        4: "NUL in column 'text'",
        5: "over 1 MB",
    }
    with pytest.raises(DataError, match="no column 'texts'; expected one of 'text', 'label', 'unused'"):
        list(iter_rows(path, columns=["texts"]))


def test_text_that_is_not_utf8(tmp_path):
    path = tmp_path / "x.parquet"
    raw = pa.StringArray.from_buffers(2, pa.py_buffer(b"\0\0\0\0\2\0\0\0\4\0\0\0"), pa.py_buffer(b"caf\xe9"))
    pq.write_table(pa.table({"text": raw}), path)
    assert [getattr(row, "reason", None) for row in iter_rows(path, columns=["text"])] == [
        None,
        "column 'text' is not valid Unicode",
    ]


def test_class_labels_of_the_datasets_library_come_by_name(tmp_path):
    path = tmp_path / "x.parquet"
    features = {
        "label": {"names": ["negative", "positive"], "_type": "ClassLabel"},
        "text": {"dtype": "string", "_type": "Value"},
    }
    table = pa.table({"text": ["a", "b"], "label": [1, 0]})
    pq.write_table(table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})}), path)
    assert [row.values["label"] for row in iter_rows(path)] == ["positive", "negative"]


def test_what_is_no_parquet(tmp_path):
    path = tmp_path / "x.parquet"
    path.write_bytes(b"text,label\n")
    with pytest.raises(DataError, match="cannot be read as Parquet"):
        list(iter_rows(path))
    with pytest.raises(DataError, match="does not exist"):
        list(iter_rows(tmp_path / "y.parquet"))
    pq.write_table(pa.table({"text": pa.array([], pa.string())}), path)
    with pytest.raises(DataError, match="has no rows"):
        list(iter_rows(path))


def test_a_damaged_page(tmp_path):
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"text": [f"text {i}" for i in range(5000)]}), path, compression="zstd")
    content = bytearray(path.read_bytes())
    content[200:400] = bytes(200)
    path.write_bytes(content)
    with pytest.raises(DataError, match="is damaged after row 0"):
        list(iter_rows(path))
