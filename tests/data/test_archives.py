"""Hostile and damaged archives, made byte by byte; nothing of them may come out."""

import io
import stat
import zipfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from potstill.data.archives import DEFAULT_LIMITS, Limits, choose, copy_member, extract, open_archive
from potstill.errors import SourceError


def zipped(files: dict[str, bytes], compression: int = zipfile.ZIP_DEFLATED) -> io.BytesIO:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", compression) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return out


def take_all(file, into, limits=DEFAULT_LIMITS):
    with open_archive(file, "it", limits) as archive:
        extract(archive, choose(archive, "", lambda _: True), into, "it", limits)


@given(
    st.dictionaries(
        st.lists(st.sampled_from("abcé "), min_size=1, max_size=3).map(lambda parts: "/".join(f"{p}x" for p in parts)),
        st.binary(max_size=3000),
        max_size=5,
    ).filter(lambda files: not any(a != b and b.startswith(f"{a}/") for a in files for b in files))
)
def test_takes_out_what_was_put_in(tmp_path_factory, files):
    into = tmp_path_factory.mktemp("out")
    take_all(zipped(files), into)
    found = {p.relative_to(into).as_posix(): p.read_bytes() for p in into.rglob("*") if p.is_file()}
    assert found == files


def test_chooses_a_member_a_folder_or_all():
    with open_archive(zipped({"a/b/c.txt": b"1", "a/d.py": b"2", "ab.txt": b"3"}), "it") as archive:
        assert set(choose(archive, "a/b/c.txt", lambda _: False)) == {"c.txt"}
        assert set(choose(archive, "a", lambda name: name.endswith(".txt"))) == {"b/c.txt"}
        assert set(choose(archive, "a/", lambda _: True)) == {"b/c.txt", "d.py"}
        assert set(choose(archive, "", lambda _: True)) == {"a/b/c.txt", "a/d.py", "ab.txt"}
        assert choose(archive, "b", lambda _: True) == {}


@pytest.mark.parametrize(
    "name",
    ["../out.txt", "a/../../out.txt", "/etc/out.txt", "C:/out.txt", "c:out.txt", "a\\..\\out.txt", "..", "a/.."],
)
def test_refuses_names_that_lead_outside(tmp_path, name):
    into = tmp_path / "deep" / "in"
    into.mkdir(parents=True)
    with pytest.raises(SourceError, match=r"leaves the folder|absolute|backslash"):
        take_all(zipped({"good.txt": b"x", name: b"evil"}), into)
    assert [p for p in tmp_path.rglob("*") if p.is_file()] == []


def test_refuses_a_nul_in_a_name(tmp_path):
    content = zipped({"good.txtXevil": b"x"}).getvalue().replace(b"good.txtXevil", b"good.txt\0evil")
    with pytest.raises(SourceError, match="NUL"):
        take_all(io.BytesIO(content), tmp_path)


@pytest.mark.parametrize("kind", [stat.S_IFLNK, stat.S_IFIFO, stat.S_IFCHR])
def test_refuses_links_and_devices(tmp_path, kind):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        link = zipfile.ZipInfo("link")
        link.create_system, link.external_attr = 3, (kind | 0o777) << 16
        archive.writestr(link, "/etc/passwd")
    with pytest.raises(SourceError, match="a link or a device"):
        take_all(out, tmp_path)


def test_refuses_a_name_that_stands_twice(tmp_path):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("a", "one")
        with pytest.warns(UserWarning, match="Duplicate name"):
            archive.writestr("a", "two")
    with pytest.raises(SourceError, match="stands twice"):
        take_all(out, tmp_path)


def test_refuses_an_encrypted_member(tmp_path):
    content = bytearray(zipped({"a.txt": b"secret"}, zipfile.ZIP_STORED).getvalue())
    content[content.index(b"PK\x03\x04") + 6] |= 1
    content[content.index(b"PK\x01\x02") + 8] |= 1
    with pytest.raises(SourceError, match="encrypted"):
        take_all(io.BytesIO(bytes(content)), tmp_path)


def test_refuses_a_bomb_by_ratio_and_by_total(tmp_path):
    bomb = zipped({"a.txt": bytes(8 << 20)})
    with pytest.raises(SourceError, match="at most 200 times"):
        take_all(bomb, tmp_path)
    with pytest.raises(SourceError, match="unpacks to 8,388,608 bytes; expected at most 8,388,607"):
        take_all(bomb, tmp_path, Limits(total=(8 << 20) - 1, ratio=2000))
    many = zipped({f"{k}.txt": b"x" * 1000 for k in range(5)})
    with pytest.raises(SourceError, match="unpacks to 5,000 bytes"):
        take_all(many, tmp_path, Limits(total=4999))
    with open_archive(bomb, "it") as archive, pytest.raises(SourceError, match="at most 200 times"):
        copy_member(archive, archive.infolist()[0], io.BytesIO(), "it")
    assert list(tmp_path.iterdir()) == []
    take_all(bomb, tmp_path, Limits(ratio=2000))
    assert (tmp_path / "a.txt").stat().st_size == 8 << 20


def test_a_member_that_lies_about_its_size_yields_no_more_than_it_declares(tmp_path):
    honest = zipped({"a.txt": bytes(1000)}).getvalue()
    size = (1000).to_bytes(4, "little")
    content = honest.replace(size, (10).to_bytes(4, "little"))
    assert content != honest
    with pytest.raises(SourceError, match="no readable zip"):
        take_all(io.BytesIO(content), tmp_path)
    assert sum(p.stat().st_size for p in tmp_path.iterdir()) <= 10


def test_refuses_too_many_members(tmp_path):
    file = zipped({str(k): b"" for k in range(11)})
    with pytest.raises(SourceError, match="11 members; expected at most 10"):
        take_all(file, tmp_path, Limits(members=10))


def test_a_damaged_archive_is_one_clear_error(tmp_path):
    good = zipped({"a.txt": bytes(range(256)) * 40}).getvalue()
    with pytest.raises(SourceError, match="no readable zip"):
        take_all(io.BytesIO(b"not a zip at all"), tmp_path)
    for position in range(40, len(good) - 150, 37):
        flipped = bytearray(good)
        flipped[position] ^= 0xFF
        into = tmp_path / str(position)
        into.mkdir()
        with pytest.raises(SourceError):
            take_all(io.BytesIO(bytes(flipped)), into)


def test_never_writes_over_a_file(tmp_path):
    (tmp_path / "a.txt").write_text("mine")
    with pytest.raises(FileExistsError):
        take_all(zipped({"a.txt": b"theirs"}), tmp_path)
    assert (tmp_path / "a.txt").read_text() == "mine"
