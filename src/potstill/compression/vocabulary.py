"""A model over fewer pieces: rows of its embedding table, and of its masked-LM head, taken out.

At 4×312 the table is two thirds of the parameters. On texts whose pieces are all kept the model's outputs are the same.
Which pieces to keep, and the tokenizer over them: `potstill.data.pruning`.
"""

import copy

import numpy as np
import torch
from transformers import PretrainedConfig, PreTrainedModel

from potstill.errors import ModelError
from potstill.models.anatomy import masked_lm_head
from potstill.models.loading import counts_from_padding

__all__ = ["prune_vocabulary"]


@torch.no_grad()
def prune_vocabulary(model: PreTrainedModel, kept: np.ndarray) -> PreTrainedModel:
    """The model over the pieces `kept`, in eval mode: piece i is what kept[i] was.

    Args:
        model: Of any head; it is left as it is.
        kept: int64, ascending ids, the padding token's among them.

    Raises:
        ModelError: An id that the model does not have, or no padding token.
    """
    size = int(model.config.vocab_size)
    if len(kept) == 0 or kept[0] < 0 or kept[-1] >= size or (np.diff(kept) <= 0).any():
        raise ModelError(f"ids to keep that are not ascending from 0 to {size - 1}")
    made: PreTrainedModel = type(model)._from_config(_config(model.config, kept), dtype=torch.float32)
    table = _name_of(model, model.get_input_embeddings())
    heads = tuple(f"{name}." for name in masked_lm_head(model.config))
    rows = torch.from_numpy(kept)
    state = {}
    for name, tensor in model.state_dict().items():
        state[name] = tensor
        if name == table or name.startswith(heads):
            by_word = [place for place, length in enumerate(tensor.shape) if length == size][:1]
            state[name] = tensor.index_select(by_word[0], rows) if by_word else tensor  # MobileBERT's has columns
    made.load_state_dict(state)
    made.tie_weights()
    made.eval()
    return made


def _config(config: PretrainedConfig, kept: np.ndarray) -> PretrainedConfig:
    place = {int(number): index for index, number in enumerate(kept)}
    made = copy.deepcopy(config)
    padding = config.pad_token_id
    moved = counts_from_padding(config) and place.get(padding) != padding
    if padding not in place or moved:
        raise ModelError(f"the padding token {padding} is not kept in its place", fix="keep all special tokens")
    for name, value in config.to_dict().items():
        if name.endswith("_token_id") and isinstance(value, int):
            setattr(made, name, place.get(value))
    made.vocab_size = len(kept)
    made._attn_implementation = "eager"
    return made


def _name_of(model: PreTrainedModel, module: torch.nn.Module) -> str:
    return next(f"{name}.weight" for name, part in model.named_modules() if part is module)
