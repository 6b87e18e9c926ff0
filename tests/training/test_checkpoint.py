"""A checkpoint is whole or absent; damage is found; a save that fails leaves the one before it."""

import errno
import json
import os
import resource
import signal
import stat
import tempfile

import pytest
import torch

from potstill.errors import StorageError
from potstill.training import checkpoint
from potstill.training.checkpoint import load_checkpoint, save_checkpoint

TENSORS = {
    "weight/a": torch.arange(12.0).reshape(3, 4),
    "average/a": torch.full((2,), 0.1),
    "step/a": torch.tensor(3.0),
}
PROGRESS = {"schema_version": 1, "step": 7, "identity": {"seed": ["0"]}, "sums": {"hidden": 0.1 + 0.2}}


def same(found, tensors=TENSORS, progress=PROGRESS):
    got, facts = found
    assert got.keys() == tensors.keys()
    assert all(torch.equal(got[name], tensors[name]) for name in tensors)
    assert {name: facts[name] for name in progress} == progress
    return True


def test_what_is_saved_is_loaded_to_the_bit(tmp_path):
    assert load_checkpoint(tmp_path / "none") is None
    save_checkpoint(tmp_path, 7, TENSORS, PROGRESS)
    assert same(load_checkpoint(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000007"]
    assert sorted(path.name for path in (tmp_path / "step-00000007").iterdir()) == [
        "manifest.json",
        "progress.json",
        "state.safetensors",
    ]


def test_the_newest_is_loaded_and_older_ones_are_removed(tmp_path):
    save_checkpoint(tmp_path, 9, TENSORS, PROGRESS)
    save_checkpoint(tmp_path, 10, {"weight/a": torch.ones(1)}, {"step": 10})
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000010"]
    assert same(load_checkpoint(tmp_path), {"weight/a": torch.ones(1)}, {"step": 10})


def test_what_a_killed_save_left_is_removed_by_the_next(tmp_path):
    left = tmp_path / ".step-00000003.tmp-abc"
    left.mkdir()
    (left / "state.safetensors").write_bytes(b"x" * 100)
    assert load_checkpoint(tmp_path) is None
    save_checkpoint(tmp_path, 7, TENSORS, PROGRESS)
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000007"]


def test_a_checkpoint_half_removed_is_passed_over(tmp_path):
    save_checkpoint(tmp_path, 7, TENSORS, PROGRESS)
    old = tmp_path / "step-00000003"
    old.mkdir()
    (old / "progress.json").write_text("{}")
    assert same(load_checkpoint(tmp_path))


@pytest.mark.parametrize("name", ["manifest.json", "progress.json", "state.safetensors"])
def test_any_byte_flipped_is_found(tmp_path, name):
    save_checkpoint(tmp_path, 7, TENSORS, PROGRESS)
    path = tmp_path / "step-00000007" / name
    whole = path.read_bytes()
    found, places = [], range(0, len(whole), 3 if name == "progress.json" else 1)
    for place in places:
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x08]) + whole[place + 1 :])
        try:
            assert same(load_checkpoint(tmp_path))  # only between the words of the manifest, where bytes mean nothing
            assert name == "manifest.json"
            assert json.loads(path.read_bytes()) == json.loads(whole)
        except StorageError as error:
            found.append(error)
    assert all(str(path.parent) in str(error) and error.exit_code == 2 for error in found)
    assert len(found) == len(places) or (name == "manifest.json" and len(found) > len(whole) / 2)
    path.write_bytes(whole)
    assert same(load_checkpoint(tmp_path))


@pytest.mark.parametrize("name", ["manifest.json", "progress.json", "state.safetensors"])
def test_any_file_cut_or_lost_is_found(tmp_path, name):
    save_checkpoint(tmp_path, 7, TENSORS, PROGRESS)
    path = tmp_path / "step-00000007" / name
    whole = path.read_bytes()
    for length in (0, 1, len(whole) // 2, len(whole) - 2):
        path.write_bytes(whole[:length])
        with pytest.raises(StorageError, match=name):
            load_checkpoint(tmp_path)
    path.unlink()
    if name == "manifest.json":
        assert load_checkpoint(tmp_path) is None
    else:
        with pytest.raises(StorageError, match=f"{name} is missing or damaged"):
            load_checkpoint(tmp_path)


def failing(function, at, error):
    """`function`, but its call number `at` (from 0) raises."""
    calls = iter(range(10**6))

    def wrapped(*args, **kwargs):
        if next(calls) == at:
            raise error
        return function(*args, **kwargs)

    return wrapped


@pytest.mark.parametrize(
    "error", [OSError(errno.ENOSPC, "No space left on device"), OSError(errno.EIO, "I/O error"), KeyboardInterrupt()]
)
@pytest.mark.parametrize("call", ["os.fsync", "os.replace", "os.fdopen", "tempfile.mkstemp", "tempfile.mkdtemp"])
def test_a_save_that_fails_at_any_step_leaves_the_one_before(tmp_path, monkeypatch, call, error):
    save_checkpoint(tmp_path, 3, TENSORS, PROGRESS)
    module, name = call.split(".")
    function = getattr({"os": os, "tempfile": tempfile}[module], name)
    newer = {"weight/a": torch.ones(3)}
    at = 0
    while True:
        with monkeypatch.context() as patch:
            patch.setattr(call, failing(function, at, error))
            try:
                save_checkpoint(tmp_path, 4, newer, {"step": 4})
                break
            except (StorageError, KeyboardInterrupt) as caught:
                said = str(caught)
        if isinstance(error, OSError):
            assert "cannot be written" in said
            assert error.strerror in said
        else:
            assert said == ""
        # The rename is the moment: before it the old state is found, after it the new one, both whole.
        if (tmp_path / "step-00000004").exists():
            assert same(load_checkpoint(tmp_path), newer, {"step": 4})
            save_checkpoint(tmp_path, 3, TENSORS, PROGRESS)
        else:
            assert same(load_checkpoint(tmp_path))
        assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]
        at += 1
    assert at > 0
    assert same(load_checkpoint(tmp_path), newer, {"step": 4})


def test_a_disk_that_fills_up_while_the_state_is_written(tmp_path):
    save_checkpoint(tmp_path, 3, TENSORS, PROGRESS)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, hard))
        with pytest.raises(StorageError, match="step-00000004 cannot be written"):
            save_checkpoint(tmp_path, 4, {"weight/a": torch.zeros(100_000)}, {"step": 4})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, ignored)
    assert same(load_checkpoint(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000003"]


def test_no_space_is_said_before_anything_is_written(tmp_path, monkeypatch):
    monkeypatch.setattr("shutil.disk_usage", lambda _: type("Usage", (), {"free": 5_000_000})())
    with pytest.raises(StorageError, match="5 MB free"):
        save_checkpoint(tmp_path / "new", 1, TENSORS, PROGRESS)
    assert not (tmp_path / "new").exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_permission(tmp_path):
    tmp_path.chmod(stat.S_IRUSR | stat.S_IXUSR)
    try:
        with pytest.raises(StorageError):
            save_checkpoint(tmp_path, 1, TENSORS, PROGRESS)
    finally:
        tmp_path.chmod(stat.S_IRWXU)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("torch", "1.0.0", "torch 1.0.0; expected torch"),
        ("threads", 99, "threads 99"),
        ("transformers", "4.0", "transformers 4.0"),
        ("machine", "vax", "machine vax"),
        ("instructions", ["amx_int99"], "instructions amx_int99"),
    ],
)
def test_another_environment_is_refused_for_it_would_not_end_in_the_same_bytes(
    tmp_path, monkeypatch, name, value, said
):
    own = checkpoint.environment()
    monkeypatch.setattr(checkpoint, "environment", lambda: {**own, name: value})
    save_checkpoint(tmp_path, 7, TENSORS, PROGRESS)
    monkeypatch.undo()
    with pytest.raises(StorageError, match="written with") as caught:
        load_checkpoint(tmp_path)
    assert said in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1
