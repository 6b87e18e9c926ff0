"""Bytes to records: any cut into pieces gives the records that the whole gives."""

import codecs
import csv
import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from potstill.data.lines import TOO_LONG, array_items, byte_pieces, csv_records, line_records, record_text
from potstill.errors import DataError

ENDS = st.sampled_from(["\n", "\r\n", "\r"])
CELLS = st.text(alphabet=st.sampled_from('ab,"\t \n\ré'), max_size=6)


def pieces(content, cuts):
    places = sorted({min(cut, len(content)) for cut in cuts})
    return [content[a:b] for a, b in zip([0, *places], [*places, len(content)], strict=True)]


@given(st.lists(st.text(alphabet="abé \t", max_size=8), min_size=2), ENDS, st.booleans(), st.lists(st.integers(0, 80)))
def test_lines_come_back_whatever_their_ends_and_pieces(lines, end, ended, cuts):
    content = (end.join(lines) + (end if ended else "")).encode()
    expected = lines if ended or lines[-1] else lines[:-1]
    assert [record.decode() for record in line_records(pieces(content, cuts))] == expected


def test_a_stray_carriage_return_is_text_where_lines_end_otherwise():
    assert list(line_records([b"a\rb\nc\r\nd\re"])) == [b"a\rb", b"c", b"d\re"]
    assert list(line_records([b"a\x0bb\x0c\x85\xe2\x80\xa8c\n"])) == [b"a\x0bb\x0c\x85\xe2\x80\xa8c"]


@given(
    st.lists(st.lists(CELLS, min_size=2, max_size=4), min_size=2, max_size=5),
    st.sampled_from(["\n", "\r\n"]),
    st.lists(st.integers(0, 120)),
)
def test_csv_records_are_those_of_the_csv_module(rows, end, cuts):
    stream = io.StringIO(newline="")
    csv.writer(stream, lineterminator=end, quoting=csv.QUOTE_ALL).writerows(rows)
    content = stream.getvalue().encode()
    if content.count(b"\r") - content.count(b"\r\n") > content.count(b"\n"):
        return  # more carriage returns inside fields than line ends: no reader can tell
    found = [record.decode() for record in csv_records(pieces(content, cuts))]
    assert [next(csv.reader(io.StringIO(record, newline=""))) for record in found] == rows


def test_a_quote_inside_an_unquoted_field_is_text():
    assert list(csv_records([b'5" disk,a\nb,"c\nd"\n'])) == [b'5" disk,a', b'b,"c\nd"']


def test_an_open_quote_at_the_end():
    assert list(csv_records([b'a,b\n1,"x\n'])) == [b"a,b", "a quote is opened and never closed"]
    with pytest.raises(DataError, match=r"data\.csv: a quote opened in record 2 takes in the last 3 lines"):
        list(csv_records([b'a,b\n1,"x\n2,y\n3,z\n'], where="data.csv"))


@given(
    st.lists(
        st.dictionaries(
            st.text(max_size=3), st.recursive(st.none() | st.text(max_size=5) | st.integers(), st.lists, max_leaves=4)
        )
    ),
    st.integers(0, 3),
    st.booleans(),
    st.lists(st.integers(0, 200)),
)
def test_array_items_are_those_of_json(values, indent, ascii_only, cuts):
    content = f" {json.dumps(values, indent=indent or None, ensure_ascii=ascii_only)}\n ".encode()
    assert [json.loads(item) for item in array_items(pieces(content, cuts))] == values


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"a": 1}', "holds no JSON array"),
        (b"hello", "holds no JSON array"),
        (b'x [{"a": 1}]', "holds no JSON array"),
        (b'[{"a": 1}, {"a"', "never ends"),
        (b'[{"a": "]', "never ends"),
        (b"", "never ends"),
        (b"[] []", "goes on after"),
    ],
)
def test_what_is_no_array(content, message):
    with pytest.raises(DataError, match=f"f.json.*{message}"):
        list(array_items([content], where="f.json"))


LONG = b"x" * 50


@given(st.lists(st.integers(0, 150)))
def test_a_long_row_is_told_and_the_next_is_read(cuts):
    def of(content, reader):
        return list(reader(pieces(content, cuts), limit=20))

    assert of(b"a\n" + LONG + b"\nb\n" + LONG, line_records) == [b"a", TOO_LONG, b"b", TOO_LONG]
    assert of(b'a\n"' + LONG + b'\n,""' + LONG + b'"\nb\n', csv_records) == [b"a", TOO_LONG, b"b"]
    assert of(b'[{"a":1},{"b":"' + LONG + b'\\"]"},{"c":2}]', array_items) == [b'{"a":1}', TOO_LONG, b'{"c":2}']


def test_the_limit_is_exact():
    assert list(line_records([b"x" * 20 + b"\r\n" + b"y" * 21 + b"\r\nz"], limit=20)) == [b"x" * 20, TOO_LONG, b"z"]
    assert list(csv_records([b"x" * 20 + b"\r\n" + b"y" * 21 + b"\r\nz"], limit=20)) == [b"x" * 20, TOO_LONG, b"z"]


@pytest.mark.parametrize(
    ("mark", "encoding"),
    [
        (b"", "utf-8"),
        (codecs.BOM_UTF8, "utf-8"),
        (codecs.BOM_UTF16_LE, "utf-16-le"),
        (codecs.BOM_UTF16_BE, "utf-16-be"),
        (codecs.BOM_UTF32_LE, "utf-32-le"),
    ],
)
def test_byte_order_marks(tmp_path, mark, encoding):
    text = "é\n" * 200_000 + "😀"
    path = tmp_path / "file"
    path.write_bytes(mark + text.encode(encoding))
    assert b"".join(byte_pieces(path)).decode() == text


def test_damage_in_utf16_is_found_in_its_own_row(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(
        codecs.BOM_UTF16_LE + "good\nbad".encode("utf-16-le") + b"\x00\xd8" + "x\ngood".encode("utf-16-le")
    )
    found = [record_text(record) for record in line_records(byte_pieces(path))]
    assert found == [("good", True), ("not UTF-8 at byte 4", False), ("good", True)]


def test_record_text():
    assert record_text(b"caf\xe9") == ("not UTF-8 at byte 4", False)
    assert record_text(b"a\0b") == ("NUL", False)
    assert record_text(TOO_LONG) == (TOO_LONG, False)


def test_files_that_cannot_be_read(tmp_path):
    (tmp_path / "empty").touch()
    for name, message in [("absent", "does not exist"), ("empty", "is empty"), (".", "cannot be read")]:
        with pytest.raises(DataError, match=message):
            list(byte_pieces(tmp_path / name))


def test_progress_is_told_in_bytes(tmp_path):
    seen = []

    class Reporter:
        def progress(self, done, total, **values):
            seen.append((done, total))

    path = tmp_path / "file"
    path.write_bytes(b"x" * 600_000)
    list(byte_pieces(path, Reporter()))
    assert seen[-1] == (600_000, 600_000)
    assert len(seen) == 3
