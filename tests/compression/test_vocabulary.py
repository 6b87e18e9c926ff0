"""Models over fewer pieces: the same outputs on the pieces kept, for every architecture and head."""

import numpy as np
import pytest
import torch
from tests.small_models import CONFIGS, VOCABULARY, small_config, small_model
from transformers import AutoModelForMaskedLM

from potstill.compression import prune_vocabulary
from potstill.errors import ModelError

KEPT = np.array([0, 1, 2, 3, 4, 7, 12, 30, 31, 32, 60, 90, 96])


def inputs(kept=True):
    new = torch.tensor([[2, 5, 9, 12, 7, 6], [2, 10, 11, 5, 8, 6]])
    return new if kept else torch.from_numpy(KEPT)[new]


@pytest.mark.parametrize("kind", CONFIGS)
def test_a_classifier_gives_the_same_logits(kind):
    model = small_model(kind)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    small = prune_vocabulary(model, KEPT)
    with torch.no_grad():
        assert torch.allclose(small(inputs()).logits, model(inputs(kept=False)).logits, atol=1e-6)
    assert small.config.vocab_size == len(KEPT)
    assert small.config.pad_token_id == model.config.pad_token_id
    saved = sum(p.numel() for p in model.parameters()) - sum(p.numel() for p in small.parameters())
    assert saved == (VOCABULARY - len(KEPT)) * model.get_input_embeddings().embedding_dim
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


@pytest.mark.parametrize("kind", CONFIGS)
def test_a_masked_lm_gives_the_same_scores(kind, tmp_path):
    torch.manual_seed(0)
    model = AutoModelForMaskedLM.from_config(small_config(kind, initializer_range=0.2)).eval()
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            torch.nn.init.normal_(parameter)
    small = prune_vocabulary(model, KEPT)
    with torch.no_grad():
        wanted = model(inputs(kept=False)).logits[..., torch.from_numpy(KEPT)]
        assert torch.allclose(small(inputs()).logits, wanted, atol=1e-5)
    small.save_pretrained(tmp_path)
    again, info = AutoModelForMaskedLM.from_pretrained(tmp_path, output_loading_info=True)
    assert not info["missing_keys"]
    with torch.no_grad():
        assert torch.allclose(again.eval()(inputs()).logits, wanted, atol=1e-5)


def test_special_ids_of_the_config_follow():
    model = small_model("bert")
    model.config.sep_token_id, model.config.mask_token_id = 31, 50
    small = prune_vocabulary(model, KEPT)
    assert small.config.sep_token_id == 8
    assert small.config.mask_token_id is None


@pytest.mark.parametrize("kept", [[], [3, 2], [1, 1], [0, 97], [-1, 0]])
def test_ids_that_cannot_be_kept(kept):
    with pytest.raises(ModelError):
        prune_vocabulary(small_model("bert"), np.array(kept, dtype=np.int64))


@pytest.mark.parametrize("kind", ["roberta", "mpnet"])
def test_the_padding_token_must_stay_where_positions_are_counted_from_it(kind):
    with pytest.raises(ModelError, match="padding"):
        prune_vocabulary(small_model(kind), np.array([1, 2, 3]))
    with pytest.raises(ModelError, match="padding"):
        prune_vocabulary(small_model("bert"), np.array([1, 2, 3]))
