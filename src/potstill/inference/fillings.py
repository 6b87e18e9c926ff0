"""Blanks of a text filled by a masked LM: several of them together, by the chain rule, not each by itself.

A masked LM gives each blank a distribution of its own, as if the others were never filled: "[MASK] [MASK] to london"
may become "new town". P(a, b) = P(a) · P(b | a) asks again with the first blank filled. A masked LM's conditionals need
not agree on the order in which blanks are filled, so orders are searched too and the best one is told.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from tokenizers import Encoding, Tokenizer

from potstill.data.encoding import TextEncoder
from potstill.data.masking import MaskVocabulary
from potstill.data.spans import template_specials
from potstill.data.words import WORD_MARKS
from potstill.errors import DataError
from potstill.inference.joint_search import Found, Partial, Read, joint_search
from potstill.inference.predictor import flaw

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from potstill.models.precision import Precision

__all__ = ["Filler", "Filling", "Fillings"]

_BATCH = 64
_MOST = 100


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
        top: Fillings given, at most `beam`, and 100.

    Raises:
        DataError: Another number of fillings.
    """

    pair = False

    def __init__(
        self, model: "PreTrainedModel", tokenizer: Tokenizer, *, max_length: int, beam: int = 16, top: int = 5
    ) -> None:
        if not 1 <= top <= min(beam, _MOST):
            raise DataError(f"{top} fillings", expected=f"1 to {min(beam, _MOST)}")
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
            ModelError: No masked-LM head, no mask token, or no tokenizer.json that can be read.
            DataError: As the constructor.
        """
        from potstill.models.loading import longest_input
        from potstill.models.masked_lm import load_masked_lm
        from potstill.models.packed import read_only

        model = read_only(load_masked_lm(folder), precision)
        length = longest_input(model.config)
        tokenizer = TextEncoder.from_folder(folder, max_length=length).tokenizer
        return cls(model, tokenizer, max_length=length, beam=max(16, min(top, _MOST)), top=top)

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
