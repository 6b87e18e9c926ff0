"""Shrinking: what can be cut without loss is cut without loss; what cannot stays near the teacher."""

import copy
import math

import numpy as np
import pytest
import torch
from tests.small_models import STUDENTS, random_encodings, small_model

from potstill.errors import ModelError
from potstill.models.anatomy import encoder_parts
from potstill.models.forward import forward_inputs
from potstill.models.shrink import shrink
from potstill.models.student import Shape, random_student

KINDS = sorted(STUDENTS)


def structured(kind, **shape):
    """A teacher whose words lie near a space of eight dimensions, as those of trained models lie near few."""
    teacher = small_model(kind, scale=0.2, **shape)
    generator = torch.Generator().manual_seed(7)
    word = encoder_parts(teacher).word.weight
    with torch.no_grad():
        axes = torch.randn(8, word.shape[1], generator=generator)
        word.copy_(torch.randn(len(word), 8, generator=generator) @ axes / 3 + 0.1 * word)
    return teacher


def texts(model, kind="bert", *, seed=0, each=40, lengths=(6, 9, 13)):
    """Calibration batches, each of one length."""
    return [
        forward_inputs(model, random_encodings([length] * each, kind=kind, seed=seed + length).batch(np.arange(each)))
        for length in lengths
    ]


def logits(model, batches):
    with torch.no_grad():
        return torch.cat([model(**batch).logits for batch in batches])


def correlation(ours, theirs):
    return float(torch.corrcoef(torch.stack([(ours - ours.mean(0)).ravel(), (theirs - theirs.mean(0)).ravel()]))[0, 1])


@pytest.mark.parametrize("kind", KINDS)
def test_the_teachers_own_shape_is_the_teacher(kind):
    teacher = small_model(kind, layers=3)
    shape = Shape.of(teacher.config)
    unseen = texts(teacher, kind, seed=100)
    for refit, tolerance in ((False, 1e-3), (True, 1e-2)):
        made = shrink(teacher, shape, (1, 2, 3), texts(teacher, kind), refit=refit)
        assert made.variance == 1.0
        assert torch.equal(made.basis, torch.eye(24))
        assert float((logits(made.model, unseen) - logits(teacher, unseen)).abs().max()) < tolerance
        assert made.model.config.model_type == kind
        assert not made.model.training


@pytest.mark.parametrize("kind", KINDS)
def test_states_in_bfloat16_are_near_enough(kind):
    teacher = structured(kind, layers=3)
    held = copy.deepcopy(teacher).to(dtype=torch.bfloat16)
    made = shrink(held, Shape.of(teacher.config), (1, 2, 3), texts(teacher, kind))
    unseen = texts(teacher, kind, seed=100)
    assert correlation(logits(made.model, unseen), logits(teacher, unseen)) > 0.99
    assert {parameter.dtype for parameter in made.model.parameters()} == {torch.float32}


def test_the_basis_is_orthonormal_and_carries_ones_to_ones():
    teacher = small_model(layers=3, hidden=24)
    for width in (4, 12, 20, 23):
        basis = shrink(teacher, Shape(1, width, 8, 4 if width % 4 == 0 else 1), (3,), texts(teacher)).basis
        assert basis.shape == (24, width)
        assert basis.dtype == torch.float32
        torch.testing.assert_close(basis.T @ basis, torch.eye(width), atol=1e-5, rtol=0)
        ones = torch.ones(24) / math.sqrt(24)
        torch.testing.assert_close(basis.T @ ones, torch.ones(width) / math.sqrt(width), atol=1e-5, rtol=0)


def test_no_other_basis_that_keeps_ones_carries_more():
    teacher = small_model(layers=2)
    batches = texts(teacher)
    made = shrink(teacher, Shape(2, 12, 20, 4), (1, 2), batches)
    with torch.no_grad():
        outputs = [teacher(**batch, output_hidden_states=True).hidden_states for batch in batches]
    places = [torch.cat([output[index].flatten(0, 1) for output in outputs]) for index in (0, 1, 2)]
    assert 0.5 < made.variance < 1.0
    centred = [place - place.mean(dim=1, keepdim=True) for place in places]
    share = [float((state @ made.basis).square().sum() / state.square().sum()) for state in centred]
    assert np.mean(share) == pytest.approx(made.variance, abs=0.05)  # it pools the states between the norms as well
    generator = torch.Generator().manual_seed(0)
    ones = torch.ones(24, 1) / math.sqrt(24)
    for _ in range(20):
        other = torch.linalg.qr(torch.cat([ones, torch.randn(24, 11, generator=generator)], dim=1)).Q
        others = [float((state @ other).square().sum() / state.square().sum()) for state in centred]
        assert np.mean(others) < np.mean(share)


@pytest.mark.parametrize("kind", KINDS)
def test_heads_that_write_nothing_are_cut_without_loss(kind):
    """Two of four heads are dead: a student with two is the teacher (in MPNet with its own heads' relative biases)."""
    teacher = small_model(kind, layers=2, hidden=24, heads=4)
    with torch.no_grad():
        for layer in encoder_parts(teacher).layers:
            for head in (0, 2):
                layer.output.weight[:, head * 6 : head * 6 + 6] = 0.0
    made = shrink(teacher, Shape(2, 24, 40, 2), (1, 2), texts(teacher, kind), refit=False)
    unseen = texts(teacher, kind, seed=100)
    assert float((logits(made.model, unseen) - logits(teacher, unseen)).abs().max()) < 1e-3
    if kind == "mpnet":
        own, theirs = encoder_parts(made.model).relative_bias, encoder_parts(teacher).relative_bias
        assert torch.equal(own.weight, theirs.weight[:, [1, 3]])


def test_mpnet_keeps_the_same_heads_in_every_layer():
    """One table of relative biases serves all layers: a head cut in one layer only would meet another head's bias."""
    teacher = small_model("mpnet", layers=2, hidden=24, heads=4)
    with torch.no_grad():
        first, second = encoder_parts(teacher).layers
        first.output.weight[:, :12] *= 0.3  # layer 1 alone would keep heads 2 and 3, layer 2 heads 0 and 1
        second.output.weight[:, 12:] *= 0.01
    made = shrink(teacher, Shape(2, 24, 40, 2), (1, 2), texts(teacher, "mpnet"), refit=False)
    table, whole = (encoder_parts(model).relative_bias.weight for model in (made.model, teacher))
    columns = [[head for head in range(4) if torch.equal(table[:, place], whole[:, head])] for place in (0, 1)]
    heads = [column[0] for column in columns]
    assert all(len(column) == 1 for column in columns)
    # Each layer's scores are those of the kept heads: q·k of the student's head is q·k of the teacher's, on any input.
    hidden = torch.randn(3, 7, 24, generator=torch.Generator().manual_seed(1))
    for own, theirs in zip(encoder_parts(made.model).layers, encoder_parts(teacher).layers, strict=True):
        scores = []
        for parts, count in ((theirs, 4), (own, 2)):
            with torch.no_grad():
                q, k = (part(hidden).unflatten(-1, (count, -1)).transpose(1, 2) for part in (parts.query, parts.key))
            scores.append(q @ k.mT / math.sqrt(24 / count))
        torch.testing.assert_close(scores[1], scores[0][:, heads], rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("kind", KINDS)
def test_neurons_that_are_constant_or_write_nothing_are_cut_without_loss(kind):
    teacher = small_model(kind, layers=2, ffn=40)
    with torch.no_grad():
        for layer in encoder_parts(teacher).layers:
            layer.ffn_out.weight[:, :10] = 0.0
            if layer.ffn_in.bias is None:  # ModernBERT: nothing is constant but what is nothing
                layer.ffn_in.weight[70:] = 0.0
                continue
            layer.ffn_in.weight[30:] = 0.0
            layer.ffn_in.bias[30:] = 1.0
    made = shrink(teacher, Shape(2, 24, 20, 4), (1, 2), texts(teacher, kind), refit=False)
    unseen = texts(teacher, kind, seed=100)
    assert float((logits(made.model, unseen) - logits(teacher, unseen)).abs().max()) < 1e-3


def lifted(student, width, heads_width):
    """A wider teacher that computes exactly what `student` does: hidden states c·h·Pᵀ, P of orthonormal columns.

    P carries ones to ones, and the norms have gain 1 and offset 0, so LayerNorm commutes with it up to c = √(H_t/H_s).
    A layer that changes nothing stands between the two.
    """
    small, heads = student.config.hidden_size, student.config.num_attention_heads
    generator = torch.Generator().manual_seed(1)

    def frame(size):
        ones = torch.ones(size, 1)
        return torch.linalg.qr(torch.cat([ones, torch.randn(size, size - 1, generator=generator)], dim=1)).Q

    wide, narrow = frame(width), frame(small)
    wide[:, 0], narrow[:, 0] = wide[:, 0].abs(), narrow[:, 0].abs()
    lift = wide[:, :small] @ narrow.T
    ratio = math.sqrt(width / small)
    teacher = small_model(layers=3, hidden=width, heads=heads, ffn=student.config.intermediate_size, labels=3)
    own, theirs = encoder_parts(student), encoder_parts(teacher)
    old = small // heads
    with torch.no_grad():
        for parts in (own, theirs):
            norms = [norm for layer in parts.layers for norm in (layer.attention_norm, layer.ffn_norm)]
            for norm in (parts.embedding_norm, *norms):
                norm.weight.fill_(1.0)
                norm.bias.zero_()
        for name in ("word", "position", "token_type"):
            getattr(theirs, name).weight.copy_(getattr(own, name).weight @ lift.T)
        for linear in (theirs.layers[1].output, theirs.layers[1].ffn_out):
            linear.weight.zero_()
            linear.bias.zero_()
        for mine, other in zip(own.layers, (theirs.layers[0], theirs.layers[2]), strict=True):
            for name in ("query", "key", "value"):
                ours, wider = getattr(mine, name), getattr(other, name)
                wider.weight.zero_()
                wider.bias.zero_()
                factor = (
                    1.0 if name == "value" else (heads_width / old) ** 0.25
                )  # scores divide by the root of the width
                rows = (factor * ours.weight @ lift.T / ratio).unflatten(0, (heads, old))
                wider.weight.unflatten(0, (heads, heads_width))[:, :old] = rows
                wider.bias.unflatten(0, (heads, heads_width))[:, :old] = factor * ours.bias.unflatten(0, (heads, old))
            columns = (ratio * lift @ mine.output.weight).unflatten(1, (heads, old))
            other.output.weight.unflatten(1, (heads, heads_width))[:, :, :old] = columns
            other.output.bias.copy_(ratio * lift @ mine.output.bias)
            other.ffn_in.weight.copy_(mine.ffn_in.weight @ lift.T / ratio)
            other.ffn_in.bias.copy_(mine.ffn_in.bias)
            other.ffn_out.weight.copy_(ratio * lift @ mine.ffn_out.weight)
            other.ffn_out.bias.copy_(ratio * lift @ mine.ffn_out.bias)
        inner, outer = teacher.bert.pooler.dense, teacher.classifier
        for part in (inner, outer):
            part.weight.zero_()
            part.bias.zero_()
        inner.weight[:small] = student.bert.pooler.dense.weight @ lift.T / ratio
        inner.bias[:small] = student.bert.pooler.dense.bias
        outer.weight[:, :small] = student.classifier.weight
        outer.bias.copy_(student.classifier.bias)
    return teacher, lift


@pytest.mark.parametrize("refit", [False, True])
def test_a_teacher_that_is_a_small_model_in_disguise_is_undone(refit):
    """Width, depth, head width and head cut at once, without loss: the whole construction in one."""
    hidden = small_model(layers=2, hidden=16, heads=4, ffn=24)
    teacher, lift = lifted(hidden, 24, 6)
    unseen = texts(teacher, seed=100)
    torch.testing.assert_close(logits(teacher, unseen), logits(hidden, unseen), rtol=1e-3, atol=1e-4)
    made = shrink(teacher, Shape(2, 16, 24, 4), (1, 3), texts(teacher), refit=refit)
    assert made.variance == pytest.approx(1.0, abs=1e-5)
    # The same space: P·Pᵀ is the same projection.
    torch.testing.assert_close(made.basis @ made.basis.T, lift @ lift.T, atol=1e-4, rtol=0)
    torch.testing.assert_close(logits(made.model, unseen), logits(teacher, unseen), rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("kind", KINDS)
def test_a_really_smaller_student_is_near_its_teacher_as_no_random_one_is(kind):
    teacher = structured(kind, layers=3, hidden=32 if kind == "modernbert" else 24, ffn=40)  # heads 8 wide become 4
    shape = Shape(2, 16, 28, 4)
    batches, unseen = texts(teacher, kind, each=150), texts(teacher, kind, seed=100, each=100)
    wanted = logits(teacher, unseen)
    made = shrink(teacher, shape, (1, 3), batches)
    assert Shape.of(made.model.config) == shape
    near = correlation(logits(made.model, unseen), wanted)
    far = [abs(correlation(logits(random_student(teacher.config, shape, seed=s), unseen), wanted)) for s in range(4)]
    assert near > (0.45 if kind == "modernbert" else 0.6)  # half the rotary pairs are gone, and random ones weigh alike
    assert max(far) < 0.35


def test_refitting_helps():
    teacher = structured("bert", layers=4, hidden=24, ffn=40)
    batches, unseen = texts(teacher, each=200), texts(teacher, seed=100, each=100)
    with torch.no_grad():
        wanted = torch.cat([teacher.bert(**batch).last_hidden_state.flatten(0, 1) for batch in unseen])
    errors = {}
    for refit in (False, True):
        made = shrink(teacher, Shape(2, 16, 28, 4), (2, 4), batches, refit=refit)
        with torch.no_grad():
            got = torch.cat([made.model.bert(**batch).last_hidden_state.flatten(0, 1) for batch in unseen])
        errors[refit] = float((got - wanted @ made.basis).square().mean())
    assert errors[True] < 0.75 * errors[False]


@pytest.mark.parametrize("width", [24, 16])
def test_electra_with_narrow_embeddings(width):
    teacher = small_model("electra", layers=2, hidden=24, embedding_size=10)
    batches, unseen = texts(teacher, "electra", each=100), texts(teacher, "electra", seed=100)
    made = shrink(teacher, Shape(2, width, 40, 4), (1, 2), batches)
    wanted, got = logits(teacher, unseen), logits(made.model, unseen)
    if width == 24:
        assert made.model.config.embedding_size == 10
        torch.testing.assert_close(got, wanted, rtol=1e-2, atol=1e-2)
    else:
        assert made.model.config.embedding_size == 16
        assert correlation(got, wanted) > 0.5


@pytest.mark.parametrize("kind", ["bert", "mpnet"])
def test_the_teacher_is_left_as_it_was_and_the_result_is_reproducible(kind):
    teacher = small_model(kind, layers=3).to(torch.bfloat16)
    before = {name: value.clone() for name, value in teacher.state_dict().items()}
    torch.manual_seed(4)
    state = torch.get_rng_state()
    shown = []

    class Report:
        def progress(self, done, total, **_):
            shown.append((done, total))

    batches = texts(teacher, kind)
    made = shrink(teacher, Shape(2, 12, 20, 2), (1, 3), batches, report=Report())
    assert torch.equal(torch.get_rng_state(), state)
    again = shrink(teacher, Shape(2, 12, 20, 2), (1, 3), batches)
    assert all(torch.equal(value, again.model.state_dict()[name]) for name, value in made.model.state_dict().items())
    assert {value.dtype for value in made.model.parameters()} == {torch.float32}
    assert all(torch.isfinite(value).all() for value in made.model.parameters())
    assert all(torch.equal(value, before[name]) for name, value in teacher.state_dict().items())
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in teacher.modules())
    assert not teacher.training
    assert shown[-1] == (3, 3)
    assert [done for done, _ in shown] == sorted(done for done, _ in shown)


@pytest.mark.parametrize("shape", [(4, 24, 40, 4), (3, 28, 40, 4), (3, 24, 41, 4), (3, 24, 40, 6)])
def test_a_larger_student_is_refused(shape):
    teacher = small_model(layers=3)
    with pytest.raises(ModelError, match="expected no dimension larger"):
        shrink(teacher, Shape(*shape), tuple(range(1, shape[0] + 1)), texts(teacher))


@pytest.mark.parametrize("layers", [(1,), (1, 2, 3), (0, 1), (1, 4), (-1, 2)])
def test_layers_that_do_not_fit_the_shape_are_refused(layers):
    teacher = small_model(layers=3)
    with pytest.raises(ModelError, match="expected 2 numbers from 1 to 3"):
        shrink(teacher, Shape(2, 24, 40, 4), layers, texts(teacher))


@pytest.mark.parametrize(
    "more",
    [{"share_att_key": False}, {"share_att_key": False, "norm_rel_ebd": "none", "pos_att_type": ["c2p"]}],
    ids=["own-projections", "c2p"],
)
def test_debertas_positions_are_cut_with_its_content(more):
    """Two of four heads are dead: with two, and their positions, the student is the teacher."""
    teacher = small_model("deberta-v2", layers=2, **more)
    with torch.no_grad():
        for layer in encoder_parts(teacher).layers:
            layer.output.weight[:, :12] = 0.0
    made = shrink(teacher, Shape(2, 24, 40, 2), (1, 2), texts(teacher, "deberta-v2"), refit=False)
    unseen = texts(teacher, "deberta-v2", seed=100)
    assert float((logits(made.model, unseen) - logits(teacher, unseen)).abs().max()) < 1e-3


def test_rotary_heads_keep_the_pairs_that_turn_alike():
    """Pairs that a student of half the head width lacks are dead in the teacher: nothing is lost but the scale's."""
    teacher = small_model("modernbert", layers=3, hidden=32, heads=4)
    with torch.no_grad():
        for layer in encoder_parts(teacher).layers:
            for part in (layer.query, layer.key):
                part.weight.unflatten(0, (4, 2, 4))[:, :, 1::2] = 0.0  # pairs 1 and 3 of four
            layer.output.weight.unflatten(1, (4, 8))[:, :, 4:] = 0.0  # values of half the width
            layer.output.weight[16:] = 0.0
    heads = encoder_parts(teacher).layers[1]
    other = copy.deepcopy(teacher)
    made = shrink(teacher, Shape(3, 16, 40, 4), (1, 2, 3), texts(teacher, "modernbert"), refit=False)
    own = encoder_parts(made.model).layers[1]
    hidden = torch.randn(50, 16, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        q, k = (hidden @ part.weight.T for part in (own.query, own.key))
        # The same weights, read in the basis; 8 wide heads of which half is nothing.
        wide = math.sqrt(32 / 16) * (hidden - hidden.mean(dim=1, keepdim=True)) @ made.basis.T
        q_t, k_t = (wide @ (part.weight * heads.attention_norm.weight).T for part in (heads.query, heads.key))
    kept = [0, 2, 4, 6]
    for head in range(4):
        ours = q[:, head * 4 : head * 4 + 4] @ k[:, head * 4 : head * 4 + 4].T * 4**-0.5
        columns = [head * 8 + place for place in kept]
        torch.testing.assert_close(ours, q_t[:, columns] @ k_t[:, columns].T * 8**-0.5, rtol=1e-3, atol=1e-3)
    frequencies = [model.model.rotary_emb.sliding_attention_inv_freq for model in (made.model, other)]
    torch.testing.assert_close(frequencies[0], frequencies[1][::2])
