"""Counts against the published ones, against transformers' own models without weights, and against saved files."""

import json
import struct

import pytest
import torch
import transformers
from safetensors.torch import save_file
from torch.utils.flop_counter import FlopCounterMode

from potstill.errors import ModelError, StorageError
from potstill.evaluation import ParameterCounts, encoder_parameters, flops, flops_per_token, parameter_counts

BASE = transformers.BertConfig()
LARGE = transformers.BertConfig(hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096)
TINY4 = transformers.BertConfig(hidden_size=312, num_hidden_layers=4, num_attention_heads=12, intermediate_size=1200)
TINY6 = transformers.BertConfig(num_hidden_layers=6)
ALBERT_LARGE = transformers.AlbertConfig(
    hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096, embedding_size=128
)
DISTILBERT = transformers.DistilBertConfig()

SIZES = [
    ("BERT-base", BASE, 108_891_648, 109_482_240),
    ("BERT-large", LARGE, 334_092_288, 335_141_888),
    ("ALBERT-large", ALBERT_LARGE, 16_634_368, 17_683_968),
    ("DistilBERT", DISTILBERT, 66_362_880, 66_362_880),
    ("TinyBERT4", TINY4, 14_252_592, 14_350_248),
    ("TinyBERT6", TINY6, 66_364_416, 66_955_008),
]

SMALL = {"hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 40, "vocab_size": 50}
OTHERS = [
    transformers.RobertaConfig(**SMALL, type_vocab_size=1),
    transformers.XLMRobertaConfig(**SMALL),
    transformers.CamembertConfig(**SMALL),
    transformers.MPNetConfig(**SMALL, relative_attention_num_buckets=32),
    transformers.ElectraConfig(**SMALL, embedding_size=10),
    transformers.ElectraConfig(**SMALL, embedding_size=24),
    transformers.AlbertConfig(**SMALL, embedding_size=24),
    transformers.BertConfig(**SMALL, max_position_embeddings=17, type_vocab_size=3),
]


def without_weights(config, **kwargs):
    with torch.device("meta"):
        return transformers.AutoModel.from_config(config, **kwargs)


def shapes(model):
    return {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}


@pytest.mark.parametrize(
    ("config", "without", "with_pooler"), [row[1:] for row in SIZES], ids=[row[0] for row in SIZES]
)
def test_published_sizes(config, without, with_pooler):
    settings = json.loads(config.to_json_string(use_diff=False))
    assert encoder_parameters(settings, pooler=False).total == without
    assert encoder_parameters(settings).total == with_pooler


@pytest.mark.parametrize(
    "config", [*(row[1] for row in SIZES), *OTHERS], ids=lambda config: f"{config.model_type}-{config.hidden_size}"
)
def test_equals_the_model_itself(config):
    model = without_weights(config)
    counts = encoder_parameters(config.to_dict())
    assert counts.total == sum(p.numel() for p in model.parameters())
    # Every table there is, found by its kind and not by its name; MPNet's bias is added to scores, no token's.
    tables = {
        name: m for name, m in model.named_modules() if isinstance(m, torch.nn.Embedding) and "relative" not in name
    }
    assert counts.embedding == sum(m.weight.numel() for m in tables.values())
    assert parameter_counts(shapes(model)) == counts
    if hasattr(model, "pooler"):
        assert encoder_parameters(config.to_dict(), pooler=False).total == sum(
            p.numel() for name, p in model.named_parameters() if not name.startswith("pooler")
        )


def test_non_embedding_parameters_of_bert_base_are_the_85_million_that_multiply():
    counts = encoder_parameters(BASE.to_dict(), pooler=False)
    assert counts.non_embedding == counts.total - counts.embedding
    assert counts.embedding == (30_522 + 512 + 2) * 768
    assert counts.non_embedding == pytest.approx(85e6, rel=0.002)
    assert flops_per_token(BASE.to_dict()) == pytest.approx(2 * counts.non_embedding, rel=0.002)


@pytest.mark.parametrize(("config", "billions"), [(BASE, 22.5), (TINY4, 1.2), (TINY6, 11.3)])
def test_flops_at_length_128_are_the_papers(config, billions):
    # The paper also counts what is no product: 1 % more. It prints one decimal.
    assert flops(config.to_dict(), 128) / 1e9 == pytest.approx(billions, rel=0.012, abs=0.05)


@pytest.mark.parametrize(
    "config",
    [transformers.DistilBertConfig(dim=24, n_layers=2, n_heads=4, hidden_dim=40, vocab_size=50), *OTHERS],
    ids=lambda config: config.model_type,
)
@pytest.mark.parametrize("length", [1, 13])
def test_flops_equal_those_that_torch_counts(config, length):
    model = transformers.AutoModel.from_config(config, attn_implementation="eager").eval()
    ids = torch.ones(1, length, dtype=torch.long)
    with FlopCounterMode(display=False) as counter, torch.inference_mode():
        model(input_ids=ids, attention_mask=torch.ones_like(ids))
    pooler = 2 * config.hidden_size**2 if hasattr(model, "pooler") else 0
    assert flops(config.to_dict(), length) == counter.get_total_flops() - pooler


def test_saved_files_are_counted_from_their_headers(tmp_path):
    model = transformers.BertForSequenceClassification(transformers.BertConfig(**SMALL, num_labels=3))
    model.save_pretrained(tmp_path / "whole")
    model.save_pretrained(tmp_path / "shards", max_shard_size="10KB")
    model.bfloat16().save_pretrained(tmp_path / "half")
    expected = sum(p.numel() for p in model.parameters())
    encoder = encoder_parameters(model.config.to_dict())
    assert expected == encoder.total + 3 * 24 + 3
    assert len(list((tmp_path / "shards").glob("*.safetensors"))) > 1
    for kind in ("whole", "shards", "half"):
        assert parameter_counts(tmp_path / kind) == ParameterCounts(expected, encoder.embedding)


def test_buffers_of_integers_do_not_count(tmp_path):
    tensors = {"embeddings.position_ids": torch.arange(10), "embeddings.word_embeddings.weight": torch.zeros(5, 4)}
    save_file({**tensors, "dense.weight": torch.zeros(4, 4)}, tmp_path / "model.safetensors", metadata={"format": "pt"})
    assert parameter_counts(tmp_path) == ParameterCounts(36, 20)


@pytest.mark.parametrize(
    "content",
    [b"", b"1234567", struct.pack("<Q", 10**12), struct.pack("<Q", 3) + b"{}x", struct.pack("<Q", 2) + b"[]"],
)
def test_a_damaged_file_is_named(tmp_path, content):
    (tmp_path / "model.safetensors").write_bytes(content)
    with pytest.raises(StorageError, match=r"model\.safetensors is no safetensors file"):
        parameter_counts(tmp_path)


def test_what_has_no_size_is_named(tmp_path):
    with pytest.raises(ModelError, match=r"has no model\.safetensors"):
        parameter_counts(tmp_path)
    with pytest.raises(ModelError, match="type 'gpt2'"):
        encoder_parameters({"model_type": "gpt2"})
    with pytest.raises(ModelError, match="without 'num_hidden_layers'"):
        flops({"model_type": "bert", "hidden_size": 8}, 128)
