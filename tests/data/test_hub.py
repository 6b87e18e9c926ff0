"""The hub's files against a small hub on loopback: what is asked, kept, checked and said."""

import hashlib

import pytest
from tests.hub import Hub

from potstill.data import hub as module
from potstill.data.hub import HubName, fetch_repository, parse_hub_name
from potstill.errors import ModelError, SourceError, StorageError

pytestmark = pytest.mark.hub

FILES = {"a.csv": b"x\n1\n", "data/b.parquet": b"PAR1" * 500, "script.py": b"evil"}


class Warnings(list):
    def stage(self, *_): ...

    def progress(self, done, total, **_):
        assert 0 < done <= total

    def note(self, _): ...

    def warn(self, message):
        self.append(message)


def no_code(names):
    return [name for name in names if not name.endswith(".py")]


@pytest.fixture
def hub(monkeypatch):
    with Hub() as running:
        monkeypatch.setenv("HF_ENDPOINT", running.url)
        monkeypatch.delenv("HF_TOKEN", raising=False)
        yield running


@pytest.fixture
def get(tmp_path):
    def fetch(name, *, kind="dataset", select=no_code, offline=False, report=None):
        name = parse_hub_name(name)
        report = Warnings() if report is None else report
        return fetch_repository(name, kind, select, cache=tmp_path / "cache", offline=offline, report=report)

    return fetch


def sha(content):
    return hashlib.sha256(content).hexdigest()


def test_fetches_what_is_selected_and_nothing_else(hub, get):
    commit = hub.add("dataset", "acme/rows", FILES, licence="cc0-1.0")
    copy = get("acme/rows")
    assert copy.files == {name: sha(FILES[name]) for name in ("a.csv", "data/b.parquet")}
    assert (copy.folder / "data/b.parquet").read_bytes() == FILES["data/b.parquet"]
    assert (copy.commit, copy.licence) == (commit, "cc0-1.0")
    assert not any("script.py" in path for _, path in hub.requests)
    assert not list(copy.folder.rglob("*.py"))


def test_the_cache_answers_for_the_present_commit(hub, get):
    hub.add("dataset", "acme/rows", FILES)
    first = get("acme/rows")
    hub.requests.clear()
    assert get("acme/rows") == first
    assert hub.downloads == []
    hub.requests.clear()
    assert get("acme/rows", offline=True) == first
    assert get(f"acme/rows@{first.commit}", offline=False).folder == first.folder
    hub.requests.clear()
    assert get(f"acme/rows@{first.commit}").files == first.files
    assert hub.requests == []


def test_a_branch_that_moved_is_followed(hub, get):
    hub.add("dataset", "acme/rows", FILES)
    first = get("acme/rows")
    hub.add("dataset", "acme/rows", {**FILES, "a.csv": b"x\n2\n"})
    hub.add("dataset", "acme/rows", {"a.csv": b"old"}, revision="v1")
    second = get("acme/rows")
    assert second.commit != first.commit
    assert (second.folder / "a.csv").read_bytes() == b"x\n2\n"
    assert (first.folder / "a.csv").read_bytes() == b"x\n1\n"
    assert (get("acme/rows@v1").folder / "a.csv").read_bytes() == b"old"
    assert get("acme/rows", offline=True) == second


@pytest.mark.parametrize("name", ["a.csv", "data/b.parquet"])
@pytest.mark.parametrize("damage", ["altered", "gone"])
def test_a_damaged_copy_is_fetched_again_and_said_so(hub, get, name, damage):
    hub.add("dataset", "acme/rows", FILES)
    copy, report = get("acme/rows"), Warnings()
    path = copy.folder / name
    if damage == "altered":
        path.resolve().write_bytes(bytes(len(FILES[name])))
    else:
        path.resolve().unlink()
    with pytest.raises(StorageError, match="missing or damaged"):
        get("acme/rows", offline=True)
    again = get("acme/rows", report=report)
    assert (again.folder / name).read_bytes() == FILES[name]
    assert len(report) == 1
    assert "fetching it again" in report[0]


def test_content_that_is_not_what_the_hub_says_is_refused_and_not_kept(hub, get, monkeypatch):
    hub.add("dataset", "acme/rows", FILES)
    with monkeypatch.context() as patch:
        patch.setattr(module, "digest_file", lambda path: sha(path.read_bytes() + b"!"))
        with pytest.raises(SourceError, match=r"b\.parquet .* SHA-256 [0-9a-f]{64}; expected [0-9a-f]{64}, as the hub"):
            get("acme/rows")
    hub.requests.clear()
    assert get("acme/rows").files["data/b.parquet"] == sha(FILES["data/b.parquet"])
    assert sha(FILES["data/b.parquet"]) in hub.downloads


def test_a_renamed_repository_and_one_without_an_owner(hub, get):
    hub.add("model", "acme/base", {"config.json": b"{}"})
    hub.rename("model", "base", "acme/base")
    hub.add("model", "plain", {"config.json": b"[]"})
    assert (get("base", kind="model").folder / "config.json").read_bytes() == b"{}"
    assert (get("plain", kind="model").folder / "config.json").read_bytes() == b"[]"


def test_what_is_not_to_be_had_is_one_line(hub, get):
    hub.add("dataset", "acme/rows", FILES)
    hub.add("dataset", "acme/gated", FILES, gated=True)
    cases = {
        "acme/none": "the hub has no hub:acme/none, or it is private",
        "acme/rows@v9": "acme/rows has no revision 'v9'",
        "acme/gated": "hub:acme/gated is gated on the hub",
    }
    for name, message in cases.items():
        with pytest.raises(SourceError) as caught:
            get(name)
        assert str(caught.value).startswith(message)
        assert "\n" not in str(caught.value)
    with pytest.raises(SourceError, match=r"not in the cache .* offline"):
        get("acme/rows", offline=True)
    with pytest.raises(ModelError, match="mine"):
        get("acme/rows", select=refuse)
    assert hub.downloads == []


def refuse(_):
    raise ModelError("mine")


def test_a_hub_that_is_down_or_not_there(hub, get, monkeypatch):
    hub.add("dataset", "acme/rows", FILES)
    first = get("acme/rows")
    hub.down = True
    with pytest.raises(SourceError, match=r"cannot be had from the hub: .*503"):
        get("acme/rows")
    assert get("acme/rows", offline=True) == first
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:1")
    with pytest.raises(SourceError, match="cannot be had from the hub") as caught:
        get("acme/other")
    assert "\n" not in str(caught.value)
    with pytest.raises(SourceError, match="not in the cache"):
        get("acme/rows", offline=True)


def test_a_record_that_makes_no_sense_is_named(hub, get, tmp_path):
    hub.add("dataset", "acme/rows", FILES)
    get("acme/rows")
    (record,) = (tmp_path / "cache/hub/records").iterdir()
    for content in ("{", "{}", '{"folder": "x", "files": 3}'):
        record.write_text(content)
        with pytest.raises(StorageError, match=record.name):
            get("acme/rows", offline=True)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("bert-base-uncased", HubName("bert-base-uncased")),
        ("owner/na.me-2_x", HubName("owner/na.me-2_x")),
        ("owner/name@v1.0", HubName("owner/name", "v1.0")),
        ("name@refs%2Fpr%2F1", HubName("name", "refs/pr/1")),
        ("owner/name/data/a.csv", HubName("owner/name", "main", "data/a.csv")),
        ("owner/name@x/data/*.csv", HubName("owner/name", "x", "data/*.csv")),
        ("name@x/a.csv", HubName("name", "x", "a.csv")),
    ],
)
def test_reads_names(text, name):
    assert parse_hub_name(text) == name


@pytest.mark.parametrize(
    "text",
    [
        "",
        "/",
        "owner/",
        "-x",
        ".x",
        "a--b",
        "owner/../x",
        "a b",
        "owner/name@",
        "owner/name@/x",
        "ö/x",
        "a" * 97,
        "a:b",
    ],
)
def test_refuses_names(text):
    assert parse_hub_name(text) is None
