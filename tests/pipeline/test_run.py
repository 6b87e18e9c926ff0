"""Stages and keys: what runs, what is taken from before, what a failure leaves."""

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from potstill.errors import LockHeld, StorageError
from potstill.pipeline.run import Context, Run, Stage
from potstill.progress import SILENT
from potstill.storage import lock, write_arrays


def writes(log: list[str], name: str, text: str = "x"):
    def work(context: Context) -> None:
        log.append(name)
        (context.folder / "result.txt").write_text(text)

    return work


def stages(log: list[str], b_setting: int = 1) -> list[Stage]:
    return [
        Stage("a", {"x": 1}, (), writes(log, "a")),
        Stage("b", {"x": b_setting}, ("a",), writes(log, "b")),
        Stage("c", {}, ("b",), writes(log, "c")),
        Stage("d", {}, ("a",), writes(log, "d")),
    ]


def execute(out: Path, every: list[Stage]) -> Run:
    run = Run(out, SILENT)
    for stage in every:
        run.execute(stage)
    return run


def test_arrays_that_do_not_lie_in_one_piece_are_stored_as_they_are(tmp_path: Path) -> None:
    arrays = {"every other": np.arange(10)[::2], "turned": np.arange(6.0).reshape(2, 3).T}
    write_arrays(tmp_path / "arrays.safetensors", arrays)
    read = load_file(tmp_path / "arrays.safetensors")
    assert all(np.array_equal(read[name], array) for name, array in arrays.items())


def test_a_second_run_does_nothing(tmp_path: Path) -> None:
    log: list[str] = []
    first = execute(tmp_path, stages(log))
    assert log == ["a", "b", "c", "d"]
    second = execute(tmp_path, stages(log))
    assert log == ["a", "b", "c", "d"]
    assert second.keys == first.keys
    assert second.seconds == first.seconds


def test_a_changed_setting_runs_what_depends_on_it_and_nothing_else(tmp_path: Path) -> None:
    log: list[str] = []
    execute(tmp_path, stages(log))
    log.clear()
    execute(tmp_path, stages(log, b_setting=2))
    assert log == ["b", "c"]


def test_a_damaged_result_is_made_again(tmp_path: Path) -> None:
    log: list[str] = []
    execute(tmp_path, stages(log))
    (tmp_path / "stages" / "b" / "result.txt").write_text("y")
    log.clear()
    execute(tmp_path, stages(log))
    assert log == ["b"]
    (tmp_path / "stages" / "d" / "manifest.json").write_text("{")
    log.clear()
    execute(tmp_path, stages(log))
    assert log == ["d"]
    path = tmp_path / "stages" / "d" / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "seconds": "x"}))
    log.clear()
    assert isinstance(execute(tmp_path, stages(log)).seconds["d"], float)
    assert log == ["d"]


def test_damaged_scratch_is_named(tmp_path: Path) -> None:
    (first, *_) = stages([])
    run = Run(tmp_path, SILENT)
    clock = tmp_path / "scratch" / f"a-{run.key(first)[:12]}" / "seconds.json"
    clock.parent.mkdir(parents=True)
    clock.write_text("{}")
    with pytest.raises(StorageError, match=r"seconds\.json says None seconds; .*fix: remove it"):
        run.execute(first)


def test_a_file_in_the_way_of_a_result_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "stages").mkdir()
    (tmp_path / "stages" / "a").write_text("")
    execute(tmp_path, stages([]))
    assert sorted(path.name for path in (tmp_path / "stages").iterdir()) == ["a", "b", "c", "d"]


def test_a_failure_leaves_no_result_and_keeps_scratch(tmp_path: Path) -> None:
    def fails(context: Context) -> None:
        (context.folder / "half.txt").write_text("half")
        (context.scratch / "kept.txt").write_text("kept")
        raise RuntimeError("no")

    run = Run(tmp_path, SILENT)
    with pytest.raises(RuntimeError):
        run.execute(Stage("a", {}, (), fails))
    assert not (tmp_path / "stages" / "a").exists()
    assert [p.name for p in (tmp_path / "stages").iterdir()] == []
    (scratch,) = (tmp_path / "scratch").iterdir()
    assert (scratch / "kept.txt").read_text() == "kept"
    spent = json.loads((scratch / "seconds.json").read_text())["seconds"]

    def works(context: Context) -> None:
        assert (context.scratch / "kept.txt").read_text() == "kept"

    run.execute(Stage("a", {}, (), works))
    assert run.seconds["a"] >= round(spent, 3)
    assert not scratch.exists()


def test_a_second_process_is_refused(tmp_path: Path) -> None:
    with lock(tmp_path), pytest.raises(LockHeld, match="in use by process"), lock(tmp_path):
        pass
    with lock(tmp_path):
        pass
