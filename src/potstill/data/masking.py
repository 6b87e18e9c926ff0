"""Which tokens a masked LM has to guess, and what stands in their place.

By counter: what is drawn for a place depends on (seed, epoch, example id, place) alone, never on the batch or its
padding. Knows no model.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from tokenizers import Tokenizer

from potstill.data.counter import mix, seed_key, uniform
from potstill.data.words import WORD_MARKS
from potstill.errors import ModelError, SettingsError

__all__ = ["MaskRule", "MaskVocabulary", "Masked", "mask_tokens"]

_CHOOSE, _REPLACE, _DRAW = (np.uint64(tag) for tag in (1, 2, 3))


@dataclass(frozen=True)
class MaskRule:
    """BERT's rule (Devlin et al., arXiv 1810.04805, section 3.1), fresh in each epoch (RoBERTa, arXiv 1907.11692).

    Attributes:
        rate: Share of a window's tokens that are to be guessed, special tokens not counted; one at least.
        masked: Share of these that become the mask token.
        random: Share of these that become a random token; the rest stay as they are.
        whole_words: Choose whole words, in random order, as long as they fit the budget of tokens.

    Raises:
        SettingsError: A rate that is not above 0 and below 1, or shares that are not 0 to 1 together.
    """

    rate: float = 0.15
    masked: float = 0.8
    random: float = 0.1
    whole_words: bool = False

    def __post_init__(self) -> None:
        if not 0 < self.rate < 1:
            raise SettingsError(f"a masking rate of {self.rate}", expected="above 0, below 1")
        if self.masked < 0 or self.random < 0 or self.masked + self.random > 1 + 1e-9:
            raise SettingsError(
                f"{self.masked} of the chosen tokens masked and {self.random} replaced",
                expected="shares of 0 or more, together 1 at most",
            )


@dataclass(frozen=True)
class MaskVocabulary:
    """What masking needs to know of a tokenizer.

    Attributes:
        mask_token_id: Of `[MASK]` or `<mask>`.
        ordinary: int64, the ids that a random token is drawn from: all but special tokens.
        special: bool (V,), ids that are never to be guessed.
        continues: bool (V,), pieces that go on with the word of the piece before.
    """

    mask_token_id: int
    ordinary: np.ndarray
    special: np.ndarray
    continues: np.ndarray

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> "MaskVocabulary":
        """Read a tokenizer; a `ModelError` where it has no mask token.

        A piece continues a word where WordPiece writes `##` before it, or where byte-level BPE and Unigram do not mark
        it as a word's first: there a full stop belongs to the word that it follows.
        """
        names = ("[MASK]", "<mask>")
        mask = next((found for name in names if (found := tokenizer.token_to_id(name)) is not None), None)
        if mask is None:
            raise ModelError("a tokenizer without a mask token", expected=" or ".join(names))
        vocabulary = tokenizer.get_vocab(with_added_tokens=True)
        size = max(vocabulary.values()) + 1
        special, continues, used = (np.zeros(size, dtype=bool) for _ in range(3))
        marked = any(piece.startswith(WORD_MARKS) for piece in vocabulary)
        for piece, number in vocabulary.items():
            used[number] = True
            continues[number] = not piece.startswith(WORD_MARKS) if marked else piece.startswith("##")
        for number, token in tokenizer.get_added_tokens_decoder().items():
            special[number] = token.special
        return cls(int(mask), np.flatnonzero(used & ~special), special, continues)


class Masked(NamedTuple):
    """Masked windows.

    Attributes:
        input_ids: int64 (n, L), what the model reads.
        chosen: bool (n, L), the places to guess.
    """

    input_ids: np.ndarray
    chosen: np.ndarray


def mask_tokens(
    input_ids: np.ndarray,
    attention_mask: np.ndarray,
    ids: np.ndarray,
    *,
    rule: MaskRule,
    vocabulary: MaskVocabulary,
    seed: int,
    epoch: int | np.ndarray,
) -> Masked:
    """Choose max(1, round(rate · n)) of each window's n ordinary tokens, and replace them as the rule says.

    Args:
        input_ids: int64 (n, L).
        attention_mask: (n, L), 0 on padding.
        ids: int64 (n,), example ids.
        rule: How many, and what becomes of them.
        vocabulary: Of the tokenizer that made the ids.
        seed: Of everything drawn.
        epoch: Another epoch masks anew; int64 (n,) for windows of several epochs.

    Returns:
        The windows, and which places were chosen; a window of special tokens alone has none.
    """
    numbers = np.broadcast_to(np.asarray(epoch), ids.shape).astype(np.uint64)
    rows = mix(mix(seed_key(seed) ^ numbers) ^ ids.astype(np.uint64))
    places = np.arange(input_ids.shape[1], dtype=np.uint64)

    def drawn(tag: np.uint64) -> np.ndarray:
        return uniform(mix(mix(rows ^ tag)[:, None] ^ places[None, :]))

    guessable = (attention_mask != 0) & ~vocabulary.special[input_ids]
    counts = guessable.sum(axis=1)
    budgets = np.where(counts > 0, np.maximum(1, np.floor(rule.rate * counts + 0.5)), 0).astype(np.int64)
    order = np.where(guessable, drawn(_CHOOSE), 2.0)  # 2: after every draw
    if rule.whole_words:
        chosen = _whole_words(guessable, vocabulary.continues[input_ids], order, budgets)
    else:
        ranks = order.argsort(axis=1, kind="stable").argsort(axis=1, kind="stable")
        chosen = ranks < budgets[:, None]
    fate = drawn(_REPLACE)
    made = np.where(chosen & (fate < rule.masked), vocabulary.mask_token_id, input_ids)
    others = vocabulary.ordinary[(drawn(_DRAW) * len(vocabulary.ordinary)).astype(np.int64)]
    replaced = chosen & (fate >= rule.masked) & (fate < rule.masked + rule.random)
    return Masked(np.where(replaced, others, made), chosen)


def _whole_words(guessable: np.ndarray, continues: np.ndarray, order: np.ndarray, budgets: np.ndarray) -> np.ndarray:
    """Words in the order of their first piece's draw, each taken where it fits what is left of the budget.

    The first word is taken whatever its length, so that every window has something to guess.
    """
    chosen = np.zeros_like(guessable)
    before = np.concatenate([np.zeros_like(guessable[:, :1]), guessable[:, :-1]], axis=1)
    begins = guessable & ~(continues & before)
    for row, budget in enumerate(budgets):
        starts = np.flatnonzero(begins[row])
        word = np.where(guessable[row], begins[row].cumsum() - 1, -1)
        sizes = np.bincount(word[guessable[row]], minlength=len(starts))
        taken: list[int] = []
        left = int(budget)
        for number in np.argsort(order[row, starts], kind="stable").tolist():
            if sizes[number] <= left or not taken:
                taken.append(number)
                left -= int(sizes[number])
            if left <= 0:
                break
        chosen[row] = np.isin(word, taken) & guessable[row]
    return chosen
