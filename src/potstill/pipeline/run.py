"""The run folder: stages with keys, results that are whole or absent, scratch space that survives a kill.

A stage's key is the SHA-256 of what it depends on: its settings, the digests of its inputs, the keys of the stages
before it. A stage whose result has that key is not run again. Knows nothing of models or data.
"""

import contextlib
import logging
import os
import shutil
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import transformers

from potstill.errors import SettingsError, StorageError
from potstill.progress import Reporter
from potstill.storage import (
    atomic_folder,
    check_run_folder,
    digest,
    lock,
    read_json,
    read_manifest,
    verify_folder,
    write_json,
)

__all__ = ["OF_DISTILLATION", "OF_FINE_TUNING", "SCHEMA_VERSION", "Context", "Run", "Stage", "check_folder", "opened"]

SCHEMA_VERSION = 1
"""Part of every key: raised when a stage's result changes its meaning."""

OF_DISTILLATION = ("teacher", "base")
OF_FINE_TUNING = ("fine-tune",)
"""What a run has right after the stage `data`, with which both commands begin: it tells the folder of one from the
other's."""

_SHORT = 12
"""Characters of a key in a folder's name."""


@dataclass(frozen=True)
class Context:
    """What a stage is given.

    Attributes:
        folder: Empty; the stage's result goes here.
        scratch: Kept until the stage has ended well: checkpoints, and decisions that a resumed run must not make again.
        done: Name → result folder of each stage that ended before.
        report: Receives progress.
    """

    folder: Path
    scratch: Path
    done: Mapping[str, Path]
    report: Reporter


@dataclass(frozen=True)
class Stage:
    """One step of a run.

    Attributes:
        name: Unique in the run; its folder's name.
        depends: JSON-able settings and digests of inputs: part of the key.
        needs: Names of the stages whose results it reads: their keys are part of the key.
        work: Does it.
        detail: A few words for the plan.
        share: Its part of the time that a budget leaves to trainings; 0 for everything else.
    """

    name: str
    depends: Mapping[str, Any]
    needs: tuple[str, ...]
    work: Callable[[Context], None]
    detail: str = ""
    share: float = 0.0


@dataclass
class Run:
    """A run folder and the stages done in it so far.

    Attributes:
        out: The folder.
        report: Receives what happens.
        keys, done, seconds: By stage name, as stages end.
        worked: Whether any stage was run, and not taken from before.
        by_key: Whether results stand side by side under their keys, so that several jobs share a folder and the stages
            that are the same in them; else a stage's result takes the place of an older one.
    """

    out: Path
    report: Reporter
    keys: dict[str, str] = field(default_factory=dict)
    done: dict[str, Path] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    worked: bool = False
    by_key: bool = False

    def key(self, stage: Stage) -> str:
        """The stage's key; the stages it needs must have theirs."""
        return digest([SCHEMA_VERSION, stage.name, dict(stage.depends), [self.keys[name] for name in stage.needs]])

    def folder(self, stage: Stage) -> Path:
        """Where its result goes."""
        name = f"{stage.name}-{self.key(stage)[:_SHORT]}" if self.by_key else stage.name
        return self.out / "stages" / name

    def is_done(self, stage: Stage) -> bool:
        """Whether its result is there under its present key."""
        try:
            manifest = read_manifest(self.folder(stage))
        except StorageError:
            return False
        return manifest is not None and manifest.get("key") == self.key(stage)

    def execute(self, stage: Stage) -> Path:
        """Run a stage, or take its result from before; a damaged result is made again."""
        key, folder = self.key(stage), self.folder(stage)
        self.keys[stage.name] = key
        if self.is_done(stage):
            try:
                self.seconds[stage.name] = _seconds(verify_folder(folder), folder)
            except StorageError as error:
                self.report.warn(f"{error.got}; the stage {stage.name} is run again")
            else:
                self.done[stage.name] = folder
                return folder
        self.worked = True
        scratch = self.out / "scratch" / f"{stage.name}-{key[:_SHORT]}"
        scratch.mkdir(parents=True, exist_ok=True)
        clock = scratch / "seconds.json"
        spent = _seconds(read_json(clock), clock) if clock.is_file() else 0.0
        self.report.stage(stage.name, stage.detail)
        started = time.monotonic()
        facts: dict[str, Any] = {"stage": stage.name, "key": key}
        try:
            with atomic_folder(folder, facts) as work:
                stage.work(Context(work, scratch, dict(self.done), self.report))
                facts["seconds"] = round(spent + time.monotonic() - started, 3)
        except BaseException:
            if scratch.is_dir():
                write_json(scratch / "seconds.json", {"seconds": spent + time.monotonic() - started})
            raise
        shutil.rmtree(scratch, ignore_errors=True)
        self.done[stage.name], self.seconds[stage.name] = folder, facts["seconds"]
        return folder


def check_folder(out: Path, first: str, *, by_key: bool = False, others: Collection[str] = ()) -> None:
    """Raise `StorageError` unless `out` is absent, empty, or the folder of a run whose first stage is `first`.

    `by_key`: as in `Run`; `others`: stages that runs of other commands with the same first stage have.
    """
    check_run_folder(out)
    stages = out / "stages"
    held = sorted(path.name for path in stages.iterdir() if path.name[0] != ".") if stages.is_dir() else []
    names = {name.rpartition("-")[0] for name in held} if by_key else set(held)
    if held and (first not in names or names & set(others)):
        raise StorageError(
            f"{out} is the folder of another command's run (its stages: {', '.join(held[:4])})",
            expected="a new or empty folder, or that of such a run",
            fix="choose another --out",
        )


@contextlib.contextmanager
def opened(out: Path, first: str, *, by_key: bool = False, others: Collection[str] = ()) -> Iterator[None]:
    """Hold a run folder, checked by `check_folder`, for this process; libraries are quiet meanwhile.

    What a process that was killed while it wrote a result left is removed.

    Raises:
        SettingsError: torchrun started several of these processes: they would all do the whole of the work.
    """
    if (processes := os.environ.get("WORLD_SIZE", "1")) != "1":
        raise SettingsError(
            f"a run started in {processes} processes (WORLD_SIZE)",
            expected="one, which uses every core",
            fix="start it without torchrun; several processes can share a training from Python (docs/speed.md)",
        )
    check_folder(out, first, by_key=by_key, others=others)
    with lock(out), _quiet_libraries():
        for half in (*(out / "stages").glob(".*.tmp-*"), *out.glob(".*.tmp-*")):
            shutil.rmtree(half, ignore_errors=True)
        yield


@contextlib.contextmanager
def _quiet_libraries() -> Iterator[None]:
    """Progress and warnings are Potstill's to show; others' bars and notices would stand in between."""
    level = transformers.logging.get_verbosity()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    logging.getLogger("nncf").setLevel(logging.ERROR)
    try:
        yield
    finally:
        transformers.logging.set_verbosity(level)


def _seconds(facts: Any, where: Path) -> float:
    """The time that a result says it took; the run's budget and report rest on it."""
    value = facts.get("seconds") if isinstance(facts, dict) else None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise StorageError(f"{where} says {value!r} seconds", expected="a number", fix="remove it and run again")
    return float(value)
