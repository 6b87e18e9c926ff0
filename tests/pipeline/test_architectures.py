"""Whole runs under teachers of the architectures that are built unlike BERT; and what is refused before any work."""

import json

import numpy as np
import pytest
import torch
from tests.pipeline.tiny_job import tiny_settings
from tests.small_models import small_model
from tests.tiny import tiny_tokenizer
from transformers import AutoModelForSequenceClassification, ErnieConfig

from potstill.data.encoding import TextEncoder
from potstill.errors import ModelError
from potstill.models.forward import run_logits
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
        (
            "ernie",
            ("student.start=random", "distill.mode=logits", "distill.gradient_checkpointing=true"),
            "gradient_checkpointing with a model of type 'ernie'",
        ),
        ("mobilebert", (), "a teacher only; fix: name another small model"),
        ("modernbert", ("student.shape=2x24",), "heads 6 wide shrunk from rotary heads 8 wide.*fix: choose 2x16x36x4"),
        (
            "modernbert",
            ("student.start=layers", "student.shape=2x32", "student.layers=top"),
            "layer 0 first.*every-other",
        ),
        (
            "modernbert",
            ("distill.mode=reference",),
            "reference with local attention: its .* choose distill.mode = paper",
        ),
        ("bert", ("student.shape=2x15x30x3", "distill.mode=paper"), "3 heads under a teacher with 4"),
    ],
)
def test_what_cannot_be_is_refused_before_any_work(tmp_path, kind, more, said):
    shape = () if any("shape" in word for word in more) else ("student.shape=2x16x32x4",)
    with pytest.raises(ModelError, match=said):
        distill(job(tmp_path, kind, *shape, *more))
    assert not (tmp_path / "run" / "stages").exists()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_teacher_of_berts_large_shape(tmp_path):
    """24x1024 with 16 heads, at random, as it is; its own answers are the labels. The student has 12 heads.

    Without the assistants of 12 and 6 layers that it would have: they are tested on smaller teachers.
    """
    names = ("train", "dev", "test")
    tiny_settings(tmp_path)  # writes the data, and a BERT whose tokenizer the teacher has
    words = tiny_tokenizer().get_vocab_size()
    sizes = {"layers": 24, "hidden": 1024, "heads": 16, "ffn": 4096, "labels": 2}
    model = small_model("bert", scale=0.03, vocab_size=words, **sizes)
    encoder = TextEncoder.from_folder(tmp_path / "teacher", max_length=32)
    lines = {name: (tmp_path / f"{name}.tsv").read_text().splitlines() for name in names}
    texts = {name: [line.split("\t")[0] for line in lines[name][1:]] for name in names}
    logits = {name: run_logits(model, encoder.encode(texts[name])) for name in names}
    gaps = {name: logits[name][:, 1] - logits[name][:, 0] for name in names}
    middle = float(np.median(gaps["train"]))
    assert float(gaps["train"].std()) > 1e-3
    with torch.no_grad():
        model.classifier.bias[1] -= middle
    for name in names:
        rows = [f"{text}\tLABEL_{int(gap > middle)}" for text, gap in zip(texts[name], gaps[name], strict=True)]
        (tmp_path / f"{name}.tsv").write_text("\n".join(["text\tlabel", *rows]) + "\n")
    model.save_pretrained(tmp_path / "teacher")
    own = ("teacher.trained=true", "student.shape=4x312", "distill.epochs=8", "distill.learning_rate=3e-4")
    own += ("student.assistants=none",)
    distill(tiny_settings(tmp_path, *FEW, *own))
    student, report = finished(tmp_path)
    assert str(Shape.of(student.config)) == "4x312x1200x12"
    assert report["teacher"]["shape"] == "24x1024x4096x16"
    assert report["teacher"]["score"]["value"] == pytest.approx(1.0)
    (stage,) = [stage for stage in report["recipe"]["stages"] if stage["name"] == "student"]
    learned = {term["name"] for term in stage["terms"]}
    assert learned >= {"queries", "keys", "values", "hidden", "logits"}
    curve = report["curves"]["student"]
    # Labels that a random network gives are not to be learned from 240 texts; its states are.
    for name in ("queries", "keys", "values", "hidden"):
        assert curve[-1]["terms"][name] < 0.9 * curve[0]["terms"][name], name
