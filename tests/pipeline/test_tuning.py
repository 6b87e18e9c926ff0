"""Fine-tuning in a run: BERT's grid, for the teacher and for what it is compared with."""

from pathlib import Path

import pytest
from tests.pipeline.tiny_job import tiny_settings
from tests.tiny import tiny_model

from potstill.pipeline import distill, tune_stages


def test_of_a_grid_the_best_on_dev_is_kept_for_teacher_and_baseline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Batch size, learning rate, epochs: only the second learns anything.
    monkeypatch.setattr(tune_stages, "BERT_GRID", ((16, 1e-9, 1), (16, 3e-3, 25), (240, 1e-9, 1)))
    small = tiny_model(tmp_path / "small", kind="bert", layers=1, hidden=16, heads=4)
    settings = tiny_settings(
        tmp_path,
        "teacher.grid=true",
        f'evaluate.baseline="{small}"',
        "evaluate.hard_labels=false",
        "export.formats=[]",
        "distill.epochs=1",
    )
    report = distill(settings)
    tuned = {stage["name"]: stage for stage in report["recipe"]["stages"]}
    for name in ("teacher", "small-baseline"):
        assert (tuned[name]["learning_rate"], tuned[name]["batch_size"], tuned[name]["epochs"]) == (3e-3, 16, 25.0)
    assert report["teacher"]["score"]["value"] > 0.9
    assert report["baselines"]["small_pretrained"]["score"]["value"] > 0.7
