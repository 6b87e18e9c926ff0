"""A student of fewer words, through the whole job: what is saved, what stays, and that it answers any text."""

from pathlib import Path

import pytest
from safetensors.numpy import load_file
from tests.pipeline.tiny_job import tiny_settings, write_rows
from tests.tiny import tiny_tokenizer
from tokenizers import Tokenizer
from transformers import AutoTokenizer

from potstill.errors import ModelError, SettingsError
from potstill.inference import Predictor
from potstill.pipeline import distill
from potstill.storage import read_json

QUICK = ("distill.epochs=6", "evaluate.hard_labels=true", 'export.formats=["onnx-float32"]')


def test_the_pieces_that_training_uses(tmp_path: Path) -> None:
    report = distill(tiny_settings(tmp_path, "student.vocabulary=used", *QUICK))
    found, size = report["student"]["vocabulary"], tiny_tokenizer().get_vocab_size()
    assert found["before"] == size
    assert found["pieces"] < size
    assert (found["same"], found["unknown"], found["longer"]) == (1.0, 0.0, 1.0)
    assert report["student"]["parameters_embedding"] < report["teacher"]["parameters_embedding"] / 2
    assert report["student"]["score"]["value"] > 0.8
    folder = tmp_path / "run" / "student"
    assert AutoTokenizer.from_pretrained(folder)("the film").input_ids
    assert Tokenizer.from_file(str(folder / "tokenizer.json")).get_vocab_size() == found["pieces"]
    predictor = Predictor.load(folder)
    assert predictor.predict(["the film was good"])[0].label == "pos"
    assert predictor.predict(["zebra xylophone quintessence"])[0].label in ("pos", "neg")


def test_so_many_pieces_with_everything_else(tmp_path: Path) -> None:
    """General distillation, an assistant, a teacher with a relative bias."""
    settings = tiny_settings(
        tmp_path,
        "student.vocabulary=60",
        'student.assistants=["1x32x64x4"]',
        f'general.texts="{write_rows(tmp_path / "plain.tsv", 60, 9)}"',
        "general.max_length=16",
        "general.epochs=1",
        "general.batch_size=8",
        *QUICK,
        kind="mpnet",
    )
    least = 5 + 26 + 10 + 36  # special tokens, letters, digits, the same within a word
    with pytest.raises(ModelError, match="single characters"):
        distill(settings)
    report = distill(
        settings.model_copy(update={"student": settings.student.model_copy(update={"vocabulary": least + 12})})
    )
    found = report["student"]["vocabulary"]
    assert found["pieces"] <= least + 12
    assert found["longer"] > 1.0
    assert found["same"] < 1.0
    run = tmp_path / "run" / "stages"
    kept = load_file(run / "vocabulary" / "kept.safetensors")["kept"]
    assert len(kept) == found["pieces"]
    assert (
        read_json(run / "assistant-1" / "model" / "config.json")["vocab_size"]
        == tiny_tokenizer("mpnet").get_vocab_size()
    )
    assert read_json(run / "general" / "model" / "config.json")["vocab_size"] == found["pieces"]


def test_windows_of_other_pieces_are_refused(tmp_path: Path) -> None:
    settings = tiny_settings(
        tmp_path, "student.vocabulary=used", "data.long_text=window", 'student.assistants=["1x32x64x4"]'
    )
    with pytest.raises(SettingsError, match="windows of the same pieces"):
        distill(settings)
