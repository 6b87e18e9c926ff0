"""Blanks of a text filled by a masked LM: several of them together, by the chain rule, not each by itself.

A masked LM gives each blank a distribution of its own, as if the others were never filled: "[MASK] [MASK] to london"
may become "new town". P(a, b) = P(a) · P(b | a) asks again with the first blank filled. A masked LM's conditionals need
not agree on the order in which blanks are filled, so orders are searched too and the best one is told.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from tokenizers import Encoding, Tokenizer

from potstill.data.masking import MaskVocabulary
from potstill.data.spans import template_specials
from potstill.data.words import WORD_MARKS
from potstill.errors import DataError
from potstill.inference.predictor import flaw

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from potstill.models.precision import Precision

__all__ = ["Filler", "Filling", "Fillings", "Found", "joint_search"]

_SETS = 64
_BATCH = 64

Partial = tuple[int | None, ...]
"""A token for each blank; None where it is still open."""

Read = Callable[[Sequence[Partial]], np.ndarray]
"""Some partial fillings (n) → log-probabilities at every blank, float64 (n, blanks, V)."""


@dataclass(frozen=True)
class Found:
    """A filling of all blanks.

    Attributes:
        tokens: By blank, in the text's order.
        joint: log P by the chain rule in the best order found, nats.
        order: The blanks, from 0, in that order.
        independent: Σ of the blanks' own log P, each with all others open.
    """

    tokens: tuple[int, ...]
    joint: float
    order: tuple[int, ...]
    independent: float


def joint_search(read: Read, blanks: int, *, beam: int, allowed: np.ndarray) -> tuple[list[Found], tuple[int, ...]]:
    """The likeliest fillings of several blanks together: log P = Σ_i log P(x_i | those filled before), best first.

    A beam search that fills one blank a step, any of those open. Each set of filled blanks has a beam of its own, so
    that an easy blank crowds out no order; of one filling the best order is kept.

    Args:
        read: The model.
        blanks: How many there are, 1 or more.
        beam: Partial fillings kept for each set of filled blanks, and the most that come back.
        allowed: bool (V,), what may fill a blank.

    Returns:
        The fillings, and what filling blank by blank would have chosen.
    """
    nothing: Partial = (None,) * blanks
    first = read([nothing])[0]
    alone = tuple(int(token) for token in np.where(allowed, first, -np.inf).argmax(axis=1))
    kept: dict[Partial, tuple[float, tuple[int, ...]]] = {nothing: (0.0, ())}
    for step in range(blanks):
        partials = list(kept)
        rows = first[None] if step == 0 else read(partials)
        grown: dict[Partial, tuple[float, tuple[int, ...]]] = {}
        for partial, scores in zip(partials, rows, strict=True):
            so_far, order = kept[partial]
            for blank in (place for place, token in enumerate(partial) if token is None):
                for token in _best(scores[blank], allowed, beam):
                    whole = (*partial[:blank], token, *partial[blank + 1 :])
                    score = so_far + float(scores[blank, token])
                    if whole not in grown or score > grown[whole][0]:
                        grown[whole] = (score, (*order, blank))
        kept = _pruned(grown, beam)
    made = []
    for whole, (score, order) in kept.items():
        tokens = tuple(token for token in whole if token is not None)
        made.append(Found(tokens, score, order, float(first[np.arange(blanks), list(tokens)].sum())))
    return made, alone


def _best(scores: np.ndarray, allowed: np.ndarray, count: int) -> list[int]:
    """The likeliest allowed tokens, ties by their number."""
    open_ = np.where(allowed, scores, -np.inf)
    count = min(count, int(allowed.sum()))
    near = np.argpartition(-open_, count - 1)[:count]
    chosen: list[int] = near[np.lexsort((near, -open_[near]))].tolist()
    return chosen


def _pruned(
    grown: dict[Partial, tuple[float, tuple[int, ...]]], beam: int
) -> dict[Partial, tuple[float, tuple[int, ...]]]:
    """The best of each set of filled blanks, best first, and of the sets the best `_SETS`."""
    ordered = sorted(grown.items(), key=lambda item: (-item[1][0], [-1 if t is None else t for t in item[0]]))
    counts: dict[frozenset[int], int] = {}
    kept = {}
    for partial, found in ordered:
        filled = frozenset(found[1])
        if filled not in counts and len(counts) == _SETS:
            continue
        counts[filled] = counts.get(filled, 0) + 1
        if counts[filled] <= beam:
            kept[partial] = found
    return kept


@dataclass(frozen=True)
class Filling:
    """A filling, in words.

    Attributes:
        pieces: What fills each blank, as the tokenizer writes it, in the text's order.
        text: The text with them in it.
        probability: Joint, by the chain rule.
        order: The blanks, numbered from 1, in the order that gave it.
        independent: The product of the blanks' own probabilities.
    """

    pieces: tuple[str, ...]
    text: str
    probability: float
    order: tuple[int, ...]
    independent: float


@dataclass(frozen=True)
class Fillings:
    """The answer to one text, as a `Prediction` is one.

    Attributes:
        fillings: The likeliest first; none where the text could not be answered.
        apart: What filling blank by blank would have chosen.
        truncated: Whether the model read only a part of the text, around the blanks.
        reason: Why it could not be answered; None where it was.
        abstained: False: fillings are ranked, none is withheld.
    """

    fillings: tuple[Filling, ...] = ()
    apart: Filling | None = None
    truncated: bool = False
    reason: str | None = None
    abstained: bool = False

    def answer(self) -> dict[str, Any]:
        """`fillings`, and `apart`: blank by blank."""
        shown = [_facts(filling) for filling in self.fillings]
        return {"fillings": shown, "apart": None if self.apart is None else _facts(self.apart)}


def _facts(filling: Filling) -> dict[str, Any]:
    return {
        "fill": list(filling.pieces),
        "text": filling.text,
        "probability": filling.probability,
        "order": list(filling.order),
        "independent": filling.independent,
    }


class Filler:
    """Fills the blanks of texts.

    Args:
        model: A masked LM with its head, eval mode.
        tokenizer: Its tokenizer; its mask token is a blank.
        max_length: Longest input in tokens. Of a longer text the part around its blanks is read.
        beam: As in `joint_search`.
        top: Fillings given, at most `beam`.
    """

    pair = False

    def __init__(
        self, model: "PreTrainedModel", tokenizer: Tokenizer, *, max_length: int, beam: int = 16, top: int = 5
    ) -> None:
        if not 1 <= top <= beam:
            raise DataError(f"{top} fillings", expected=f"1 to {beam}")
        tokenizer.no_truncation()
        tokenizer.no_padding()
        self.model, self.tokenizer, self.beam, self.top = model, tokenizer, beam, top
        vocabulary = MaskVocabulary.of(tokenizer)
        self.mask_id, self.blank = vocabulary.mask_token_id, str(tokenizer.id_to_token(vocabulary.mask_token_id))
        self.allowed = np.zeros(int(model.config.vocab_size), dtype=bool)
        self.allowed[vocabulary.ordinary] = True
        self.specials = template_specials(tokenizer, is_pair=False)
        self.room = max_length - sum(self.specials)

    @classmethod
    def load(cls, folder: Path, *, precision: "Precision" = "float32", top: int = 5) -> "Filler":
        """From the folder of any masked LM: config.json, model.safetensors, tokenizer.json.

        Raises:
            ModelError: No masked-LM head, or no mask token.
        """
        from potstill.models.loading import longest_input
        from potstill.models.masked_lm import load_masked_lm
        from potstill.models.packed import read_only

        model = read_only(load_masked_lm(folder), precision)
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        return cls(model, tokenizer, max_length=longest_input(model.config), beam=max(16, top), top=top)

    def predict_stream(self, rows: Iterable[Any], *, batch_size: int = _BATCH) -> Iterator[Fillings]:
        """As `Predictor.predict_stream`: an answer for each text, in order."""
        for row in rows:
            yield self._fill(str(row), batch_size)

    def _fill(self, text: str, batch_size: int) -> Fillings:
        if (reason := flaw(text)) is not None:
            return Fillings(reason=reason)
        encoding = self.tokenizer.encode(text, add_special_tokens=False)
        places = [place for place, token in enumerate(encoding.ids) if token == self.mask_id]
        if not places:
            return Fillings(reason=f"no blank: write {self.blank} where a word is wanted")
        if places[-1] - places[0] >= self.room:
            return Fillings(
                reason=f"its blanks are {places[-1] - places[0]:,} tokens apart, the model reads {self.room}"
            )
        start = _around(places, len(encoding.ids), self.room)
        ids = np.array(self._with_specials(encoding.ids[start : start + self.room]), dtype=np.int64)
        at = [place - start + self.specials[0] for place in places]

        def read(partials: Sequence[Partial]) -> np.ndarray:
            parts = [partials[low : low + batch_size] for low in range(0, len(partials), batch_size)]
            return np.concatenate([self._read(ids, at, part) for part in parts])

        found, alone = joint_search(read, len(places), beam=self.beam, allowed=self.allowed)
        if not found or not np.isfinite(found[0].joint):
            return Fillings(reason="the model gives NaN or infinity for it")
        return Fillings(
            tuple(self._filling(text, encoding, places, one) for one in found[: self.top]),
            self._apart(text, encoding, places, found, alone, read),
            truncated=len(encoding.ids) > self.room,
        )

    def _with_specials(self, ids: list[int]) -> list[int]:
        whole = self.tokenizer.encode("a").ids
        return [*whole[: self.specials[0]], *ids, *whole[len(whole) - self.specials[1] :]]

    def _read(self, ids: np.ndarray, at: Sequence[int], partials: Sequence[Partial]) -> np.ndarray:
        import torch

        from potstill.models.forward import forward_inputs
        from potstill.models.masked_lm import word_logits
        from potstill.models.precision import choose_attention

        batch = np.repeat(ids[None], len(partials), axis=0)
        for row, partial in enumerate(partials):
            for place, token in zip(at, partial, strict=True):
                batch[row, place] = self.mask_id if token is None else token
        arrays = {"input_ids": batch, "attention_mask": np.ones_like(batch), "token_type_ids": np.zeros_like(batch)}
        with torch.inference_mode():
            choose_attention(self.model, batch.shape[1], backward=False)
            hidden = self.model.base_model(**forward_inputs(self.model, arrays))[0][:, list(at)]
            logits = word_logits(self.model, hidden.flatten(0, 1)).double()
            scores: np.ndarray = torch.log_softmax(logits, dim=-1).unflatten(0, (len(partials), -1)).cpu().numpy()
        return scores

    def _apart(
        self,
        text: str,
        encoding: Encoding,
        places: list[int],
        found: list[Found],
        alone: tuple[int, ...],
        read: Read,
    ) -> Filling:
        """What filling blank by blank would have chosen; its joint probability is that of the text's order."""
        for one in found:
            if one.tokens == alone:
                return self._filling(text, encoding, places, one)
        partials: list[Partial] = [(*alone[:count], *[None] * (len(alone) - count)) for count in range(len(alone))]
        scores = read(partials)
        joint = sum(float(scores[count, count, alone[count]]) for count in range(len(alone)))
        own = sum(float(scores[0, count, alone[count]]) for count in range(len(alone)))
        return self._filling(text, encoding, places, Found(alone, joint, tuple(range(len(alone))), own))

    def _filling(self, text: str, encoding: Encoding, places: list[int], found: Found) -> Filling:
        pieces = tuple(str(self.tokenizer.id_to_token(token)) for token in found.tokens)
        return Filling(
            pieces,
            _written(text, [encoding.offsets[place] for place in places], pieces),
            float(np.exp(found.joint)),
            tuple(blank + 1 for blank in found.order),
            float(np.exp(found.independent)),
        )


def _around(places: Sequence[int], length: int, room: int) -> int:
    """Where a window of `room` tokens begins that has the blanks in its middle and stays within the text."""
    middle = (places[0] + places[-1] + 1 - room) // 2
    return max(0, min(middle, length - room))


def _written(text: str, spans: Sequence[tuple[int, int]], pieces: Sequence[str]) -> str:
    """The text with pieces in its blanks: one that goes on with a word is joined to what stands before it."""
    made, last = "", 0
    for (start, end), piece in zip(spans, pieces, strict=True):
        made += text[last:start]
        blank = text[start:end]
        marked = piece.startswith(WORD_MARKS)
        if piece.startswith("##"):
            made, word = made.rstrip(), piece.removeprefix("##")
        elif marked:
            word = piece.lstrip("".join(WORD_MARKS))
            word = f" {word}" if made and not made[-1:].isspace() else word
        else:
            word = blank[: len(blank) - len(blank.lstrip())] + piece  # a mask token may take the space before it
        made, last = made + word, end
    return made + text[last:]
