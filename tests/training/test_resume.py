"""A training that was ended at any point and goes on ends in the same bytes as one that was not.

A real student under a real teacher: dropout on, two micro-batches an update, the last weights averaged.
"""

import hashlib
import os
import signal
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.torch import save
from tests.training.toys import distilling

from potstill.errors import StorageError
from potstill.storage import read_json, write_json
from potstill.training import AdamW, Schedule, loop, train

SCHEDULE = Schedule(13, 3e-3, accumulate=2, average=0.4)


class Killed(Exception):
    """Stands for SIGKILL: nothing is saved on the way out."""


class Clock:
    """A second an update, so that checkpoints fall between updates at known places."""

    def __init__(self):
        self.seconds = 0.0

    def monotonic(self):
        return self.seconds

    perf_counter = monotonic


class Reporter:
    """Ticks the clock; ends the training where it is told to."""

    def __init__(self, clock, end=None, at=None):
        self.clock, self.end, self.at = clock, end, at
        self.notes = []

    def stage(self, name, detail=""): ...

    def progress(self, done, total, **values):
        self.clock.seconds += 1
        if done == self.at:
            self.end()

    def note(self, message):
        self.notes.append(message)

    def warn(self, message): ...


def kill():
    raise Killed


def interrupt():
    signal.raise_signal(signal.SIGINT)


def terminate():
    signal.raise_signal(signal.SIGTERM)


def run(folder, monkeypatch, *, end=None, at=None, dtype=torch.float32, evaluate=None, save_every=2.5, **options):
    """One process: a fresh program, the same settings."""
    clock = Clock()
    monkeypatch.setattr(loop, "time", SimpleNamespace(monotonic=clock.monotonic, perf_counter=clock.perf_counter))
    program = distilling(**options)
    optimiser = AdamW(program.modules, dtype=dtype)
    reporter = Reporter(clock, end, at)
    try:
        result = train(
            program,
            optimiser,
            SCHEDULE,
            seed=(0, "student"),
            checkpoints=folder,
            save_every=save_every,
            evaluate=evaluate,
            points=5,
            report=reporter,
        )
    finally:
        program.close()
    files = {name: save(dict(module.state_dict())) for name, module in program.modules.items()}
    files["optimiser"] = save({name: t.contiguous() for name, t in optimiser.state_tensors().items()})
    parts = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    assert all(f"exp_avg_sq/{name}.".encode() in files["optimiser"] for name in ("student", "projections"))
    curve = [{**point, "seconds": 0} for point in result.curve]
    return parts, curve, result.examples, reporter.notes


def compare(got, wanted):
    assert got[0].keys() == {"student", "projections", "optimiser"}
    for name in got[0]:
        assert got[0][name] == wanted[0][name], name
    assert got[1:3] == wanted[1:3]


@pytest.fixture(scope="module", params=[torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
def uninterrupted(request, tmp_path_factory):
    with pytest.MonkeyPatch.context() as monkeypatch:
        return request.param, run(tmp_path_factory.mktemp("whole"), monkeypatch, dtype=request.param)


def test_dropout_averages_and_checkpoints_are_really_there(uninterrupted, tmp_path, monkeypatch):
    dtype, wanted = uninterrupted
    compare(run(None, monkeypatch, dtype=dtype), wanted)  # saving changes nothing
    without = run(tmp_path, monkeypatch, dtype=dtype, dropout=0.0)
    assert without[0]["student"] != wanted[0]["student"]


@pytest.mark.parametrize(
    ("end", "at"), [(kill, 1), (kill, 5), (kill, 9), (kill, 13), (interrupt, 4), (interrupt, 13), (terminate, 10)]
)
def test_ended_once(uninterrupted, tmp_path, monkeypatch, end, at):
    dtype, wanted = uninterrupted
    with pytest.raises(Killed if end is kill else KeyboardInterrupt):
        run(tmp_path, monkeypatch, end=end, at=at, dtype=dtype)
    saved = [path.name for path in tmp_path.iterdir()]
    # A kill loses what came after the last checkpoint (one each three updates); an interrupt loses nothing.
    done = 3 * ((at - 1) // 3) if end is kill else at
    assert saved == ([f"step-{done:08d}"] if done else [])
    got = run(tmp_path, monkeypatch, dtype=dtype)
    compare(got, wanted)
    assert got[3] == ([f"going on from step {done} of 13"] if done else [])


def test_ended_again_and_again(uninterrupted, tmp_path, monkeypatch):
    dtype, wanted = uninterrupted
    for end, at in ((kill, 2), (interrupt, 3), (kill, 5), (terminate, 6), (kill, 11), (kill, 11), (interrupt, 13)):
        with pytest.raises((Killed, KeyboardInterrupt)):
            run(tmp_path, monkeypatch, end=end, at=at, dtype=dtype)
    compare(run(tmp_path, monkeypatch, dtype=dtype), wanted)


def test_ended_within_an_evaluation(uninterrupted, tmp_path, monkeypatch):
    dtype, wanted = uninterrupted
    calls = iter(range(100))

    def evaluate():
        torch.rand(3)  # an evaluation may draw
        if next(calls) == 2:
            kill()
        return 0.5

    with pytest.raises(Killed):
        run(tmp_path, monkeypatch, dtype=dtype, evaluate=evaluate)
    got = run(tmp_path, monkeypatch, dtype=dtype, evaluate=lambda: 0.5)
    assert [point["dev"] for point in got[1] if point["dev"] is not None] == [0.5] * 5
    curve = [{**point, "dev": None} for point in got[1]]
    compare((got[0], curve, got[2]), wanted)


def test_killed_within_a_save(uninterrupted, tmp_path, monkeypatch):
    dtype, wanted = uninterrupted
    original = os.replace
    for call in range(40):
        calls = iter(range(1000))

        def replace(*args, nth=call, calls=calls):
            if next(calls) == nth:
                kill()
            return original(*args)

        with monkeypatch.context() as patch:
            patch.setattr("os.replace", replace)
            try:
                got = run(tmp_path, monkeypatch, dtype=dtype)
                break
            except Killed:
                continue
    assert call > 3
    compare(got, wanted)


@pytest.mark.parametrize(
    "change",
    [
        {"seed": 5},
        {"batch_size": 4},
        {"mode": "paper", "phase": "intermediate"},
        {"texts": 15},
    ],
)
def test_a_checkpoint_of_another_training_is_refused(tmp_path, monkeypatch, change):
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, monkeypatch, end=interrupt, at=3)
    with pytest.raises(StorageError, match="is of another training"):
        run(tmp_path, monkeypatch, **change)


@pytest.mark.parametrize(
    "other",
    [
        {"schedule": Schedule(14, 3e-3, accumulate=2, average=0.4)},
        {"schedule": Schedule(13, 1e-3, accumulate=2, average=0.4)},
        {"schedule": Schedule(13, 3e-3, accumulate=1, average=0.4)},
        {"seed": (1, "student")},
        {"seed": (0, "teacher")},
        {"weight_decay": 0.5},
        {"dtype": torch.bfloat16},
        {"logits": True},
    ],
    ids=str,
)
def test_a_checkpoint_under_other_settings_is_refused(tmp_path, monkeypatch, other):
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, monkeypatch, end=interrupt, at=3)
    program = distilling()
    if other.pop("logits", False):
        program.guide.logits = np.zeros((14, 3), dtype=np.float32)
    schedule, seed = other.pop("schedule", SCHEDULE), other.pop("seed", (0, "student"))
    before = [p.clone() for p in program.student.parameters()]
    with pytest.raises(StorageError, match="is of another training"):
        train(program, AdamW(program.modules, **other), schedule, seed=seed, checkpoints=tmp_path)
    if other.get("dtype") is None:
        assert all(torch.equal(p, q) for p, q in zip(before, program.student.parameters(), strict=True))


def test_a_damaged_checkpoint_is_refused_and_named(tmp_path, monkeypatch):
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, monkeypatch, end=interrupt, at=3)
    state = tmp_path / "step-00000003" / "state.safetensors"
    content = bytearray(state.read_bytes())
    content[-5] ^= 1
    state.write_bytes(content)
    with pytest.raises(StorageError, match=r"state\.safetensors is missing or damaged"):
        run(tmp_path, monkeypatch)


def test_the_environment_is_written_beside_the_state(tmp_path, monkeypatch):
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, monkeypatch, end=interrupt, at=3)
    written = read_json(tmp_path / "step-00000003" / "progress.json")
    assert written["schema_version"] == 1
    assert written["environment"]["torch"] == torch.__version__
    assert written["environment"]["threads"] == torch.get_num_threads()
    write_json(tmp_path / "step-00000003" / "progress.json", written)  # the same bytes: nothing is found
    run(tmp_path, monkeypatch)
