"""What the converters get, and that they are kept quiet."""

import logging
import warnings

import pytest
import torch
from transformers import BertConfig, DistilBertConfig, DistilBertForSequenceClassification

from potstill.engines.torch import load_model
from potstill.export.traceable import LogitsOnly, quiet, sample_inputs


def test_sample(folder):
    model = load_model(folder)
    inputs = sample_inputs(model)
    assert ("token_type_ids" in inputs) == (model.config.model_type == "bert")
    ids, mask = inputs["input_ids"], inputs["attention_mask"]
    assert ids.shape == mask.shape
    assert ids.shape[0] != ids.shape[1]
    assert 1 not in ids.shape
    assert (mask == 0).any()
    assert (ids[mask == 0] == model.config.pad_token_id).all()
    assert ((ids >= 0) & (ids < model.config.vocab_size)).all()
    with torch.no_grad():
        assert torch.equal(LogitsOnly(model)(**inputs), model(**inputs).logits)


def test_sample_of_a_model_without_token_types():
    config = DistilBertConfig(vocab_size=50, dim=8, n_heads=2, n_layers=1, hidden_dim=8)
    assert set(sample_inputs(DistilBertForSequenceClassification(config))) == {"input_ids", "attention_mask"}
    assert BertConfig().pad_token_id == 0


def test_quiet(capsys):
    level = logging.getLogger("nncf").level
    with pytest.raises(ZeroDivisionError), quiet():
        print("progress")  # noqa: T201
        warnings.warn("deprecated", stacklevel=1)
        logging.getLogger("nncf").error("noise")
        raise ZeroDivisionError
    assert capsys.readouterr() == ("", "")
    assert logging.getLogger("nncf").level == level
