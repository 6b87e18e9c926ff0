"""Tokenizers cut to a corpus: the same pieces on texts inside it, readable pieces elsewhere, for all three kinds."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.tiny import LETTERS, WORDS, tiny_tokenizer
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from potstill.data.pruning import count_pieces, fit_of, kept_pieces, pruned_tokenizer
from potstill.errors import ModelError

CORPUS = [
    "the film was good and the plot was not so bad",
    "a dull , slow movie ; nobody laughed",
    "unbelievably long-winded storytelling , unforgettable pictures",
    "he told us that the retelling of the tale was a retold tale",
    "naïve café über 12,345.67 — straße",
]
OTHER = ["this sentence uses quite different words", "xylophone quartz", "the plot was good", "日本語 text"]
KINDS = ("wordpiece", "wordpiece-roberta-ids", "bpe", "byte-bpe", "unigram")


def trained(kind: str) -> Tokenizer:
    texts = [*CORPUS, *OTHER, " ".join(WORDS)] * 3
    if kind.startswith("wordpiece"):
        return tiny_tokenizer("bert" if kind == "wordpiece" else "mpnet")
    if kind == "unigram":
        tokenizer = Tokenizer(models.Unigram())
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
        special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
        trainer = trainers.UnigramTrainer(
            vocab_size=180, special_tokens=special, unk_token="<unk>", show_progress=False
        )
    else:
        tokenizer = Tokenizer(models.BPE(unk_token=None if kind == "byte-bpe" else "<unk>"))
        is_bytes = kind == "byte-bpe"
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel() if is_bytes else pre_tokenizers.Whitespace()
        tokenizer.decoder = decoders.ByteLevel() if is_bytes else decoders.BPEDecoder()
        tokenizer.normalizer = normalizers.NFC()
        special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
        alphabet = pre_tokenizers.ByteLevel.alphabet() if is_bytes else list(LETTERS)
        trainer = trainers.BpeTrainer(
            vocab_size=500, special_tokens=special, initial_alphabet=alphabet, show_progress=False
        )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    tokenizer.enable_padding(pad_id=1, pad_token="<pad>")
    return tokenizer


@pytest.mark.parametrize("kind", KINDS)
def test_texts_inside_keep_their_pieces(kind):
    before = trained(kind)
    counts = count_pieces(before, CORPUS)
    kept = kept_pieces(before, counts)
    after = pruned_tokenizer(before, kept)
    assert len(kept) == after.get_vocab_size() < before.get_vocab_size()
    for text in CORPUS:
        own, theirs = after.encode(text), before.encode(text)
        assert own.tokens == theirs.tokens
        assert kept[own.ids].tolist() == theirs.ids
        assert own.offsets == theirs.offsets
        assert own.type_ids == theirs.type_ids
    pair, whole = after.encode(*CORPUS[:2]), before.encode(*CORPUS[:2])
    assert kept[pair.ids].tolist() == whole.ids
    assert Tokenizer.from_str(after.to_str()).encode(CORPUS[2]).ids == after.encode(CORPUS[2]).ids
    fit = fit_of(after, CORPUS, before)
    assert (fit.same, fit.texts) == (len(CORPUS), len(CORPUS))
    assert fit.tokens == counts.sum()


@pytest.mark.parametrize("kind", KINDS)
def test_other_texts_are_still_read(kind):
    before = trained(kind)
    after = pruned_tokenizer(before, kept_pieces(before, count_pieces(before, CORPUS[:2])))
    text = "this sentence uses quite different words"
    assert "".join(after.encode(text, add_special_tokens=False).tokens).replace("##", "").strip("▁Ġ")
    fit = fit_of(after, [text], before)
    assert fit.unknown == 0
    assert fit.tokens >= len(before.encode(text).ids)
    if kind == "byte-bpe":
        assert after.decode(after.encode("日本語 🎬").ids).strip() == "日本語 🎬"
    else:
        assert fit_of(after, ["日本語"], before).unknown > 0


@pytest.mark.parametrize("kind", KINDS)
def test_at_most_so_many(kind):
    before = trained(kind)
    counts = count_pieces(before, CORPUS)
    least = len(kept_pieces(before, np.zeros_like(counts)))
    everything = len(kept_pieces(before, counts))
    most = (least + everything) // 2
    kept = kept_pieces(before, counts, most=most)
    assert least < len(kept) <= most
    after = pruned_tokenizer(before, kept)
    fit = fit_of(after, CORPUS, before)
    assert 0 <= fit.same < len(CORPUS) or kind == "byte-bpe"
    with pytest.raises(ModelError, match="single characters"):
        kept_pieces(before, counts, most=3)


def test_the_mark_of_a_words_beginning_stays_though_no_text_shows_it_alone():
    vocabulary = [
        ("<unk>", 0.0),
        ("▁", -9.0),
        ("▁film", -1.0),
        ("▁plot", -1.0),
        *((letter, -8.0) for letter in "filmpot"),
    ]
    before = Tokenizer(models.Unigram(vocabulary, 0))
    before.pre_tokenizer = pre_tokenizers.Metaspace()
    counts = count_pieces(before, ["film"])
    assert counts[1] == 0
    after = pruned_tokenizer(before, kept_pieces(before, counts))
    assert after.encode("plot").tokens == ["▁", "p", "l", "o", "t"]
    assert after.encode("film").tokens == ["▁film"]


def test_the_frequent_come_first():
    before = tiny_tokenizer()
    counts = count_pieces(before, ["film film film plot plot good"])
    least = len(kept_pieces(before, np.zeros_like(counts)))
    kept = kept_pieces(before, counts, most=least + 2)
    assert before.token_to_id("film") in kept
    assert before.token_to_id("plot") in kept
    assert before.token_to_id("good") not in kept


BYTES, UNIGRAM = trained("byte-bpe"), trained("unigram")


@settings(max_examples=60, deadline=None)
@given(st.lists(st.text(max_size=30), min_size=1, max_size=4), st.sampled_from([BYTES, UNIGRAM]))
def test_any_text_inside_keeps_its_pieces(texts, before):
    texts = [text.encode("utf-8", "ignore").decode() for text in texts]
    kept = kept_pieces(before, count_pieces(before, texts))
    after = pruned_tokenizer(before, kept)
    for text in texts:
        assert kept[after.encode(text).ids].tolist() == before.encode(text).ids


def test_added_tokens_stay():
    before = tiny_tokenizer()
    before.add_tokens([AddedToken("<brand>", single_word=True)])
    after = pruned_tokenizer(before, kept_pieces(before, count_pieces(before, ["the film"])))
    assert "<brand>" in after.encode("the <brand> film").tokens


def test_another_kind_is_refused():
    tokenizer = Tokenizer(models.WordLevel({"a": 0, "[UNK]": 1}, unk_token="[UNK]"))
    with pytest.raises(ModelError, match="WordPiece, BPE, Unigram"):
        kept_pieces(tokenizer, np.zeros(2, dtype=np.int64))


def test_padding_and_frame_have_their_new_ids():
    before = trained("byte-bpe")
    after = pruned_tokenizer(before, kept_pieces(before, count_pieces(before, CORPUS)))
    assert after.padding["pad_id"] == after.token_to_id("<pad>") == 1
    state = json.loads(after.to_str())
    assert state["post_processor"]["sep"] == ["</s>", after.token_to_id("</s>")]
