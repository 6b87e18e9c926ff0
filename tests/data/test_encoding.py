"""Texts to ids: equal to `transformers`, every token read in windows, what is cut counted, batches padded right."""

import itertools
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.tiny import LETTERS, WORDS, tiny_tokenizer
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast

from potstill.data.encoding import TextEncoder
from potstill.errors import ModelError

KINDS = ("bert", "mpnet")
SPECIAL = {"bert": ("[CLS]", "[SEP]", "[PAD]"), "mpnet": ("<s>", "</s>", "<pad>")}

words = st.sampled_from([word for word in WORDS if word.isalpha()])
odd = st.text(max_size=12)
texts = st.lists(st.one_of(words, words, words, odd), max_size=40).map(" ".join)


def encoder_of(kind="bert", **options):
    return TextEncoder(tiny_tokenizer(kind), **options)


def transformers_of(kind):
    cls, sep, pad = SPECIAL[kind]
    return PreTrainedTokenizerFast(
        tokenizer_object=tiny_tokenizer(kind), cls_token=cls, sep_token=sep, pad_token=pad, padding_side="right"
    )


def windows_of(encodings):
    ends = encodings.starts
    return [
        (encodings.input_ids[a:b].tolist(), encodings.token_type_ids[a:b].tolist()) for a, b in itertools.pairwise(ends)
    ]


def tokens_of(kind, text):
    return tiny_tokenizer(kind).encode(text, add_special_tokens=False).ids


@pytest.mark.parametrize("is_pair", [False, True])
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=25)
@given(rows=st.lists(st.tuples(texts, texts), min_size=1, max_size=6), length=st.integers(5, 50))
def test_equal_to_transformers(kind, is_pair, rows, length):
    first, second = (list(side) for side in zip(*rows, strict=True))
    own = encoder_of(kind, max_length=length).encode(first, second if is_pair else None)
    theirs = transformers_of(kind)(
        first, second if is_pair else None, truncation=True, max_length=length, return_token_type_ids=True
    )
    assert windows_of(own) == list(zip(theirs["input_ids"], theirs["token_type_ids"], strict=True))
    assert own.example.tolist() == list(range(len(rows)))
    whole = transformers_of(kind)(first, second if is_pair else None)["input_ids"]
    assert own.truncated == sum(len(ids) > length for ids in whole)
    assert own.windowed == 0
    assert own.lengths.tolist() == [len(ids) for ids in theirs["input_ids"]]
    padded = theirs.__class__(transformers_of(kind).pad(theirs, padding="longest", return_tensors="np"))
    batch = own.batch(np.arange(len(rows)))
    assert batch.keys() == {"input_ids", "attention_mask", "token_type_ids"}
    for name, array in batch.items():
        np.testing.assert_array_equal(array, padded[name])
        assert array.dtype == np.int64


@settings(max_examples=60)
@given(text=texts, length=st.integers(4, 30), step=st.none() | st.integers(1, 20), kind=st.sampled_from(KINDS))
def test_windows_of_a_text_cover_every_token_in_order(text, length, step, kind):
    room = length - 2
    step = step if step is None or step <= room else room
    own = encoder_of(kind, max_length=length, long_text="window", step=step).encode(["a", text])
    content = tokens_of(kind, text)
    cls, sep, _ = (tiny_tokenizer(kind).token_to_id(token) for token in SPECIAL[kind])
    move = step if step is not None else max(1, room * 3 // 4)
    wanted, start = [], 0
    while True:
        wanted.append([cls, *content[start : start + room], sep])
        if start + room >= len(content):
            break
        start += move
    assert [ids for ids, _ in windows_of(own)[1:]] == wanted
    assert own.example.tolist() == [0] + [1] * len(wanted)
    assert own.windowed == (len(wanted) > 1)
    assert own.truncated == 0


@settings(max_examples=60)
@given(first=texts, second=texts, length=st.integers(6, 40), step=st.none() | st.integers(1, 4))
def test_windows_of_a_pair_keep_the_first_text_whole_and_cover_the_second(first, second, length, step):
    own = encoder_of(max_length=length, long_text="window", step=step).encode([first], [second])
    a, b = tokens_of("bert", first), tokens_of("bert", second)
    cls, sep, _ = (tiny_tokenizer().token_to_id(token) for token in SPECIAL["bert"])
    found = windows_of(own)
    assert all(len(ids) <= length for ids, _ in found)
    room = length - 3 - len(a)
    if len(a) + len(b) <= length - 3:
        assert found == [([cls, *a, sep, *b, sep], [0] * (len(a) + 2) + [1] * (len(b) + 1))]
        assert (own.truncated, own.windowed) == (0, 0)
    elif len(a) < (length - 3) // 2:  # room enough for the second
        assert (own.truncated, own.windowed) == (0, 1)
        head = [cls, *a, sep]
        assert all(ids[: len(head)] == head and ids[-1] == sep for ids, _ in found)
        assert all(kinds == [0] * len(head) + [1] * (len(ids) - len(head)) for ids, kinds in found)
        parts = [ids[len(head) : -1] for ids, _ in found]
        move = room - room // 4 if step is None else min(step, room)
        assert parts == [b[at : at + room] for at in range(0, max(1, len(b) - room + move), move)]
        assert len(parts) > 1
        covered = parts[0] + [token for part in parts[1:] for token in part[room - move :]]
        assert covered == b
    else:  # read as if cut
        assert len(found) == 1
        assert (own.truncated, own.windowed) == (1, 0)
        assert windows_of(encoder_of(max_length=length).encode([first], [second])) == found


@pytest.mark.parametrize("long_text", ["cut", "window"])
def test_counts(long_text):
    own = encoder_of(max_length=8, long_text=long_text).encode(["good", "good " * 6, "good " * 7, "good " * 50, ""])
    assert (own.truncated, own.windowed) == ((2, 0) if long_text == "cut" else (0, 2))
    assert sorted(set(own.example.tolist())) == [0, 1, 2, 3, 4]
    assert own.lengths.max() == 8
    assert own.lengths.min() == 2  # an empty text is [CLS] [SEP]
    assert len(own) == len(own.lengths) == len(own.example)


def own_settings():
    tokenizer = tiny_tokenizer()
    tokenizer.enable_truncation(5)
    tokenizer.enable_padding(length=30, pad_id=0, pad_token="[PAD]", direction="left")
    return tokenizer


def test_a_tokenizers_own_truncation_and_padding_are_never_inherited(tmp_path):
    wanted = windows_of(encoder_of(max_length=20).encode(["good " * 12, "bad"]))
    own_settings().save(str(tmp_path / "tokenizer.json"))
    written = json.loads((tmp_path / "tokenizer.json").read_text())
    assert written["truncation"]["max_length"] == 5
    assert written["padding"]["strategy"] == {"Fixed": 30}
    for encoder in (TextEncoder.from_folder(tmp_path, max_length=20), TextEncoder(own_settings(), max_length=20)):
        assert windows_of(encoder.encode(["good " * 12, "bad"])) == wanted
        assert encoder.encode(["good " * 12]).truncated == 0
        assert encoder.pad_token_id == 0


def test_a_call_leaves_no_trace_in_the_next():
    encoder = encoder_of(max_length=8, long_text="window")
    first = windows_of(encoder.encode(["good " * 30]))
    encoder.encode(["good " * 30], ["bad " * 30])
    assert encoder.tokenizer.truncation is None
    assert windows_of(encoder.encode(["good " * 30])) == first


@pytest.mark.parametrize("kind", KINDS)
def test_the_padding_id_is_the_vocabularys(kind):
    encodings = encoder_of(kind, max_length=20).encode(["good", "good good good"])
    wanted = tiny_tokenizer(kind).token_to_id(SPECIAL[kind][2])
    batch = encodings.batch(np.array([0, 1]))
    assert encodings.pad_token_id == wanted
    assert batch["input_ids"][0, 3:].tolist() == [wanted, wanted]
    assert batch["attention_mask"].tolist() == [[1, 1, 1, 0, 0], [1] * 5]
    assert batch["token_type_ids"].tolist() == [[0] * 5] * 2


@settings(max_examples=40)
@given(lengths=st.lists(st.integers(0, 9), min_size=1, max_size=8), seed=st.integers(0, 99))
def test_batches_of_any_windows_in_any_order(lengths, seed):
    encodings = encoder_of(max_length=30).encode(["good " * length for length in lengths], ["bad"] * len(lengths))
    chosen = np.random.default_rng(seed).integers(0, len(lengths), 5)
    batch = encodings.batch(chosen)
    longest = max(lengths[row] for row in chosen) + 4
    for place, row in enumerate(chosen):
        ids, kinds = windows_of(encodings)[row]
        gap = [0] * (longest - len(ids))
        assert batch["input_ids"][place].tolist() == ids + [encodings.pad_token_id] * len(gap)
        assert batch["token_type_ids"][place].tolist() == kinds + gap
        assert batch["attention_mask"][place].tolist() == [1] * len(ids) + gap


def test_nothing_to_encode():
    encodings = encoder_of(max_length=8).encode([])
    assert len(encodings) == 0
    assert encodings.starts.tolist() == [0]
    assert encodings.batch(np.zeros(0, dtype=np.int64))["input_ids"].shape == (0, 0)


def test_many_texts_are_read_in_chunks_and_keep_their_order():
    many = [f"{LETTERS[number % 26]} {'good ' * (number % 7)}" for number in range(9000)]
    encodings = encoder_of(max_length=6, long_text="window", step=2).encode(many)
    assert np.array_equal(np.unique(encodings.example), np.arange(9000))
    assert np.all(np.diff(encodings.example) >= 0)
    for number in (0, 4095, 4096, 8999):
        start = encodings.starts[np.searchsorted(encodings.example, number)]
        assert encodings.input_ids[start + 1] == tiny_tokenizer().token_to_id(LETTERS[number % 26])
    assert encodings.input_ids.dtype == np.int32
    assert encodings.token_type_ids.dtype == np.int8
    assert encodings.starts.dtype == encodings.example.dtype == np.int64


def test_lone_surrogates_are_replaced_and_pairs_of_them_joined():
    encoder = encoder_of(max_length=20)
    assert windows_of(encoder.encode(["good \ud800 bad"])) == windows_of(encoder.encode(["good \ufffd bad"]))
    assert windows_of(encoder.encode(["\ud83d\ude00"])) == windows_of(encoder.encode(["\U0001f600"]))
    encoder.encode(["good"], ["\udfff"])


@pytest.mark.parametrize("text", ["\0", "\u200b" * 50, "a\u0301" * 30, "[MASK] [SEP]", "x" * 100_000, "\r\n\t"])
def test_odd_texts_are_read(text):
    encodings = encoder_of(max_length=16, long_text="window").encode([text, "good"])
    assert encodings.example[-1] == 1
    assert encodings.lengths.max() <= 16


@pytest.mark.parametrize("step", [0, -1, 7, 100])
def test_a_step_that_skips_tokens_or_stands_still_is_refused(step):
    with pytest.raises(ModelError, match=f"a window step of {step} tokens; expected 1 to 6"):
        encoder_of(max_length=8, long_text="window", step=step)


@pytest.mark.parametrize("length", [0, 1, 2])
def test_a_length_without_room_is_refused(length):
    with pytest.raises(ModelError, match=f"a maximum length of {length} tokens"):
        encoder_of(max_length=length)


def test_a_length_without_room_for_a_pair_is_refused():
    encoder = encoder_of(max_length=3)
    encoder.encode(["good"])
    with pytest.raises(ModelError, match="a maximum length of 3 tokens for pairs"):
        encoder.encode(["good"], ["bad"])


def test_sides_of_different_length_are_refused():
    with pytest.raises(ValueError, match="shorter"):
        encoder_of(max_length=9).encode(["a", "b"], ["c"])


def test_folders_without_a_tokenizer_or_with_a_damaged_one(tmp_path):
    with pytest.raises(ModelError, match="has no tokenizer.json".replace(".", r"\.")):
        TextEncoder.from_folder(tmp_path, max_length=9)
    (tmp_path / "tokenizer.json").write_text("{broken")
    with pytest.raises(ModelError, match="cannot be read"):
        TextEncoder.from_folder(tmp_path, max_length=9)


def test_a_tokenizer_without_padding_is_refused():
    tokenizer = Tokenizer(models.WordLevel({"a": 0, "[UNK]": 1}, unk_token="[UNK]"))
    with pytest.raises(ModelError, match="without a padding token"):
        TextEncoder(tokenizer, max_length=9)
