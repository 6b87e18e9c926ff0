"""Settings that trade time for memory: a whole job, how many steps it has, and what is refused before work."""

from pathlib import Path

import numpy as np
import pytest
from safetensors.torch import load_file
from tests.pipeline.tiny_job import tiny_settings
from tests.small_models import random_encodings

from potstill.data.batching import Batches
from potstill.errors import SettingsError
from potstill.pipeline import distill
from potstill.pipeline.distil_stages import _planned_steps
from potstill.pipeline.job import prepare_job
from potstill.progress import SILENT
from potstill.recipes import Phase

QUICK = ("export.formats=[]", "student.shape=1x16x32x4", "distill.precision=float32", "evaluate.hard_labels=false")


def settings(folder: Path, *more: str):
    return tiny_settings(folder, *QUICK, *more)


def test_a_run_with_all_of_them(tmp_path: Path) -> None:
    bounded = ("distill.accumulate=4", "distill.batch_tokens=16", "distill.gradient_checkpointing=true")
    report = distill(settings(tmp_path, "distill.epochs=1", "distill.batch_size=16", *bounded))
    (stage,) = (one for one in report["recipe"]["stages"] if one["name"].startswith("student"))
    assert stage["batch_size"] == 16
    assert stage["steps"] > 480 / 16  # 240 texts and less than one copy of each, fewer than 16 a step
    assert stage["epochs"] == pytest.approx(1.0)
    plain = load_file(tmp_path / "run" / "student" / "model.safetensors")
    assert all(bool(tensor.isfinite().all()) for tensor in plain.values())


@pytest.mark.parametrize(
    ("epochs", "tokens", "accumulate", "wanted"),
    [
        (3, None, 1, 21),
        (3, None, 4, 21),
        (None, None, 1, 62),
        (3, 80, 1, 39),
        (3, 80, 4, 21),
        (3, 20, 4, 39),
        (None, 80, 1, 130),
    ],
)
def test_steps_planned(epochs: int | None, tokens: int | None, accumulate: int, wanted: int) -> None:
    """100 texts of 10 tokens, 16 a step, in parts: of 8 texts at most under 80 tokens, of 2 under 20."""
    phase = Phase("distil", (), epochs, batch_size=16, learning_rate=1.0, examples=1000)
    encodings = random_encodings(np.full(100, 10), seed=0)
    none = np.zeros(100, dtype=np.int64)
    batches = Batches(encodings, none, np.arange(100), 16 // accumulate, 0, tokens)
    assert _planned_steps(phase, batches, accumulate) == wanted


def test_parts_must_be_equal(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"distill\.accumulate = 5 parts of 16 examples; expected one of 1, 2, 4"):
        prepare_job(settings(tmp_path, "distill.batch_size=16", "distill.accumulate=5"), SILENT)


def test_several_processes_of_one_run_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    made = settings(tmp_path)
    with pytest.raises(SettingsError, match=r"started in 2 processes.*without torchrun"):
        distill(made)
    assert not Path(made.run.out).exists()
