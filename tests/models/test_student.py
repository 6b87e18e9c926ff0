"""Shapes, and students from chosen layers or at random."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.small_models import STUDENTS, random_encodings, small_config, small_model
from transformers import AutoModelForSequenceClassification, BertConfig, ErnieConfig, ModernBertConfig

from potstill.errors import ModelError
from potstill.models.anatomy import ANATOMIES, encoder_parts
from potstill.models.forward import forward_inputs
from potstill.models.student import Shape, check_start, layers_student, random_student, student_config

KINDS = sorted(STUDENTS)


@pytest.mark.parametrize(
    ("text", "heads", "wanted"),
    [
        ("4x312", 12, (4, 312, 1200, 12)),  # TinyBERT4
        ("6x768", 12, (6, 768, 3072, 12)),  # TinyBERT6
        ("4x312x1200x12", 12, (4, 312, 1200, 12)),
        (" 2X128 ", 12, (2, 128, 512, 8)),
        ("4x312", 16, (4, 312, 1200, 12)),  # BERT-large above it
        ("4x312", 13, (4, 312, 1200, 13)),
        ("3x384x768", 12, (3, 384, 768, 12)),
        ("1x7", 12, (1, 7, 28, 7)),
        ("1x13", 12, (1, 13, 52, 1)),
        ("12x768x3072x6", 12, (12, 768, 3072, 6)),
    ],
)
def test_shape_words(text, heads, wanted):
    shape = Shape.parse(text, teacher_heads=heads)
    assert (shape.layers, shape.hidden, shape.ffn, shape.heads) == wanted
    assert Shape.parse(str(shape)) == shape


@given(st.integers(1, 48), st.integers(1, 2048), st.integers(1, 24))
def test_heads_divide_the_width_and_are_the_teachers_where_that_divides(layers, hidden, heads):
    shape = Shape.parse(f"{layers}x{hidden}", teacher_heads=heads)
    assert hidden % shape.heads == 0
    assert shape.heads <= heads
    larger = [count for count in range(shape.heads + 1, heads + 1) if hidden % count == 0]
    assert not larger or (hidden == 312 and shape.heads == 12 and heads not in larger)  # as published


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "LxH or LxHxFFNxHEADS"),
        ("4", "LxH"),
        ("4x", "LxH"),
        ("4x312x", "LxH"),
        ("4x312x1200x12x1", "LxH"),
        ("4*312", "LxH"),
        ("4x312.5", "LxH"),
        ("-4x312", "LxH"),
        ("4 x 312", "LxH"),
        ("tiny", "LxH"),
        ("0x312", "above zero"),
        ("4x0", "above zero"),
        ("4x312x0", "above zero"),
        ("4x312x1200x0", "above zero"),
        ("4x312x1200x7", r"312 is not divisible by 7 heads; fix: choose heads from \[1, 2, 3, 4, 6, 8, 12, 13"),
    ],
)
def test_words_that_are_no_shapes(text, said):
    with pytest.raises(ModelError, match=said) as caught:
        Shape.parse(text)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("shape", "parameters"),
    # 14.35 M and 66.96 M are the paper's; by hand: embeddings (30,522 + 512 + 2)·H + 2H, layers, pooler H² + H.
    [("4x312", 14_350_248), ("6x768", 66_955_008), ("12x768", 109_482_240)],
)
def test_published_sizes(shape, parameters):
    config = student_config(BertConfig(), Shape.parse(shape))
    with torch.device("meta"):
        model = AutoModelForSequenceClassification.from_config(config)
    assert sum(parameter.numel() for parameter in model.base_model.parameters()) == parameters


@pytest.mark.parametrize("kind", KINDS)
def test_a_students_config_is_its_teachers_at_another_size(kind):
    teacher = small_config(kind, layers=4, hidden=24, heads=4, ffn=40)
    before = teacher.to_dict()
    student = student_config(teacher, Shape(2, 12, 16, 3))
    assert Shape.of(student) == Shape(2, 12, 16, 3)
    assert Shape.of(teacher) == Shape(4, 24, 40, 4)
    assert teacher.to_dict() == before
    sizes = {
        "num_hidden_layers",
        "hidden_size",
        "intermediate_size",
        "num_attention_heads",
        "embedding_size",
        "n_layers",
        "dim",
        "hidden_dim",
        "n_heads",
        "layer_types",
        "pooler_hidden_size",
    }
    assert {n: v for n, v in student.to_dict().items() if n not in sizes} == {
        n: v for n, v in before.items() if n not in sizes
    }


@pytest.mark.parametrize("kind", KINDS)
def test_random_students_are_reproducible_and_disturb_nothing(kind):
    teacher, shape = small_config(kind), Shape(2, 16, 24, 4)
    torch.manual_seed(5)
    before = torch.get_rng_state()
    first = random_student(teacher, shape, seed=1)
    assert torch.equal(torch.get_rng_state(), before)
    torch.rand(7)
    again, other = random_student(teacher, shape, seed=1), random_student(teacher, shape, seed=2)
    own, same, different = (torch.cat([p.ravel() for p in m.parameters()]) for m in (first, again, other))
    assert torch.equal(own, same)
    assert not torch.equal(own, different)
    assert not first.training
    assert Shape.of(first.config) == shape


def test_random_students_are_drawn_from_a_normal_of_002_and_held_in_float32():
    teacher = small_config()
    teacher.dtype = torch.bfloat16  # as of a teacher that was loaded so
    student = random_student(teacher, Shape(2, 64, 256, 4), seed=0)
    assert {parameter.dtype for parameter in student.parameters()} == {torch.float32}
    weight = encoder_parts(student).layers[0].ffn_in.weight
    assert float(weight.detach().std()) == pytest.approx(0.02, rel=0.05)
    assert float(weight.detach().mean()) == pytest.approx(0.0, abs=0.001)


def logits(model, kind, seed=0):
    batch = random_encodings((8, 5, 3), kind=kind, seed=seed).batch(np.arange(3))
    with torch.no_grad():
        return model(**forward_inputs(model, batch)).logits


@pytest.mark.parametrize("kind", KINDS)
def test_all_layers_are_the_teacher_itself(kind):
    teacher = small_model(kind, layers=3)
    student = layers_student(teacher, (1, 2, 3))
    assert torch.equal(logits(student, kind), logits(teacher, kind))
    assert not student.training


def test_all_layers_of_an_electra_with_narrow_embeddings():
    teacher = small_model("electra", embedding_size=10)
    assert torch.equal(logits(layers_student(teacher, (1, 2)), "electra"), logits(teacher, "electra"))


@pytest.mark.parametrize("kind", KINDS)
def test_chosen_layers_stand_in_their_order_and_the_rest_is_the_teachers(kind):
    more = {"num_hidden_groups": 5} if kind == "albert" else {}
    teacher = small_model(kind, layers=5, **more)
    chosen = (1, 5, 3) if kind == "modernbert" else (2, 5, 2)  # ModernBERT's first layer has no norm before it
    student = layers_student(teacher, chosen)
    own, theirs = encoder_parts(student), encoder_parts(teacher)
    assert student.config.num_hidden_layers == 3
    for layer, number in zip(own.layers, chosen, strict=True):
        wanted = theirs.layers[number - 1].layer.state_dict()
        assert all(torch.equal(value, wanted[name]) for name, value in layer.layer.state_dict().items())
        assert layer.window == theirs.layers[number - 1].window
    # By running the teacher with its layers rearranged.
    stack = teacher.base_model.get_submodule(ANATOMIES[kind].layers)
    rearranged = torch.nn.ModuleList([stack[number - 1] for number in chosen])
    parent, _, name = ANATOMIES[kind].layers.rpartition(".")
    setattr(teacher.base_model.get_submodule(parent), name, rearranged)
    if kind == "albert":
        teacher.config.num_hidden_layers = teacher.config.num_hidden_groups = 3
    torch.testing.assert_close(logits(student, kind), logits(teacher, kind))


@pytest.mark.parametrize(
    ("groups", "chosen", "wanted"),
    [(1, (2, 4, 6), 1), (2, (1, 6), 2), (2, (1, 2, 3), 1), (3, (2, 4, 6), 3), (2, (1, 5, 6), 3), (2, (1, 2, 4, 6), 2)],
)
def test_an_alberts_layers_share_what_they_shared(groups, chosen, wanted):
    """(1, 5, 6) of two groups: transformers would give the second layer the first group's weights."""
    teacher = small_model("albert", layers=6, num_hidden_groups=groups)
    student = layers_student(teacher, chosen)
    assert student.config.num_hidden_groups == wanted
    shown = []
    for layer in {part.layer for part in encoder_parts(teacher).layers}:
        layer.register_forward_pre_hook(lambda module, _: shown.append(module))
    logits(teacher, "albert")
    for own, number in zip(encoder_parts(student).layers, chosen, strict=True):
        theirs = shown[number - 1].state_dict()
        assert all(torch.equal(value, theirs[name]) for name, value in own.layer.state_dict().items())


def test_a_modernberts_layers_stay_local_or_global():
    teacher = small_config("modernbert", layers=7)
    kinds = ["full" if layer % 3 == 0 else "sliding" for layer in range(7)]
    assert [kind.removesuffix("_attention") for kind in teacher.layer_types] == kinds
    student = student_config(teacher, Shape(3, 24, 40, 4), (1, 3, 7))
    assert student.layer_types == ["full_attention", "sliding_attention", "full_attention"]
    evenly = student_config(teacher, Shape(3, 24, 40, 4))  # layers 2, 4 and 7, which then teach
    assert evenly.layer_types == ["sliding_attention", "full_attention", "full_attention"]
    assert len(student_config(teacher, Shape(9, 24, 40, 4)).layer_types) == 9


@pytest.mark.parametrize(
    ("kind", "shape", "way", "layers", "said"),
    [
        ("mobilebert", (1, 24, 40, 4), "random", (2,), "a teacher only; fix: name another small model"),
        ("mobilebert", (1, 24, 40, 4), "shrunk", (2,), "a teacher only"),
        ("mobilebert", (2, 24, 40, 4), "layers", (1, 2), "a teacher only"),
        ("modernbert", (1, 24, 40, 4), "layers", (2,), "layer 0 first.*every-other"),
        ("modernbert", (2, 24, 40, 4), "layers", (1, 1), "layer 0 first"),
        ("modernbert", (2, 16, 40, 4), "shrunk", (1, 2), "heads 4 wide shrunk from rotary heads 6 wide.*2x8x40x4"),
        ("modernbert", (2, 12, 40, 4), "shrunk", (1, 2), "heads 3 wide.*expected an even width.*such as 2x16"),
        ("modernbert", (2, 12, 40, 4), "random", (1, 2), "expected an even width"),
        ("deberta-v2", (2, 12, 40, 4), "shrunk", (1, 2), 'with a convolution; fix: set student.start to "layers"'),
        ("deberta-v2", (1, 24, 40, 4), "layers", (2,), "layer 0 first"),
        ("ernie", (1, 24, 40, 4), "shrunk", (2,), 'whose parts are not known.*fix: set student.start to "random"'),
        ("ernie", (1, 24, 40, 4), "layers", (2,), "whose parts are not known"),
    ],
)
def test_starts_that_cannot_be_are_refused_with_the_way_out(kind, shape, way, layers, said):
    teacher = ErnieConfig(num_hidden_layers=2) if kind == "ernie" else small_config(kind)
    if kind == "deberta-v2":
        teacher.conv_kernel_size = 3
    with pytest.raises(ModelError, match=said):
        check_start(teacher, Shape(*shape), way, layers)


def test_a_gated_ffn_is_as_wide_in_proportion_as_the_teachers():
    assert Shape.under("4x384", ModernBertConfig()) == Shape(4, 384, 576, 12)
    assert Shape.under("4x384x768", ModernBertConfig()) == Shape(4, 384, 768, 12)
    assert Shape.under("4x312", BertConfig()) == Shape(4, 312, 1200, 12)


def test_the_student_shares_no_weight_with_its_teacher():
    teacher = small_model()
    student = layers_student(teacher, (1, 2))
    with torch.no_grad():
        for parameter in student.parameters():
            parameter.zero_()
    assert all(float(parameter.detach().abs().sum()) > 0 for parameter in teacher.parameters())


@pytest.mark.parametrize("layers", [(), (0,), (1, 4), (-1,)])
def test_layers_that_the_teacher_does_not_have(layers):
    with pytest.raises(ModelError, match="expected numbers from 1 to 3, one or more"):
        layers_student(small_model(layers=3), layers)
