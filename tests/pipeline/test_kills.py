"""Ten kills at random points, in a save too, end in the same bytes as an uninterrupted run."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.pipeline.tiny_job import tiny_settings

from potstill.storage import digest_file

OVERRIDES = ("distill.epochs=300", "run.checkpoint_minutes=0.002", "export.formats=[]", "evaluate.hard_labels=false")
SCRIPT = """
import sys
from pathlib import Path
from potstill.pipeline import distill
from tests.pipeline.tiny_job import tiny_settings
distill(tiny_settings(Path(sys.argv[1]), *sys.argv[2:]))
"""


def start(folder: Path) -> subprocess.Popen[bytes]:
    root = Path(__file__).parents[2]
    command = [sys.executable, "-c", SCRIPT, str(folder), *OVERRIDES]
    return subprocess.Popen(command, cwd=root, env={**os.environ, "PYTHONPATH": str(root)}, stderr=subprocess.DEVNULL)


def results(folder: Path) -> dict[str, str]:
    """Digests of models, projections and predictions."""
    stages = folder / "run" / "stages"
    names = ["teacher/model/model.safetensors", "start/model/model.safetensors", "start/basis.safetensors"]
    names += ["student/model/model.safetensors", "student/projections.safetensors", "score/logits.safetensors"]
    return {name: digest_file(stages / name) for name in names}


def checkpoints(folder: Path) -> set[str]:
    """Names of what stands in the scratch folders of the trainings, temporary folders of a save among them."""
    return {path.name for path in (folder / "run" / "scratch").glob("*/*/*step-*")}


def kill_within_training(folder: Path, draw: random.Random) -> bool:
    """Start, wait until this process has written a checkpoint, then a random moment; True if it was killed."""
    before = checkpoints(folder)
    process = start(folder)
    while process.poll() is None and checkpoints(folder) <= before:
        time.sleep(0.01)
    time.sleep(draw.uniform(0.0, 0.6))
    if process.poll() is not None:
        assert process.returncode == 0
        return False
    process.send_signal(signal.SIGKILL)
    process.wait()
    return True


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_ten_kills_end_in_the_same_bytes(tmp_path: Path) -> None:
    """A checkpoint is written every 0.12 s, so that some of the kills fall within a save."""
    for name in ("whole", "killed"):
        tiny_settings(tmp_path / name)
    assert start(tmp_path / "whole").wait(600) == 0
    draw = random.Random(7)
    for kill in range(10):
        assert kill_within_training(tmp_path / "killed", draw), f"the run ended before kill {kill + 1}"
    assert start(tmp_path / "killed").wait(600) == 0
    assert results(tmp_path / "killed") == results(tmp_path / "whole")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_ctrl_c_saves_and_goes_on(tmp_path: Path) -> None:
    for name in ("whole", "stopped"):
        tiny_settings(tmp_path / name)
    assert start(tmp_path / "whole").wait(600) == 0
    process = start(tmp_path / "stopped")
    while process.poll() is None and not checkpoints(tmp_path / "stopped"):
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    assert process.wait(60) != 0
    assert checkpoints(tmp_path / "stopped")
    assert start(tmp_path / "stopped").wait(600) == 0
    assert results(tmp_path / "stopped") == results(tmp_path / "whole")
