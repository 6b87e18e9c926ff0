"""One file, row by row: formats, traps and damage."""

import codecs
import csv
import io
import json
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from potstill.data.lines import ROW_LIMIT
from potstill.data.rows import BadRow, Row, iter_rows
from potstill.errors import DataError


@pytest.fixture
def write(tmp_path):
    def make(name, content):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return make


def read(path, **options):
    """Good rows as number → values, bad rows as number → reason."""
    rows = list(iter_rows(path, **options))
    assert [row.row for row in rows] == list(range(1, len(rows) + 1))
    assert all(row.file == str(path) for row in rows if isinstance(row, BadRow))
    good = {row.row: row.values for row in rows if isinstance(row, Row)}
    return good, {row.row: row.reason for row in rows if isinstance(row, BadRow)}


CELL = st.text(alphabet=st.characters(exclude_categories=["Cs"], exclude_characters="\0\r"), max_size=8)


@given(st.lists(st.tuples(CELL, CELL), min_size=1, max_size=6), st.sampled_from(["\n", "\r\n"]))
def test_csv_equals_the_csv_module(tmp_path_factory, cells, end):
    stream = io.StringIO(newline="")
    csv.writer(stream, lineterminator=end).writerows([("a", "b"), *cells])
    path = tmp_path_factory.mktemp("csv") / "x.csv"
    path.write_bytes(stream.getvalue().encode())
    good, bad = read(path)
    assert [tuple(values.values()) for values in good.values()] == cells
    assert not bad


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize(
    ("mark", "encoding"), [(b"", "utf-8"), (codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_BE, "utf-16-be")]
)
@pytest.mark.parametrize("name", ["x.tsv", "x.csv", "x.tab", "x.jsonl", "x.json", "x.txt"])
def test_ends_and_marks_of_every_format(write, name, mark, encoding, end):
    lines = {
        "x.tsv": ["text\tlabel", "NA\t1", 'say "null\t0'],
        "x.csv": ["text,label", '"NA",1', '"say ""null",0'],
        "x.tab": ["text\tlabel", "string\td", "meta\tclass", "", "NA\t1", '"say ""null"\t0'],
        "x.jsonl": ['{"text": "NA", "label": 1}', '{"label": 0, "text": "say \\"null"}'],
        "x.json": ['[{"text": "NA", "label": 1},', '{"label": 0, "text": "say \\"null"}]'],
        "x.txt": ["NA", 'say "null'],
    }[name]
    path = write(name, mark + end.join([*lines, ""]).encode(encoding))
    columns = ["text"] if name == "x.txt" else ["text", "label"]
    good, bad = read(path, columns=columns)
    expected = [{"text": "NA", "label": "1"}, {"text": 'say "null', "label": "0"}]
    assert list(good.values()) == [{name: row[name] for name in columns} for row in expected]
    assert not bad


def test_texts_that_look_like_missing_values_are_texts(write):
    words = ["NA", "N/A", "null", "None", "nan", "NaN", "-", "#N/A", "inf", "True"]
    good, bad = read(
        write("x.csv", "text,label\n" + "".join(f"{word},{word}\n" for word in words)), columns=["text", "label"]
    )
    assert [row["text"] for row in good.values()] == [row["label"] for row in good.values()] == words
    assert not bad


def test_quotes_mean_nothing_in_tsv(write):
    good, _ = read(write("x.tsv", '#1 String\tlabel\n" open\t1\n"a"\t0\nx "y\t1\n'))
    assert [row["#1 String"] for row in good.values()] == ['" open', '"a"', 'x "y']


def test_bad_rows_of_delimited_files(write):
    content = b'text,label\ngood,1\nonly\na,b,c\n\ncaf\xe9,1\nn\0l,1\n"x"y,1\n , 1\n\xe2\x80\x8b,1\nok,\nlast,0\n\n\n'
    good, bad = read(write("x.csv", content), columns=["text", "label"])
    assert good == {1: {"text": "good", "label": "1"}, 11: {"text": "last", "label": "0"}}
    assert bad == {
        2: "1 fields, not 2",
        3: "3 fields, not 2",
        4: "empty row",
        5: "not UTF-8 at byte 4",
        6: "NUL",
        7: "text after a closing quote",
        8: "column 'text' is empty",
        9: "column 'text' is empty",
        10: "column 'label' is empty",
    }


def test_no_column_need_be_full_where_none_is_asked_for(write):
    good, bad = read(write("x.tsv", "a\tb\n\t\n\tx\n"))
    assert good == {2: {"a": "", "b": "x"}}
    assert bad == {1: "empty row"}


def test_header_less_files(write):
    path = write("x.tsv", "hello\t3\nbye\t4\textra\nshort\n")
    good, bad = read(path, header=False)
    assert good == {1: {"1": "hello", "2": "3"}, 2: {"1": "bye", "2": "4", "3": "extra"}, 3: {"1": "short"}}
    good, bad = read(path, header=False, columns=["1", "2"])
    assert (good.keys(), bad) == ({1, 2}, {3: "no value in column '2'"})
    with pytest.raises(DataError, match="no column '7'; expected one of '1', '2', '3'"):
        read(path, header=False, columns=["7"])


def test_json_values_become_their_text(write):
    line = (
        '{"i": 7, "big": 123456789012345678901234567890, "f": 1.0, "e": 1e400, "t": true, "n": null, "l": [1, "é"]}\n'
    )
    good, bad = read(write("x.jsonl", line))
    assert good[1] == {
        "i": "7",
        "big": "123456789012345678901234567890",
        "f": "1.0",
        "e": "1e400",
        "t": "true",
        "n": None,
        "l": '["1", "é"]',
    }
    assert not bad


def test_bad_rows_of_json(write):
    lines = [
        '{"text": "good"}',
        '{"text": "lone \\ud800"}',
        '{"text": "pair \\ud83d\\ude00"}',
        '{"text": "nul \\u0000"}',
        '{"text": null}',
        '{"other": "x"}',
        '{"text": ""}',
        "[1]",
        "{",
        "",
        "[" * 100_000,
        '{"text": "last"}',
        "",
    ]
    good, bad = read(write("x.jsonl", "\n".join(lines)), columns=["text"])
    assert {number: row["text"] for number, row in good.items()} == {1: "good", 3: "pair 😀", 12: "last"}
    assert bad == {
        2: "column 'text' is not valid Unicode",
        4: "NUL in column 'text'",
        5: "no value in column 'text'",
        6: "no value in column 'text'",
        7: "column 'text' is empty",
        8: "a JSON value that is no object",
        9: "not JSON",
        10: "empty row",
        11: "not JSON",
    }
    items = [line for line in lines if line not in ("", "{")]
    good, bad = read(write("x.json", f"[{', '.join([*items[:8], '{1}', *items[9:]])}]"), columns=["text"])
    assert list(good) == [1, 3, 10]
    assert bad[9] == "not JSON"
    with pytest.raises(DataError, match="brackets do not match in item 2"):
        read(write("y.json", '[{"text": "a"}, {"text": 1}}, {"text": "b"}]'))


def test_json_lines_under_the_name_json(write):
    good, _ = read(write("x.json", '{"text": "a"}\n{"text": "b"}\n'))
    assert [row["text"] for row in good.values()] == ["a", "b"]
    with pytest.raises(DataError, match="no JSON array"):
        read(write("y.json", '{\n"train": [["a", "b"]]\n}\n'))


def test_type_drift_and_a_column_that_comes_late(write):
    lines = [json.dumps({"text": f"t{i}", "label": i % 2}) for i in range(100_000)]
    path = write("x.jsonl", "\n".join([*lines, '{"text": 5, "label": "yes", "late": 1.50}']))
    assert list(iter_rows(path, columns=["text", "label"]))[-1] == Row(100_001, {"text": "5", "label": "yes"})


def test_blank_lines_of_plain_text_are_told_so_that_answers_line_up(write):
    good, bad = read(write("x.txt", "\none\n\n  \ntwo\n\n"))
    assert {number: row["text"] for number, row in good.items()} == {2: "one", 5: "two"}
    assert bad == dict.fromkeys([1, 3, 4, 6], "empty row")


@pytest.mark.parametrize(
    ("name", "content", "columns", "message"),
    [
        (
            "x.csv",
            "sentence,label\na,1\n",
            ["sentense"],
            "has no column 'sentense'; expected one of 'sentence', 'label'; fix: did you mean 'sentence'",
        ),
        ("x.csv", "TEXT,label\na,1\n", ["text"], "did you mean 'TEXT'"),
        ("x.csv", "text;label\na;1\n", ["text"], "separate its fields by commas"),
        ("x.csv", "text\tlabel\na\t1\n", ["text"], 'say format "tsv"'),
        ("x.tsv", "text,label\na,1\n", ["text"], 'say format "csv"'),
        ("x.txt", "text\tlabel\na\t1\n", ["label"], 'say format "tsv"'),
        ("x.txt", "hello\n", ["sentence"], "no column 'sentence'; expected one of 'text'"),
        ("x.jsonl", '{"a": 1}\n' * 3, ["text"], "no column 'text'; expected one of 'a'"),
        ("x.jsonl", '{"a": 1}\n' * 500 + '{"text": 1}\n', ["text"], "no column 'text'"),
        ("x.csv", "text,label\n", None, "has no rows"),
        ("x.csv", "text,label\n", ["other"], "no column 'other'"),
        ("x.csv", "", None, "is empty"),
        ("x.csv", "\n\n", None, "is empty"),
        ("x.csv", codecs.BOM_UTF8, None, "is empty"),
        ("x.json", "[]", None, "has no rows"),
        ("x.csv", "a,a\n1,2\n", None, "more than one column 'a'"),
        ("x.csv", b"caf\xe9,b\n1,2\n", None, "its header cannot be used .not UTF-8"),
        ("x.tab", "a\tb\n1\t2\n3\t4\n5\t6\n", None, "no Orange header"),
        ("x.tab", "a\tb\nd\tstring\n", None, "no Orange header"),
        ("x.doc", "a\n", None, "whose format its suffix does not tell; expected csv"),
        ("x.csv.gz", b"\x1f\x8b", None, "is compressed; .*fix: unpack it first"),
    ],
)
def test_files_that_are_refused(write, name, content, columns, message):
    with pytest.raises(DataError, match=message):
        read(write(name, content), columns=columns)


def test_unknown_format_and_absent_file(tmp_path):
    with pytest.raises(DataError, match=r"format 'xls'; expected csv \| tsv"):
        list(iter_rows(tmp_path / "x.csv", format="xls"))
    with pytest.raises(DataError, match="does not exist"):
        list(iter_rows(tmp_path / "x.csv"))


def test_unnamed_columns_take_their_place_as_name(write):
    good, _ = read(write("x.csv", ",text,\n0,a,z\n"))
    assert good == {1: {"1": "0", "text": "a", "3": "z"}}


@pytest.mark.parametrize("name", ["x.csv", "x.tsv", "x.jsonl", "x.json", "x.txt"])
def test_a_field_of_50_mb_is_set_aside_in_little_memory(write, tmp_path, name):
    before, after, good = {
        "x.csv": ('text\n"', '"\nshort\n', 2),
        "x.tsv": ("text\n", "\nshort\n", 2),
        "x.jsonl": ('{"text": "', '"}\n{"text": "short"}\n', 2),
        "x.json": ('[{"text": "', '"}, {"text": "short"}]', 2),
        "x.txt": ("", "\nshort\n", 2),
    }[name]
    path = tmp_path / name
    filler = b"long, \\\\ {] " * 90_000 if name != "x.csv" else b'long, ""\n' * 120_000
    with path.open("wb") as file:
        file.write(before.encode())
        for _ in range(48):
            file.write(filler)
        file.write(after.encode())
    assert path.stat().st_size > 50_000_000
    tracemalloc.start()
    try:
        rows, bad = read(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert rows == {good: {"text": "short"}}
    assert bad == {1: "over 1 MB"}
    assert peak < 8_000_000


def test_a_row_of_just_under_1_mb_is_read(write):
    text = "é" * ((ROW_LIMIT - 2) // 2)
    good, bad = read(write("x.tsv", f"text\tl\n{text}\t1\n{text}é\t1\n"), columns=["text"])
    assert (list(good), bad) == ([1], {2: "over 1 MB"})
