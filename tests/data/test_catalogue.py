"""The short names' own rules; that the hashes are right is seen by every download."""

import dataclasses
import json
import re

import pytest

from potstill.data.catalogue import catalogue, find


def test_has_the_short_names():
    names = [entry.name for entry in catalogue()]
    assert names == ["minilm", "mpnet", "movie-snippets", "20newsgroups", "reuters8", "reuters52", "news"]


@pytest.mark.parametrize("entry", catalogue(), ids=lambda entry: entry.name)
def test_an_entry_is_complete_and_cannot_be_changed(entry):
    assert all(re.fullmatch(r"[a-z0-9-]+==[0-9.]+", package) and path for package, path in entry.parts)
    assert entry.files
    assert all(re.fullmatch(r"[0-9a-f]{64}", sha256) for sha256 in entry.files.values())
    assert entry.description
    assert entry.origin
    assert entry.licence
    assert entry.download > 1 << 20
    if entry.kind == "data":
        assert entry.format in ("csv", "tsv", "tab")
        assert "text" in entry.columns
    else:
        assert {"config.json", "model.safetensors", "tokenizer.json"} <= set(entry.files)
    assert set(entry.splits.values()) <= set(entry.files)
    with pytest.raises(dataclasses.FrozenInstanceError):
        entry.licence = "mine"
    with pytest.raises(TypeError):
        entry.files["x"] = "y"
    assert json.loads(json.dumps(entry.facts()))["files"] == dict(entry.files)


def test_finds_by_what_a_user_may_write():
    assert find("pypi:minilm") is find("minilm") is catalogue()[0]
    for entry in catalogue():
        assert all(find(source) is entry for source in entry.sources)
    assert find("pypi:20newsgroups/test").sources == ("pypi:20newsgroups/train", "pypi:20newsgroups/test")
    assert find("pypi:minim") is None
