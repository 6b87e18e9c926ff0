"""What is read out of a running encoder is what `transformers` itself computes, in every architecture."""

import numpy as np
import pytest
import torch
from tests.small_models import CONFIGS, random_encodings, small_model

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
    states = tap(model, [1, 2, 3], ["q", "k", "v"])
    with torch.no_grad():
        output = model(**inputs, output_attentions=True)
        bias = 0.0
        if kind == "mpnet":
            bias = model.base_model.encoder.compute_position_bias(states.hidden.get(1, torch.zeros(3, 9, 24)))
    assert states.scale == 6**-0.5
    assert states.biased == (kind == "mpnet")
    gone = (inputs["attention_mask"] == 0)[:, None, None, :]
    for index in (1, 2, 3):
        assert states.q[index].shape == states.k[index].shape == states.v[index].shape == (3, 4, 9, 6)
        scores = states.q[index] @ states.k[index].mT * states.scale + bias
        probabilities = torch.softmax(scores.masked_fill(gone, float("-inf")), dim=-1)
        torch.testing.assert_close(output.attentions[index - 1], probabilities, rtol=1e-4, atol=1e-6)


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
