"""The table of parts: each architecture's modules are found and are what their names say."""

import pytest
import torch
from tests.small_models import VOCABULARY, small_model
from torch import nn
from transformers import AutoModelForSequenceClassification, GPT2Config

from potstill.errors import ModelError
from potstill.models.anatomy import ANATOMIES, encoder_parts


@pytest.mark.parametrize("kind", sorted(ANATOMIES))
def test_parts(kind):
    model = small_model(kind, layers=3, hidden=24, ffn=40)
    parts = encoder_parts(model)
    assert parts.encoder is model.base_model
    assert len(parts.layers) == 3
    assert parts.word is model.get_input_embeddings()
    assert parts.word.weight.shape == (VOCABULARY, 10 if kind in ("albert", "mobilebert") else 24)
    if kind in ("modernbert", "deberta-v2"):
        assert parts.position is None
    else:
        assert parts.position.weight.shape == (80, 10 if kind == "albert" else 24)
    assert (parts.token_type is None) == (kind in ("mpnet", "distilbert", "modernbert", "deberta-v2"))
    assert (parts.relative_bias is None) == (kind != "mpnet")
    assert (parts.relative_embeddings is None) == (kind != "deberta-v2")
    assert parts.biased == (kind in ("mpnet", "deberta-v2"))
    assert (parts.embedding_project is None) == (kind != "albert")
    assert (parts.final_norm is None) == (kind != "modernbert")
    assert parts.first_layer_differs == (kind == "modernbert")
    assert kind == "mobilebert" or isinstance(parts.embedding_norm, nn.LayerNorm)
    inner, halves = 12 if kind == "mobilebert" else 24, 2 if kind == "modernbert" else 1
    for index, layer in enumerate(parts.layers):
        for linear in (layer.query, layer.key, layer.output):
            assert linear.weight.shape == (inner, inner)
            assert linear.out_features == linear.weight.shape[0]
        assert layer.value.weight.shape == (inner, 24)
        assert layer.ffn_in.weight.shape == (40 * halves, inner)
        assert layer.ffn_out.weight.shape == (inner, 40)
        assert layer.call == (index if kind == "albert" else 0)
        if kind == "mobilebert":  # its bottlenecks and further FFNs are not named: no student is cut from it
            continue
        fused = [layer.query.module] if kind == "modernbert" else [layer.query, layer.key, layer.value]
        linears = [*fused, layer.output, layer.ffn_in, layer.ffn_out]
        norms = [layer.attention_norm, layer.ffn_norm]
        assert [isinstance(norm, nn.LayerNorm) for norm in norms] == [kind != "modernbert" or index > 0, True]
        named = {id(parameter) for module in [*linears, *norms] for parameter in module.parameters()}
        assert named == {id(parameter) for parameter in layer.layer.parameters()}  # nothing in the layer is missed


def test_rows_of_a_fused_layer_are_the_layers_own():
    layer = encoder_parts(small_model("modernbert", attention_bias=True)).layers[1]
    fused = layer.query.module
    with torch.no_grad():
        for number, part in enumerate((layer.query, layer.key, layer.value)):
            part.weight.fill_(float(number))
            part.bias.fill_(float(-number))
    assert fused.weight[::24, 0].tolist() == [0.0, 1.0, 2.0]
    assert fused.bias[::24].tolist() == [0.0, -1.0, -2.0]


def test_alberts_groups_share_their_layers():
    parts = encoder_parts(small_model("albert", layers=4, num_hidden_groups=2))
    first, second, third, fourth = (part.layer for part in parts.layers)
    assert first is second
    assert third is fourth
    assert first is not third
    assert [part.call for part in parts.layers] == [0, 1, 0, 1]
    with pytest.raises(ModelError, match="2 layers in a group; expected 1"):
        encoder_parts(small_model("albert", inner_group_num=2))


def test_electra_with_narrow_embeddings():
    parts = encoder_parts(small_model("electra", embedding_size=10))
    assert parts.embedding_project is parts.embedding_output
    assert parts.embedding_project.weight.shape == (24, 10)


def test_an_unknown_architecture_is_refused_with_those_that_are_known():
    config = GPT2Config(vocab_size=50, n_embd=8, n_layer=1, n_head=2, n_positions=16)
    with pytest.raises(ModelError, match="a model of type 'gpt2'; expected one of albert, bert, camembert"):
        encoder_parts(AutoModelForSequenceClassification.from_config(config))
