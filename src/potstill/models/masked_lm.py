"""Masked LMs: loading one, its head on chosen places alone, and proposing words with it.

A checkpoint without a head has none: nothing is proposed by a head that was never trained. TinyBERT's released code
feeds *masked sentence [SEP] original sentence*, so that what is proposed fits the meaning; so do we.
"""

import copy
from collections.abc import Sequence
from inspect import signature
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from tokenizers import Tokenizer
from torch import Tensor, nn
from transformers import AutoModelForMaskedLM, PreTrainedModel

from potstill.data.batching import length_batches
from potstill.data.encoding import TextEncoder
from potstill.data.masking import MaskVocabulary
from potstill.data.words import WORD_MARKS
from potstill.errors import ModelError
from potstill.models.anatomy import ANATOMIES, masked_lm_head
from potstill.models.forward import forward_inputs
from potstill.models.loading import load_model, longest_input, read_config
from potstill.models.packed import read_only
from potstill.models.precision import Precision, choose_attention

__all__ = ["MaskedLMProposer", "has_masked_lm_head", "load_masked_lm", "masked_lm_over", "word_logits"]

_CONTEXT = 48
"""Words read on either side of a masked one: TinyBERT reads 64 to 128 tokens of a text in all."""


def has_masked_lm_head(folder: Path) -> bool:
    """Whether the checkpoint holds the weights of a masked-LM head.

    A file that names none of them is not loaded; else what it holds is checked by loading it.
    """
    config = read_config(folder)
    heads = tuple(f"{name}." for name in masked_lm_head(config))
    if not heads:
        return False
    names: list[str] = []
    try:
        for path in folder.glob("*.safetensors"):
            with safe_open(str(path), framework="pt") as file:
                names += file.keys()
    except SafetensorError:
        names = list(heads)  # loading says what is wrong with it
    if names and not any(name.startswith(heads) for name in names):
        return False
    with torch.random.fork_rng():  # what is missing is drawn, and thrown away
        return not load_model(AutoModelForMaskedLM, folder, config, torch.float32)[1]


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
    if not masked_lm_head(model.config):
        raise ModelError(
            f"{folder} is of type {model.config.model_type!r}, whose masked-LM head is not known",
            expected=f"one of {', '.join(sorted(ANATOMIES))}",
        )
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
        heads = tuple(f"{name}." for name in masked_lm_head(config))
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
    return _through(_head_of(model), hidden, model.get_input_embeddings())


def _head_of(model: PreTrainedModel) -> list[nn.Module]:
    names = masked_lm_head(model.config)
    if not names:
        raise ModelError(f"the masked-LM head of a model of type {model.config.model_type!r}, which is not known")
    return [model.get_submodule(name) for name in names]


def _through(head: Sequence[nn.Module], hidden: Tensor, words: nn.Module) -> Tensor:
    for part in head:
        takes_words = "word_embeddings" in signature(part.forward).parameters  # DeBERTa-v3's
        hidden = part(hidden, words) if takes_words else part(hidden)
    return hidden


class MaskedLMProposer:
    """Proposes the words that a masked LM finds likely in a word's place (a `potstill.data.augment.Proposer`).

    It reads *masked sentence [SEP] original sentence* or, with `condition`, *condition [SEP] masked sentence*. Scores
    of words are computed at the masked place alone, in float32 whatever the encoder is held in, so that rounding does
    not order the candidates. Of a long text it reads the words around the place alone: 48 on either side.

    Args:
        model: With a real masked-LM head; put into eval mode, its encoder held in what `precision` says.
        tokenizer: Its own.
        candidates: Pieces looked at for a place, the likeliest first; those that do not begin a word are dropped.
        condition: A text that stands before the masked sentence, in place of the original after it: a label's name, for
            a model trained to read it (cBERT). None: the original.
        precision: As in `potstill.models.packed.read_only`.
        batch_tokens: Tokens in a forward pass, padding included.
    """

    needs_context = True

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: Tokenizer,
        *,
        candidates: int,
        condition: str | None = None,
        precision: Precision = "float32",
        batch_tokens: int = 4096,
    ) -> None:
        self.mask_id = MaskVocabulary.of(tokenizer).mask_token_id
        self.candidates, self.condition, self.batch_tokens = candidates, condition, batch_tokens
        self.head = [copy.deepcopy(part).float().eval() for part in _head_of(model)]
        self.embeddings = copy.deepcopy(model.get_input_embeddings()).float()
        self.model = read_only(model.eval(), precision)
        self.encoder = TextEncoder(tokenizer, max_length=longest_input(model.config))
        self.mask = str(tokenizer.id_to_token(self.mask_id))
        self._words, self._first = _beginnings(tokenizer, int(model.config.vocab_size))

    @classmethod
    def load(cls, folder: Path, *, candidates: int, precision: Precision = "float32") -> "MaskedLMProposer":
        """From a model's folder.

        Raises:
            ModelError: The checkpoint has no masked-LM head.
        """
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        return cls(load_masked_lm(folder), tokenizer, candidates=candidates, precision=precision)

    @torch.inference_mode()
    def propose(self, sentences: Sequence[Sequence[str]], positions: Sequence[int]) -> list[list[str]]:
        """As `Proposer.propose`: in batches of like length."""
        masked, beside, before = [], [], []
        for whole, at in zip(sentences, positions, strict=True):
            start = max(0, at - _CONTEXT)
            words, position = whole[start : at + _CONTEXT + 1], at - start
            masked.append(" ".join([*words[:position], self.mask, *words[position + 1 :]]))
            beside.append(" ".join(words) if self.condition is None else self.condition)
            ahead = beside[-1:] if self.condition is not None else []
            before.append(" ".join([*ahead, *words[:position]]).count(self.mask))  # a text may hold masks of its own
        texts = (masked, beside) if self.condition is None else (beside, masked)
        encodings = self.encoder.encode(*texts)
        found: list[list[str]] = [[] for _ in masked]
        lengths, rows = encodings.lengths, np.arange(len(masked), dtype=np.int64)
        batches = length_batches(lengths, rows, batch_size=512, seed=0, epoch=0, max_tokens=self.batch_tokens)
        for batch in batches:
            arrays = encodings.batch(batch)
            places = [np.flatnonzero(ids == self.mask_id) for ids in arrays["input_ids"]]
            # A very long sentence may have lost its mask to the cut.
            kept = [i for i, row in enumerate(batch.tolist()) if len(places[i]) > before[row]]
            if kept:
                masks = torch.tensor([int(places[i][before[batch[i]]]) for i in kept])
                best = self._best(arrays, torch.tensor(kept), masks)
                for i, tokens in zip(kept, best, strict=True):
                    table = self._first if positions[batch[i]] == 0 else self._words
                    found[batch[i]] = [word for token in tokens if (word := table[token]) is not None]
        return found

    def _best(self, arrays: dict[str, np.ndarray], rows: Tensor, places: Tensor) -> list[list[int]]:
        """The likeliest pieces at one place of each of some rows."""
        choose_attention(self.model, arrays["input_ids"].shape[1], backward=False)
        hidden = self.model.base_model(**forward_inputs(self.model, arrays))[0]
        scores = hidden[rows.to(hidden.device), places.to(hidden.device)].float()
        scores = _through(self.head, scores, self.embeddings)
        best: list[list[int]] = scores.topk(min(self.candidates, scores.shape[-1])).indices.tolist()
        return best


def _beginnings(tokenizer: Tokenizer, size: int) -> tuple[list[str | None], list[str | None]]:
    """Piece → the word that it begins, or None for a piece within a word: within a text, and as its first word."""
    vocabulary = tokenizer.get_vocab(with_added_tokens=True)
    marked = any(piece.startswith(WORD_MARKS) for piece in vocabulary)
    within: list[str | None] = [None] * max(size, max(vocabulary.values()) + 1)
    first = within.copy()
    for piece, token in vocabulary.items():
        if not piece.startswith("##"):
            word = piece.lstrip("".join(WORD_MARKS))
            first[token] = word
            within[token] = word if not marked or piece.startswith(WORD_MARKS) else None
    return within, first
