"""SIGKILL, ten times, at random points and within saves: the same bytes as a run that was left alone."""

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from potstill.storage import digest_file

ROOT = Path(__file__).parents[2]

SCRIPT = """
import sys
from pathlib import Path
import torch
from safetensors.torch import save_file
from potstill.training import AdamW, Schedule, train
from tests.training.toys import distilling

torch.set_num_threads(1)
folder = Path(sys.argv[1])
program = distilling()
optimiser = AdamW(program.modules)
schedule = Schedule(250, 3e-3, accumulate=2, average=0.4)
train(program, optimiser, schedule, seed=(0, "student"), checkpoints=folder / "state", save_every=0.0)
tensors = {f"{m}/{n}": t for m, module in program.modules.items() for n, t in module.state_dict().items()}
tensors |= optimiser.state_tensors()
save_file({n: t.clone().contiguous() for n, t in tensors.items()}, folder / "end.safetensors")
"""


def start(folder):
    folder.mkdir(exist_ok=True)
    return subprocess.Popen([sys.executable, "-W", "ignore", "-c", SCRIPT, str(folder)], cwd=ROOT)


def wait_for(condition, process, seconds=60):
    until = time.monotonic() + seconds
    while not condition() and process.poll() is None and time.monotonic() < until:
        time.sleep(0.0005)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_ten_kills(tmp_path):
    whole = start(tmp_path / "whole")
    assert whole.wait(timeout=300) == 0
    wanted = digest_file(tmp_path / "whole" / "end.safetensors")
    folder = tmp_path / "killed"
    chance = random.Random(0)
    in_saves = kills = 0
    for number in range(10):
        process = start(folder)
        state, before = folder / "state", {path.name for path in (folder / "state").glob("step-*")}
        wait_for(lambda b=before, s=state: {path.name for path in s.glob("step-*")} - b, process)
        if number % 2:  # as soon as a save has begun
            wait_for(lambda s=state: any(s.glob(".step-*")), process)
        else:
            time.sleep(chance.uniform(0.0, 0.3))
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            kills += 1
        process.wait()
        in_saves += any(state.glob(".step-*"))
        assert not (folder / "end.safetensors").exists(), "the training is too short for ten kills"
    assert kills == 10
    assert in_saves >= 1
    assert start(folder).wait(timeout=300) == 0
    assert digest_file(folder / "end.safetensors") == wanted
