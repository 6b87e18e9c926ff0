"""Whole runs under teachers of the architectures that are built unlike BERT; and what is refused before any work."""

import json

import pytest
import torch
from tests.pipeline.tiny_job import tiny_settings
from tests.small_models import small_model
from tests.tiny import tiny_tokenizer
from transformers import AutoModelForSequenceClassification, ErnieConfig

from potstill.errors import ModelError
from potstill.models.student import Shape
from potstill.pipeline import distill

FEW = ("augment.method=none", "distill.epochs=1", "evaluate.hard_labels=false", "export.formats=[]")


def job(folder, kind, *overrides, **more):
    """Settings of a small run under a random teacher of 3 layers, 32 wide, 4 heads."""
    settings_of = lambda: tiny_settings(folder, *FEW, *overrides)  # noqa: E731
    settings_of()  # writes the data, and a BERT whose tokenizer the teacher has
    words = tiny_tokenizer().get_vocab_size()
    sizes = {"layers": 3, "hidden": 32, "heads": 4, "ffn": 48, "labels": 2, **more}
    if kind == "ernie":
        config = ErnieConfig(
            vocab_size=words, num_hidden_layers=3, hidden_size=32, num_attention_heads=4, intermediate_size=48
        )
        model = AutoModelForSequenceClassification.from_config(config)
    else:
        model = small_model(kind, scale=0.2, vocab_size=words, **sizes)
    model.save_pretrained(folder / "teacher")
    return settings_of()


def finished(folder):
    """The student's model, as plain transformers opens it, and its report."""
    report = json.loads((folder / "run" / "report.json").read_text())
    student, info = AutoModelForSequenceClassification.from_pretrained(
        folder / "run" / "student", output_loading_info=True
    )
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    return student, report


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "more"),
    [
        ("modernbert", ()),
        ("albert", ()),
        ("deberta-v2", ()),
        ("modernbert", ("student.start=layers", "student.shape=2x32", "student.layers=every-other")),
        ("albert", ("student.start=layers", "student.shape=2x32x48x4")),
        ("ernie", ("distill.mode=logits", "student.start=random")),
        ("ernie", ("distill.weights.attention=0", "student.start=random")),
    ],
)
def test_one_command_makes_a_student(tmp_path, kind, more):
    distill(job(tmp_path, kind, "student.shape=2x16x32x4", *more))
    student, _ = finished(tmp_path)
    assert student.config.model_type == kind
    ids = torch.tensor([[5, 6, 7, 8, 0, 0], [9, 8, 7, 6, 5, 6]])
    with torch.no_grad():
        together = student(ids, attention_mask=(ids > 0).long()).logits
        alone = student(ids[:1, :4]).logits
    torch.testing.assert_close(together[:1], alone, rtol=1e-4, atol=1e-5)


def test_other_heads_than_the_teachers_are_taught_by_relations(tmp_path):
    """As under BERT-large, whose 16 heads do not divide a width of 312."""
    distill(job(tmp_path, "bert", "student.shape=2x15x30x3"))  # 3 heads
    student, report = finished(tmp_path)
    assert Shape.of(student.config) == Shape(2, 15, 30, 3)
    facts = json.loads((tmp_path / "run" / "stages" / "student" / "training.json").read_text())
    assert {"queries", "keys", "values"} <= set(str(facts).replace("'", " ").split())
    assert report


@pytest.mark.parametrize(
    ("kind", "more", "said"),
    [
        ("ernie", (), "shrunk from a model of type 'ernie'.*fix: set student.start to \"random\""),
        (
            "ernie",
            ("student.start=random",),
            "the attention loss of distill.mode = potstill.*weights.attention",
        ),
        ("mobilebert", (), "a teacher only; fix: name another small model"),
        ("modernbert", ("student.shape=2x24",), "heads 6 wide shrunk from rotary heads 8 wide.*fix: choose 2x16x36x4"),
        (
            "modernbert",
            ("student.start=layers", "student.shape=2x32", "student.layers=top"),
            "layer 0 first.*every-other",
        ),
        ("bert", ("student.shape=2x15x30x3", "distill.mode=paper"), "3 heads under a teacher with 4"),
    ],
)
def test_what_cannot_be_is_refused_before_any_work(tmp_path, kind, more, said):
    shape = () if any("shape" in word for word in more) else ("student.shape=2x16x32x4",)
    with pytest.raises(ModelError, match=said):
        distill(job(tmp_path, kind, *shape, *more))
    assert not (tmp_path / "run" / "stages").exists()
