"""Masked LMs: loading one, its head on chosen places alone, and proposing words with it.

A checkpoint without a head has none: nothing is proposed by a head that was never trained. TinyBERT's released code
feeds *masked sentence [SEP] original sentence*, so that what is proposed fits the meaning; so do we.
"""

import copy
from collections.abc import Sequence
from pathlib import Path

import torch
from tokenizers import Tokenizer
from torch import Tensor
from transformers import AutoModelForMaskedLM, PreTrainedModel

from potstill.data.masking import MaskVocabulary
from potstill.data.words import WORD_MARKS
from potstill.errors import ModelError
from potstill.models.anatomy import ANATOMIES
from potstill.models.loading import load_model, longest_input, read_config

__all__ = ["MaskedLMProposer", "has_masked_lm_head", "load_masked_lm", "masked_lm_over", "word_logits"]


def has_masked_lm_head(folder: Path) -> bool:
    """Whether the checkpoint holds the weights of a masked-LM head."""
    with torch.random.fork_rng():  # what is missing is drawn, and thrown away
        return not load_model(AutoModelForMaskedLM, folder, read_config(folder), torch.float32)[1]


def load_masked_lm(folder: Path, *, seed: int | None = None) -> PreTrainedModel:
    """A masked LM, float32, eval mode.

    Args:
        folder: A model's folder.
        seed: Of a fresh head, tied to the word embeddings, that is put on an encoder without one in order to train it.
            None: the head must be there.

    Raises:
        ModelError: No encoder, or no masked-LM head where one must be there.
    """
    with torch.random.fork_rng():
        torch.manual_seed(seed or 0)
        model, missing = load_model(AutoModelForMaskedLM, folder, read_config(folder), torch.float32)
    if missing and seed is None:
        raise ModelError(
            f"{folder} has no masked-LM head ({missing[0]} is missing)",
            fix="choose another augment.method, or train a head: potstill pretrain --objective masked",
        )
    return model


@torch.no_grad()
def masked_lm_over(model: PreTrainedModel, head_of: PreTrainedModel | None, *, seed: int) -> PreTrainedModel:
    """A masked LM over the encoder of `model` itself: what trains the one trains the other. float32.

    Args:
        model: Of any head, which is left out; float32.
        head_of: A masked LM whose head is taken where its shapes fit; None, and where they do not: a fresh one.
        seed: Of the fresh head, which is tied to the word embeddings.
    """
    config = copy.deepcopy(model.config)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        made: PreTrainedModel = AutoModelForMaskedLM.from_config(config, dtype=torch.float32)
    if head_of is not None:
        own = made.state_dict()
        heads = tuple(f"{name}." for name in ANATOMIES[config.model_type].masked_lm_head)
        for name, tensor in head_of.state_dict().items():
            if name.startswith(heads) and name in own and own[name].shape == tensor.shape:
                own[name].copy_(tensor)
    setattr(made, made.base_model_prefix, model.base_model)
    made.tie_weights()
    return made


def word_logits(model: PreTrainedModel, hidden: Tensor) -> Tensor:
    """Scores of all V words at chosen places: `hidden` (n, H), last hidden states, to (n, V).

    What the model's own forward pass computes, at these places alone: the head costs as much as a layer or two, and
    masked-LM training needs it at 15 % of the places.
    """
    for name in ANATOMIES[model.config.model_type].masked_lm_head:
        hidden = model.get_submodule(name)(hidden)
    return hidden


class MaskedLMProposer:
    """Proposes the words that a masked LM finds likely in a word's place (a `potstill.data.augment.Proposer`).

    Args:
        model: With a real masked-LM head, eval mode.
        tokenizer: Its own.
        candidates: Pieces proposed for a place; pieces that do not begin a word are dropped.
        batch_size: Sentences in one forward pass.
    """

    needs_context = True

    def __init__(self, model: PreTrainedModel, tokenizer: Tokenizer, *, candidates: int, batch_size: int = 64) -> None:
        self.model, self.tokenizer = model, tokenizer
        self.candidates, self.batch_size = candidates, batch_size
        tokenizer.no_padding()
        self.mask_id = MaskVocabulary.of(tokenizer).mask_token_id
        self.mask = str(tokenizer.id_to_token(self.mask_id))
        self.marked = any(piece.startswith(WORD_MARKS) for piece in tokenizer.get_vocab())
        tokenizer.enable_truncation(longest_input(model.config))

    @classmethod
    def load(cls, folder: Path, *, candidates: int) -> "MaskedLMProposer":
        """From a model's folder.

        Raises:
            ModelError: The checkpoint has no masked-LM head.
        """
        return cls(load_masked_lm(folder), Tokenizer.from_file(str(folder / "tokenizer.json")), candidates=candidates)

    @torch.inference_mode()
    def propose(self, sentences: Sequence[Sequence[str]], positions: Sequence[int]) -> list[list[str]]:
        """As `Proposer.propose`."""
        encodings = []
        for words, position in zip(sentences, positions, strict=True):
            masked = [*words[:position], self.mask, *words[position + 1 :]]
            encodings.append(self.tokenizer.encode(" ".join(masked), " ".join(words)))
        order = sorted(range(len(encodings)), key=lambda row: len(encodings[row].ids))
        found: list[list[str]] = [[] for _ in encodings]
        for start in range(0, len(order), self.batch_size):
            rows = order[start : start + self.batch_size]
            longest = max(len(encodings[row].ids) for row in rows)
            ids = torch.full((len(rows), longest), int(self.model.config.pad_token_id))
            mask = torch.zeros(len(rows), longest, dtype=torch.long)
            kinds = torch.zeros(len(rows), longest, dtype=torch.long)
            for place, row in enumerate(rows):
                size = len(encodings[row].ids)
                ids[place, :size] = torch.tensor(encodings[row].ids)
                kinds[place, :size] = torch.tensor(encodings[row].type_ids)
                mask[place, :size] = 1
            extra = {"token_type_ids": kinds} if getattr(self.model.config, "type_vocab_size", 0) > 1 else {}
            logits = self.model(input_ids=ids, attention_mask=mask, **extra).logits
            for place, row in enumerate(rows):
                where = torch.eq(ids[place], self.mask_id).nonzero()
                before = " ".join(sentences[row][: positions[row]]).count(self.mask)  # a text may hold masks of its own
                if len(where) > before:  # a very long sentence may have lost its mask to the cut
                    best = logits[place, int(where[before])].topk(min(self.candidates, logits.shape[-1])).indices
                    begun = [self._word(token, is_first=positions[row] == 0) for token in best.tolist()]
                    found[row] = [word for word in begun if word is not None]
        return found

    def _word(self, token: int, *, is_first: bool) -> str | None:
        """The word that a piece begins; None for a piece within a word."""
        piece = self.tokenizer.id_to_token(token)
        if piece is None or piece.startswith("##"):
            return None
        if self.marked and not is_first and not piece.startswith(WORD_MARKS):
            return None
        return piece.lstrip("".join(WORD_MARKS))
