"""The table of parts: each architecture's modules are found and are what their names say."""

import pytest
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
    assert parts.word.weight.shape == (VOCABULARY, 24)
    assert parts.position.weight.shape == (80, 24)
    assert (parts.token_type is None) == (kind in ("mpnet", "distilbert"))
    assert (parts.relative_bias is None) == (kind != "mpnet")
    assert parts.embedding_project is None
    assert isinstance(parts.embedding_norm, nn.LayerNorm)
    for layer in parts.layers:
        for linear in (layer.query, layer.key, layer.value, layer.output):
            assert linear.weight.shape == (24, 24)
        assert layer.ffn_in.weight.shape == (40, 24)
        assert layer.ffn_out.weight.shape == (24, 40)
        assert isinstance(layer.attention_norm, nn.LayerNorm)
        assert isinstance(layer.ffn_norm, nn.LayerNorm)
        linears = [layer.query, layer.key, layer.value, layer.output, layer.ffn_in, layer.ffn_out]
        norms = [layer.attention_norm, layer.ffn_norm]
        named = {id(parameter) for module in [*linears, *norms] for parameter in module.parameters()}
        assert named == {id(parameter) for parameter in layer.layer.parameters()}  # nothing in the layer is missed


def test_electra_with_narrow_embeddings():
    parts = encoder_parts(small_model("electra", embedding_size=10))
    assert parts.embedding_project is parts.embedding_output
    assert parts.embedding_project.weight.shape == (24, 10)


def test_an_unknown_architecture_is_refused_with_those_that_are_known():
    config = GPT2Config(vocab_size=50, n_embd=8, n_layer=1, n_head=2, n_positions=16)
    with pytest.raises(ModelError, match="a model of type 'gpt2'; expected one of bert, camembert"):
        encoder_parts(AutoModelForSequenceClassification.from_config(config))
