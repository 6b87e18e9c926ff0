"""What is read out of a running encoder is what `transformers` itself computes, in every architecture."""

import numpy as np
import pytest
import torch
from tests.small_models import CONFIGS, random_encodings, small_model
from transformers import (
    AutoModelForSequenceClassification,
    Data2VecTextConfig,
    ErnieConfig,
    RobertaPreLayerNormConfig,
)

from potstill.errors import ModelError
from potstill.models.anatomy import ANATOMIES, encoder_parts
from potstill.models.forward import forward_inputs
from potstill.models.precision import choose_attention
from potstill.models.tap import tap

KINDS = sorted(ANATOMIES)
WINDOWS = np.arange(3)


def inputs_of(model, kind):
    return forward_inputs(model, random_encodings((9, 4, 6), kind=kind).batch(WINDOWS))


def test_every_architecture_has_a_small_model():
    assert set(CONFIGS) == set(ANATOMIES)


@pytest.mark.parametrize("kernel", ["eager", "sdpa"])
@pytest.mark.parametrize("kind", KINDS)
def test_hidden_states_are_transformers_own(kind, kernel):
    model = small_model(kind, layers=3)
    choose_attention(model, 9, backward=kernel == "eager")
    states = tap(model, [0, 1, 2, 3], ["hidden"])
    with torch.no_grad():
        output = model(**inputs_of(model, kind), output_hidden_states=True)
    assert len(output.hidden_states) == 4
    for index, wanted in enumerate(output.hidden_states):
        assert torch.equal(states.hidden[index], wanted)
    assert not states.q
    assert not states.k


@pytest.mark.parametrize("kind", KINDS)
def test_queries_and_keys_give_transformers_own_attention(kind):
    model = small_model(kind, layers=3, heads=4)
    inputs = inputs_of(model, kind)
    states = tap(model, [1, 2, 3], ["q", "k", "v", "bias"])
    with torch.no_grad():
        output = model(**inputs, output_attentions=True)
    width = 3 if kind == "mobilebert" else 6  # within its bottleneck
    assert states.scale == pytest.approx((width * (3 if kind == "deberta-v2" else 1)) ** -0.5)
    assert states.biased == (kind in ("mpnet", "deberta-v2"))
    assert set(states.bias) == ({1, 2, 3} if states.biased else set())
    assert torch.equal(states.mask, inputs["attention_mask"])
    far = (torch.arange(9)[:, None] - torch.arange(9)).abs()
    real = (inputs["attention_mask"] == 1)[:, None, :, None]
    for index in (1, 2, 3):
        assert states.q[index].shape == states.k[index].shape == states.v[index].shape == (3, 4, 9, width)
        scores = states.q[index] @ states.k[index].mT * states.scale + states.bias.get(index, 0.0)
        gone = (inputs["attention_mask"] == 0)[:, None, None, :]
        if states.windows[index] is not None:
            gone = gone | (far > states.windows[index])
        probabilities = torch.softmax(scores.masked_fill(gone, float("-inf")), dim=-1)
        kept = real.expand_as(probabilities)  # what padding attends to is nobody's business
        torch.testing.assert_close(output.attentions[index - 1][kept], probabilities[kept], rtol=1e-4, atol=1e-6)
    assert [states.windows[index] for index in (1, 2, 3)] == ([None, 3, 3] if kind == "modernbert" else [None] * 3)


def test_mpnets_relative_bias_matters():
    """The check above would not hold without it: the raw q·k that the attention loss compares leaves it out."""
    model = small_model("mpnet")
    states = tap(model, [1], ["q", "k"])
    inputs = inputs_of(model, "mpnet")
    with torch.no_grad():
        wanted = model(**inputs, output_attentions=True).attentions[0]
    gone = (inputs["attention_mask"] == 0)[:, None, None, :]
    scores = (states.q[1] @ states.k[1].mT * states.scale).masked_fill(gone, float("-inf"))
    assert float((torch.softmax(scores, dim=-1) - wanted).abs().max()) > 0.05


def test_values_are_what_attention_mixes():
    model = small_model("bert")
    states = tap(model, [1], ["v"])
    parts = encoder_parts(model)
    seen = []
    parts.layers[0].output.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    with torch.no_grad():
        output = model(**inputs_of(model, "bert"), output_attentions=True)
    mixed = (output.attentions[0] @ states.v[1]).transpose(1, 2).flatten(2)
    torch.testing.assert_close(seen[0], mixed, rtol=1e-5, atol=1e-6)


def test_electras_narrow_embeddings_are_seen_after_they_are_widened():
    model = small_model("electra", embedding_size=10)
    states = tap(model, [0], ["hidden"])
    with torch.no_grad():
        output = model(**inputs_of(model, "electra"), output_hidden_states=True)
    assert states.hidden[0].shape[-1] == 24
    assert torch.equal(states.hidden[0], output.hidden_states[0])


def test_only_what_is_asked_for_and_renewed_by_each_pass():
    model = small_model(layers=3)
    states = tap(model, [0, 2], ["hidden"])
    states.extend(model, [3], ["q"])
    inputs = inputs_of(model, "bert")
    with torch.no_grad():
        model(**inputs)
        first = states.hidden[2]
        model(**{**inputs, "input_ids": inputs["input_ids"].flip(0)})
    assert set(states.hidden) == {0, 2}
    assert set(states.q) == {3}
    assert not states.k
    assert not states.v
    assert not torch.equal(states.hidden[2], first)
    states.clear()
    assert not states.hidden
    with torch.no_grad():
        model(**inputs)
    assert set(states.hidden) == {0, 2}
    states.close()
    assert not states.hidden
    assert states.mask is None
    with torch.no_grad():
        model(**inputs)
    assert not states.hidden


def test_gradients_flow_through_what_is_read():
    model = small_model()
    states = tap(model, [1], ["hidden", "q"])
    model(**inputs_of(model, "bert"))
    states.q[1].square().sum().backward()
    assert encoder_parts(model).layers[0].query.weight.grad is not None


@pytest.mark.parametrize("index", [-1, 4, 99])
def test_layers_that_do_not_exist_are_refused(index):
    with pytest.raises(ModelError, match=rf"layer {index}; expected 0 to 3"):
        tap(small_model(layers=3), [1, index], ["hidden"])


@pytest.mark.parametrize("kind", ["albert", "deberta-v2", "modernbert"])
def test_gradients_flow_through_each_call_and_nothing_is_left_behind(kind):
    model = small_model(kind, layers=3)
    before = {name: set(vars(module)) for name, module in model.named_modules()}
    states = tap(model, [1, 2, 3], ["hidden", "q", "k", "v", "bias"])
    output = model(**inputs_of(model, kind))
    found = [store[index] for store in (states.hidden, states.q, states.k, states.v) for index in (1, 2, 3)]
    found += list(states.bias.values())
    word = model.get_input_embeddings().weight
    slopes = [torch.autograd.grad(tensor.square().sum(), word, retain_graph=True)[0] for tensor in found]
    assert all(float(slope.abs().sum()) > 0 for slope in slopes)
    assert output.logits.requires_grad
    states.close()
    assert {name: set(vars(module)) for name, module in model.named_modules()} == before
    hooked = [module for module in model.modules() if module._forward_hooks or module._forward_pre_hooks]
    assert not hooked


@pytest.mark.parametrize(
    "more",
    [
        {"share_att_key": False},
        {"share_att_key": False, "pos_att_type": ["c2p"], "norm_rel_ebd": "none"},
        {"pos_att_type": ["p2c"], "position_buckets": -1},
        {"relative_attention": False, "pos_att_type": None, "share_att_key": False, "position_biased_input": True},
        {"conv_kernel_size": 3, "conv_act": "gelu"},
    ],
    ids=["own-projections", "c2p", "p2c-no-buckets", "absolute", "convolution"],
)
def test_every_deberta_gives_its_own_attention_and_states(more):
    model = small_model("deberta-v2", layers=3, **more)
    inputs = inputs_of(model, "deberta-v2")
    states = tap(model, [0, 1, 2, 3], ["hidden", "q", "k", "bias"])
    with torch.no_grad():
        output = model(**inputs, output_attentions=True, output_hidden_states=True)
    assert states.biased == more.get("relative_attention", True)
    assert states.scale == pytest.approx((6 * (1 + len(more.get("pos_att_type", ["p2c", "c2p"]) or ()))) ** -0.5)
    gone = (inputs["attention_mask"] == 0)[:, None, None, :]
    real = (inputs["attention_mask"] == 1)[:, None, :, None].expand(3, 4, 9, 9)
    for index in (1, 2, 3):
        assert torch.equal(states.hidden[index], output.hidden_states[index])
        scores = states.q[index] @ states.k[index].mT * states.scale + states.bias.get(index, 0.0)
        probabilities = torch.softmax(scores.masked_fill(gone, float("-inf")), dim=-1)
        torch.testing.assert_close(output.attentions[index - 1][real], probabilities[real], rtol=1e-4, atol=1e-6)


OTHERS = {
    "ernie": ErnieConfig,
    "roberta-prelayernorm": RobertaPreLayerNormConfig,
    "data2vec-text": Data2VecTextConfig,
}


@pytest.mark.parametrize("kind", OTHERS)
def test_any_encoder_gives_its_hidden_states_and_no_others(kind):
    sizes = {"num_hidden_layers": 3, "hidden_size": 24, "num_attention_heads": 4, "intermediate_size": 40}
    config = OTHERS[kind](vocab_size=97, max_position_embeddings=40, num_labels=3, **sizes)
    model = AutoModelForSequenceClassification.from_config(config, attn_implementation="eager").eval()
    states = tap(model, [0, 3], ["hidden"])
    ids = torch.randint(5, 97, (2, 7))
    with torch.no_grad():
        plain = model(ids)
        assert plain.hidden_states is None or len(plain.hidden_states) == 4
        found = dict(states.hidden)
        wanted = model(ids, output_hidden_states=True).hidden_states
    assert all(torch.equal(found[index], wanted[index]) for index in (0, 3))
    assert set(found) == {0, 3}
    with pytest.raises(ModelError, match="the q, k of a model of type"):
        tap(model, [1], ["hidden", "q", "k"])
    states.close()
    assert not model.base_model._forward_hooks
