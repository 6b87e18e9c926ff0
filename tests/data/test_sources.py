"""Sources as users write them: paths, hub names, packages and short names."""

import hashlib
import json
import struct

import pytest
from tests.hub import Hub
from tests.wheels import make_wheel, use_index

from potstill.data import catalogue, sources
from potstill.data.catalogue import Entry
from potstill.data.sources import cache_folder, resolve_data, resolve_model
from potstill.errors import ModelError, SourceError
from potstill.storage import digest

WEIGHTS = struct.pack("<Q", 2) + b"{}"
MODEL = {
    "config.json": b'{"model_type": "bert"}',
    "model.safetensors": WEIGHTS,
    "tokenizer.json": b"{}",
    "vocab.txt": b"a",
}
CARD = b"---\nlicense: mit\n---\n"


def sha(content):
    return hashlib.sha256(content).hexdigest()


def fill(folder, files):
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)


@pytest.fixture
def hub(monkeypatch, tmp_path):
    monkeypatch.setenv("POTSTILL_CACHE", str(tmp_path / "cache"))
    with Hub() as running:
        monkeypatch.setenv("HF_ENDPOINT", running.url)
        yield running


@pytest.fixture
def index(monkeypatch, tmp_path):
    monkeypatch.setenv("POTSTILL_CACHE", str(tmp_path / "cache"))
    use_index(monkeypatch, tmp_path / "index")
    return tmp_path / "index"


@pytest.fixture
def no_network(monkeypatch):
    def fail(*args, **kwargs):
        raise AssertionError("the network was asked")

    monkeypatch.setattr(sources, "fetch", fail)
    monkeypatch.setattr(sources, "fetch_repository", fail)


# --- paths


def test_a_file(tmp_path, no_network):
    fill(tmp_path, {"a.csv": b"x\n1\n"})
    source = resolve_data(str(tmp_path / "a.csv"))
    assert source.paths == (tmp_path / "a.csv",)
    assert (source.kind, source.format, source.licence, source.columns) == ("path", None, None, {})
    assert source.name == source.origin == str(tmp_path / "a.csv")
    assert source.sha256 == sha(b"x\n1\n")


def test_several_files_have_a_digest_that_goes_with_them(tmp_path, no_network):
    for place in ("here", "there"):
        fill(tmp_path / place, {"a.csv": b"1", "b.csv": b"2"})
    here, there = (resolve_data(str(tmp_path / place)) for place in ("here", "there"))
    assert here.sha256 == there.sha256 == digest({"a.csv": sha(b"1"), "b.csv": sha(b"2")})
    assert here.paths == (tmp_path / "here/a.csv", tmp_path / "here/b.csv")
    assert resolve_data(str(tmp_path / "here/*.csv")).sha256 == here.sha256
    (tmp_path / "there/b.csv").rename(tmp_path / "there/c.csv")
    assert resolve_data(str(tmp_path / "there")).sha256 != here.sha256


@pytest.mark.parametrize(
    "source", ["./x", "../x", "/x/y", "~/x", "x.csv", "a/b.tsv", "a/b.PARQUET", "x/", "", "*.log", "a/b/c"]
)
def test_what_looks_like_a_path_is_never_looked_up(tmp_path, monkeypatch, no_network, source):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SourceError, match=r"no such file|without data files"):
        resolve_data(source)
    with pytest.raises(SourceError if source else ModelError, match=r"no such folder|no config\.json"):
        resolve_model(source)


@pytest.mark.parametrize("source", ["http://x.org/a.csv", "s3:bucket", "HUB:x", "hub:", "hub:a b", "hub:../x"])
def test_refuses_other_schemes(no_network, source):
    with pytest.raises(SourceError):
        resolve_data(source)
    with pytest.raises(SourceError):
        resolve_model(source)


def test_a_short_name_without_its_prefix_is_pointed_out(no_network):
    with pytest.raises(SourceError, match="did you mean pypi:minilm"):
        resolve_model("minilm")
    with pytest.raises(SourceError, match="did you mean pypi:reuters8/test"):
        resolve_data("reuters8/test")


def test_a_model_folder(tmp_path, no_network):
    fill(tmp_path / "m", {**MODEL, "README.md": CARD, "pytorch_model.bin": b"x", "onnx/model.onnx": b"y"})
    source = resolve_model(str(tmp_path / "m"))
    assert source.paths == (tmp_path / "m",)
    assert (source.kind, source.licence) == ("path", "mit")
    assert source.sha256 == digest({name: sha(content) for name, content in MODEL.items()})
    fill(tmp_path / "m", {"onnx/more.onnx": b"z"})
    assert resolve_model(str(tmp_path / "m")).sha256 == source.sha256
    fill(tmp_path / "m", {"vocab.txt": b"b"})
    assert resolve_model(str(tmp_path / "m")).sha256 != source.sha256
    with pytest.raises(SourceError, match=r"vocab\.txt is a file; expected a folder"):
        resolve_model(str(tmp_path / "m/vocab.txt"))
    (tmp_path / "m/model.safetensors").unlink()
    with pytest.raises(ModelError, match=r"only pytorch_model\.bin"):
        resolve_model(str(tmp_path / "m"))


# --- hub


@pytest.mark.hub
def test_a_bare_name_that_is_no_path_is_on_the_hub(hub, tmp_path, monkeypatch):
    commit = hub.add(
        "model", "acme/base", {**MODEL, "README.md": CARD, "pytorch_model.bin": b"x", "code.py": b"y"}, licence="mit"
    )
    hub.rename("model", "bert-base", "acme/base")
    for name in ("acme/base", "hub:acme/base", f"acme/base@{commit}", "bert-base"):
        source = resolve_model(name)
        assert (source.name, source.kind, source.licence) == (name, "hub", "mit")
        assert source.sha256 == digest({name: sha(content) for name, content in MODEL.items()})
        assert source.origin.endswith(f"@{commit}")
        assert sorted(p.name for p in source.paths[0].iterdir()) == sorted([*MODEL, "README.md"])
    monkeypatch.chdir(tmp_path)
    fill(tmp_path / "acme/base", MODEL)
    assert resolve_model("acme/base").kind == "path"
    assert resolve_model("hub:acme/base").kind == "hub"


@pytest.mark.hub
def test_a_hub_model_that_asks_for_code_or_has_pickle_only(hub):
    hub.add("model", "acme/code", {**MODEL, "config.json": json.dumps({"auto_map": {"AutoModel": "x.Y"}}).encode()})
    hub.add("model", "acme/pickle", {"config.json": b"{}", "pytorch_model.bin": b"x"})
    with pytest.raises(ModelError, match="auto_map"):
        resolve_model("acme/code")
    hub.requests.clear()
    with pytest.raises(ModelError, match=r"hub:acme/pickle has no model\.safetensors, only pytorch_model\.bin"):
        resolve_model("acme/pickle")
    assert hub.downloads == []
    with pytest.raises(SourceError, match="leave the path out"):
        resolve_model("hub:acme/code/config.json")
    with pytest.raises(SourceError, match="or it is private"):
        resolve_model("acme/nothing")


@pytest.mark.hub
def test_hub_data(hub):
    files = {
        "data/train-00000-of-00001.parquet": b"PAR1",
        "data/test-00000-of-00001.parquet": b"PAR2",
        "README.md": CARD,
    }
    commit = hub.add("dataset", "acme/rows", {**files, "rows.py": b"evil"}, licence="cc0-1.0")
    source = resolve_data("hub:acme/rows/data/train-*")
    assert [path.name for path in source.paths] == ["train-00000-of-00001.parquet"]
    assert source.sha256 == sha(b"PAR1")
    assert (source.kind, source.origin, source.licence) == ("hub", f"acme/rows@{commit}", "cc0-1.0")
    hub.requests.clear()
    with pytest.raises(
        SourceError, match=r"several splits.*fix: name it, for example hub:acme/rows/data/train-\*\.parquet"
    ):
        resolve_data("acme/rows")
    assert hub.downloads == []
    hub.add("dataset", "acme/one", {"a.csv": b"1", "b/c.csv": b"2", "rows.py": b"evil"})
    assert [path.name for path in resolve_data("acme/one").paths] == ["a.csv", "c.csv"]


@pytest.mark.hub
@pytest.mark.parametrize(("value", "offline"), [("1", True), ("true", True), ("0", False), ("", False)])
def test_offline_by_the_environment(hub, monkeypatch, value, offline):
    monkeypatch.setenv("POTSTILL_OFFLINE", value)
    hub.add("model", "acme/base", MODEL)
    if not offline:
        assert resolve_model("acme/base").kind == "hub"
        return
    with pytest.raises(SourceError, match="this run is offline"):
        resolve_model("acme/base")
    with pytest.raises(SourceError, match="this run is offline"):
        resolve_data("pypi:movie-snippets")
    assert hub.requests == []
    resolve_model("acme/base", offline=False)
    assert resolve_model("acme/base").kind == "hub"


# --- packages


def test_data_out_of_a_package(index):
    files = {
        "d/a.csv": b"1",
        "d/sub/b.csv": b"2",
        "d/x.py": b"evil",
        "s/train.tsv": b"3",
        "s/test.tsv": b"4",
        "e/x.py": b"y",
    }
    make_wheel(index, "rows", "1.0", files, metadata="License: CC0\n")
    source = resolve_data("pypi:rows==1.0/d")
    assert [path.name for path in source.paths] == ["a.csv", "b.csv"]
    assert (source.kind, source.origin, source.licence) == ("pypi", "rows==1.0", "CC0")
    assert source.sha256 == digest({"a.csv": sha(b"1"), "sub/b.csv": sha(b"2")})
    with pytest.raises(SourceError, match=r"several splits: test\.tsv, train\.tsv.*pypi:rows==1\.0/s/train\.tsv"):
        resolve_data("pypi:rows==1.0/s")


def test_a_hostile_package_leaves_nothing(index, tmp_path):
    make_wheel(index, "evil", "1.0", {"d/a.csv": b"1", "../../../evil.csv": b"x"})
    with pytest.raises(SourceError, match="leaves the folder"):
        resolve_data("pypi:evil==1.0/d")
    assert not list(tmp_path.rglob("evil.csv"))


def test_a_model_out_of_a_package(index):
    files = {f"m/{name}": content for name, content in MODEL.items()}
    make_wheel(index, "model", "1.0", {**files, "m/README.md": CARD, "m/code.py": b"evil", "m/w.bin": b"x"})
    source = resolve_model("pypi:model==1.0/m")
    assert sorted(p.name for p in source.paths[0].iterdir()) == sorted([*MODEL, "README.md", "manifest.json"])
    assert source.licence == "mit"
    assert source.sha256 == digest({name: sha(content) for name, content in MODEL.items()})


@pytest.fixture
def short_names(index, monkeypatch):
    """A catalogue of the test's own: a set of two parts and a model."""
    make_wheel(index, "rows", "1.0", {"d/x-train.tab": b"train", "d/x-test.tab": b"test", "d/y.tab": b"no"})
    make_wheel(index, "model", "1.0", {f"m/{name}": content for name, content in MODEL.items()})
    files = {"x-train.tab": sha(b"train"), "x-test.tab": sha(b"test")}
    splits = {"train": "x-train.tab", "test": "x-test.tab"}
    rows = Entry(
        "rows", "data", "rows", "someone", "cc0", (("rows==1.0", "d"),), None, files, 100, "tab", {"text": "T"}, splits
    )
    model_files = {name: sha(content) for name, content in MODEL.items()}
    model = Entry("model", "model", "a model", "someone/model", "mit", (("model==1.0", "m"),), None, model_files, 100)
    monkeypatch.setattr(catalogue, "_CATALOGUE", (rows, model))
    return rows, model


def test_a_short_name_and_its_splits(short_names):
    bare, train, test = (resolve_data(f"pypi:rows{part}") for part in ("", "/train", "/test"))
    assert bare == train
    assert (train.name, train.format, train.origin, train.licence) == ("pypi:rows/train", "tab", "someone", "cc0")
    assert train.columns == {"text": "T"}
    assert (train.sha256, test.sha256) == (sha(b"train"), sha(b"test"))
    assert test.paths[0].read_bytes() == b"test"
    assert resolve_data("pypi:rows", split="test") == test
    assert resolve_data("pypi:rows/train", split="test") == train
    model = resolve_model("pypi:model")
    assert (model.origin, model.licence, model.paths[0].is_dir()) == ("someone/model", "mit", True)


def test_short_names_that_are_none(short_names, no_network):
    with pytest.raises(SourceError, match="no short name pypi:row; fix: did you mean pypi:rows"):
        resolve_data("pypi:row")
    with pytest.raises(SourceError, match="no short name pypi:rows/dev; fix: did you mean pypi:rows"):
        resolve_data("pypi:rows/dev")
    with pytest.raises(SourceError, match="no short name pypi:zzz; fix: one of pypi:model, or"):
        resolve_model("pypi:zzz")
    with pytest.raises(SourceError, match="pypi:model is a model; expected data"):
        resolve_data("pypi:model")
    with pytest.raises(SourceError, match="pypi:rows is data; expected model"):
        resolve_model("pypi:rows")
    with pytest.raises(SourceError, match="no short name pypi:model/train"):
        resolve_model("pypi:model/train")


def test_the_cache_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("POTSTILL_CACHE", "~/c")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "c"
    monkeypatch.delenv("POTSTILL_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "x"))
    assert cache_folder().name == "potstill"


@pytest.mark.network
def test_movie_snippets_for_real(tmp_path):
    source = resolve_data("pypi:movie-snippets", cache=tmp_path)
    lines = source.paths[0].read_text(encoding="utf-8").splitlines()
    assert lines[0].split("\t") == ["id", "sentiment", "text"]
    assert len(lines) == 10_606
    assert all(len(line.split("\t")) == 3 for line in lines)
    assert resolve_data("pypi:movie-snippets", cache=tmp_path, offline=True) == source
