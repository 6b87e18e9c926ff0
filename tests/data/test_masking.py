"""Masking: BERT's shares, whole words, and that a mask depends on seed, epoch and text alone."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tiny import tiny_tokenizer
from tokenizers import Tokenizer, models, pre_tokenizers

from potstill.data.masking import MaskRule, MaskVocabulary, mask_tokens
from potstill.errors import ModelError, SettingsError

SIZE = 50
SPECIAL = (0, 1, 2, 3, 4)
MASK = 4


def vocabulary(continues=()):
    special, follows = np.zeros(SIZE, dtype=bool), np.zeros(SIZE, dtype=bool)
    special[list(SPECIAL)] = True
    follows[list(continues)] = True
    return MaskVocabulary(MASK, np.arange(5, SIZE), special, follows)


def windows(rows=64, length=42, seed=0, low=5):
    """[CLS] tokens [SEP], the last third of them padded at the end."""
    ids = np.random.default_rng(seed).integers(low, SIZE, (rows, length))
    ids[:, 0], ids[:, -1] = 1, 2
    mask = np.ones_like(ids)
    mask[rows * 2 // 3 :, length // 2 :] = 0
    ids[mask == 0] = 0
    return ids, mask


def masked(ids, mask, *, rule=None, epoch=0, seed=0, numbers=None, continues=()):
    numbers = np.arange(len(ids)) if numbers is None else numbers
    return mask_tokens(
        ids, mask, numbers, rule=rule or MaskRule(), vocabulary=vocabulary(continues), seed=seed, epoch=epoch
    )


def test_the_budget_of_each_window():
    ids, mask = windows()
    found = masked(ids, mask)
    ordinary = ((mask == 1) & ~np.isin(ids, SPECIAL)).sum(axis=1)
    wanted = [max(1, int(0.15 * count + 0.5)) for count in ordinary]
    assert found.chosen.sum(axis=1).tolist() == wanted
    assert not found.chosen[mask == 0].any()
    assert not found.chosen[np.isin(ids, SPECIAL)].any()
    assert (found.input_ids[~found.chosen] == ids[~found.chosen]).all()


def test_shares_are_80_10_10():
    ids, mask = windows(rows=4000)
    found = masked(ids, mask)
    inside, before = found.input_ids[found.chosen], ids[found.chosen]
    count = len(inside)
    assert count > 15_000
    became_mask = (inside == MASK).mean()
    kept = (inside == before).mean()
    # A random token is the old one in 1 of 45 cases.
    assert became_mask == pytest.approx(0.8, abs=0.012)
    assert kept == pytest.approx(0.1 + 0.1 / 45, abs=0.01)
    drawn = inside[(inside != MASK) & (inside != before)]
    assert set(drawn.tolist()) == set(range(5, SIZE))
    counts = np.bincount(drawn, minlength=SIZE)[5:]
    assert counts.max() < 2 * counts.min()
    assert np.ptp(found.chosen[:, 1:20].mean(axis=0)) < 0.06  # no place is preferred


@pytest.mark.parametrize(("one", "other"), [((1.0, 0.0), "mask"), ((0.0, 1.0), "random"), ((0.0, 0.0), "same")])
def test_extreme_mixtures(one, other):
    ids, mask = windows()
    found = masked(ids, mask, rule=MaskRule(masked=one[0], random=one[1]))
    inside, before = found.input_ids[found.chosen], ids[found.chosen]
    if other == "mask":
        assert (inside == MASK).all()
    elif other == "same":
        assert (inside == before).all()
    else:
        assert not (inside == MASK).any()
        assert (inside != before).mean() > 0.9


def test_seed_epoch_and_text_alone_decide():
    ids, mask = windows()
    wanted = masked(ids, mask, epoch=3, seed=7)
    order = np.random.default_rng(1).permutation(len(ids))
    shuffled = masked(ids[order], mask[order], epoch=3, seed=7, numbers=order)
    assert (shuffled.input_ids == wanted.input_ids[order]).all()
    wide = np.pad(ids, ((0, 0), (0, 9)))
    padded = masked(wide, np.pad(mask, ((0, 0), (0, 9))), epoch=3, seed=7)
    assert (padded.input_ids[:, : ids.shape[1]] == wanted.input_ids).all()
    mixed = masked(
        np.concatenate([ids, ids]),
        np.concatenate([mask, mask]),
        epoch=np.repeat([3, 4], len(ids)),
        seed=7,
        numbers=np.tile(np.arange(len(ids)), 2),
    )
    assert (mixed.input_ids[: len(ids)] == wanted.input_ids).all()
    assert (mixed.input_ids[len(ids) :] == masked(ids, mask, epoch=4, seed=7).input_ids).all()
    for other in (masked(ids, mask, epoch=4, seed=7), masked(ids, mask, epoch=3, seed=8)):
        assert (other.chosen != wanted.chosen).any(axis=1).mean() > 0.9


def words_of(ids, mask, continues):
    """Lists of places, one list a word, in the plainest way."""
    found = []
    for place, (token, real) in enumerate(zip(ids, mask, strict=True)):
        if not real or token in SPECIAL:
            found.append(None)
        elif token in continues and found and found[-1] is not None:
            found[-1].append(place)
        else:
            found.append([place])
    return [word for word in found if word]


@given(st.integers(0, 1000), st.floats(0.02, 0.9))
def test_whole_words(seed, rate):
    ids, mask = windows(rows=6, length=30, seed=seed)
    continues = set(range(20, 40))
    found = masked(ids, mask, rule=MaskRule(rate, whole_words=True), seed=seed, continues=continues)
    for row in range(len(ids)):
        words = words_of(ids[row], mask[row], continues)
        taken = [word for word in words if found.chosen[row, word].all()]
        assert found.chosen[row].sum() == sum(map(len, taken)), "a word in part"
        budget = max(1, int(np.floor(rate * sum(map(len, words)) + 0.5)))
        assert taken
        assert len(taken) == 1 or sum(map(len, taken)) <= budget
        if sum(map(len, taken)) < budget:  # nothing that was left would have fitted
            rest = [word for word in words if word not in taken]
            assert all(len(word) > budget - sum(map(len, taken)) for word in rest)


def test_special_tokens_alone_are_not_guessed():
    ids = np.array([[1, 2, 0], [1, 7, 2]])
    found = masked(ids, np.array([[1, 1, 0], [1, 1, 1]]))
    assert found.chosen.tolist() == [[False] * 3, [False, True, False]]


def test_what_a_wordpiece_tokenizer_says():
    tokenizer = tiny_tokenizer()
    found = MaskVocabulary.of(tokenizer)
    assert found.mask_token_id == tokenizer.token_to_id("[MASK]")
    assert set(np.flatnonzero(found.special)) == {
        tokenizer.token_to_id(f"[{n}]") for n in ("PAD", "UNK", "CLS", "SEP", "MASK")
    }
    assert found.continues[tokenizer.token_to_id("##ing")]
    assert not found.continues[tokenizer.token_to_id("film")]
    assert len(found.ordinary) == tokenizer.get_vocab_size() - 5


@pytest.mark.parametrize("mark", ["Ġ", "▁"])
def test_pieces_that_are_marked_begin_a_word(mark):
    pieces = ["<mask>", f"{mark}film", "ing", f"{mark}a", "."]
    tokenizer = Tokenizer(models.WordLevel({piece: n for n, piece in enumerate(pieces)}, unk_token="."))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens(["<mask>"])
    found = MaskVocabulary.of(tokenizer)
    assert found.continues[1:].tolist() == [False, True, False, True]


def test_refusals():
    with pytest.raises(ModelError, match="mask token"):
        MaskVocabulary.of(Tokenizer(models.WordLevel({"a": 0}, unk_token="a")))
    for wrong in ({"rate": 0.0}, {"rate": 1.0}, {"masked": 0.8, "random": 0.3}, {"random": -0.1}):
        with pytest.raises(SettingsError):
            MaskRule(**wrong)
