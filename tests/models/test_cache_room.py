"""Room for teachers' caches: what goes, in which order, and what never does."""

import os
import shutil

import pytest

from potstill.models import cache_room
from potstill.models.cache_room import held_folder, kept_folders, make_room


def folder_of(root, name, size, used):
    with held_folder(root / name, name):
        (root / name / "block").mkdir()
        (root / name / "block" / "rows.safetensors").write_bytes(bytes(size))
    os.utime(root / name / ".lock", (used, used))
    return root / name


@pytest.fixture
def root(tmp_path):
    for name, used in (("old", 100), ("older", 50), ("new", 200)):
        folder_of(tmp_path, name, 10_000, used)
    return tmp_path


def names(root):
    return [kept.folder.name for kept in kept_folders(root)]


def test_those_used_longest_ago_go_first(root):
    assert names(root) == ["older", "old", "new"]
    size = sum(kept.size for kept in kept_folders(root))
    assert 30_000 < size < 31_000
    assert make_room(root / "mine", 1000, 40_000)
    assert names(root) == ["older", "old", "new"]
    assert make_room(root / "mine", 15_000, 40_000)
    assert names(root) == ["old", "new"]
    assert make_room(root / "mine", 35_000, 40_000)
    assert names(root) == []


def test_its_own_files_stay_and_count(root):
    assert not make_room(root / "older", 30_000, 40_000)
    assert names(root) == ["older", "old", "new"]  # nothing is removed in vain
    assert make_room(root / "older", 15_000, 40_000)
    assert names(root) == ["older", "new"]


def test_what_is_in_use_stays(root):
    with held_folder(root / "older", "older"):
        assert make_room(root / "mine", 15_000, 40_000)
        assert sorted(names(root)) == ["new", "older"]
        assert not make_room(root / "mine", 35_000, 40_000)
        assert names(root) == ["older"]


def test_the_disk_has_the_last_word(root, monkeypatch):
    real = shutil.disk_usage(root)
    monkeypatch.setattr(cache_room.shutil, "disk_usage", lambda _: real._replace(free=500))
    assert not make_room(root / "mine", 50_000, 10**9)
    assert len(names(root)) == 3
    assert make_room(root / "mine", 400, 10**9)


def test_an_empty_root(tmp_path):
    assert kept_folders(tmp_path / "none") == []
    assert make_room(tmp_path / "none" / "mine", 1000, 2000)
    assert not make_room(tmp_path / "none" / "mine", 3000, 2000)
