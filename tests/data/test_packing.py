"""Texts packed into windows: nothing lost, nothing padded, the same however they are read; memory stays flat."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.tiny import WORDS, tiny_tokenizer

from potstill.data import packing
from potstill.data.encoding import TextEncoder
from potstill.data.packing import open_packed, pack_texts
from potstill.errors import StorageError

CLS, SEP = (tiny_tokenizer().token_to_id(name) for name in ("[CLS]", "[SEP]"))


def encoder(length=10):
    return TextEncoder(tiny_tokenizer(), max_length=length)


def plainly(texts, length, max_tokens=None):
    """The windows in the plainest way."""
    tokenizer, stream = tiny_tokenizer(), []
    for text in texts:
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        if ids:
            stream += [*([SEP] if stream else []), *ids]
    stream, room = stream[:max_tokens], length - 2
    return [[CLS, *stream[start : start + room], SEP] for start in range(0, len(stream), room)]


def read(encodings):
    return [encodings.input_ids[a:b].tolist() for a, b in zip(encodings.starts, encodings.starts[1:], strict=False)]


texts_of_words = st.lists(st.lists(st.sampled_from(WORDS), max_size=12).map(" ".join), max_size=12)


@settings(max_examples=60, deadline=None)
@given(texts_of_words, st.integers(4, 12), st.one_of(st.none(), st.integers(1, 60)), st.integers(1, 5))
def test_against_the_plainest_way(tmp_path_factory, texts, length, most, at_once):
    folder = tmp_path_factory.mktemp("packed")
    kept, packing._TEXTS_AT_ONCE = packing._TEXTS_AT_ONCE, at_once
    try:
        packed = pack_texts(iter(texts), encoder(length), folder, max_tokens=most)
    finally:
        packing._TEXTS_AT_ONCE = kept
    assert read(packed) == plainly(texts, length, most)
    again = open_packed(folder)
    assert read(again) == read(packed)
    assert again.pad_token_id == tiny_tokenizer().token_to_id("[PAD]")
    assert not again.token_type_ids.any()


def test_batches_of_windows(tmp_path):
    packed = pack_texts(["the film was good and not so bad", "a dull plot"], encoder(6), tmp_path)
    batch = packed.batch(np.arange(len(packed)))
    assert batch["attention_mask"][:-1].all()
    assert (batch["input_ids"][:, 0] == CLS).all()
    few = packed.select(np.array([1, 0]))
    assert read(few) == [read(packed)[1], read(packed)[0]]
    assert few.token_type_ids.shape == few.input_ids.shape


def test_a_lone_surrogate_is_read(tmp_path):
    assert len(pack_texts(["film \ud800 plot"], encoder(), tmp_path)) == 1


def test_a_damaged_file_is_told(tmp_path):
    pack_texts(["the film was good"], encoder(), tmp_path)
    path = tmp_path / "tokens.int32"
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(StorageError, match="damaged"):
        open_packed(tmp_path)


def test_memory_does_not_grow_with_the_text(tmp_path):
    peaks = []
    for number, rows in enumerate((5_000, 50_000)):
        folder = tmp_path / str(number)
        folder.mkdir()
        tracemalloc.start()
        pack_texts((" ".join(WORDS[:30]) for _ in range(rows)), encoder(64), folder)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.5 * peaks[0]


class Killed(Exception):
    pass


@pytest.mark.parametrize("at", [1, 7, 23, 39])
def test_a_killed_packing_goes_on_to_the_same_bytes(tmp_path, monkeypatch, at):
    monkeypatch.setattr(packing, "PART", 30)
    monkeypatch.setattr(packing, "_TEXTS_AT_ONCE", 2)
    texts = [" ".join(WORDS[i % 7 : i % 7 + 3 + i % 5]) for i in range(40)]

    def until(number):
        for count, text in enumerate(texts):
            if count == number:
                raise Killed
            yield text

    whole, part = tmp_path / "whole", tmp_path / "part"
    whole.mkdir()
    part.mkdir()
    wanted = read(pack_texts(iter(texts), encoder(7), whole))
    with pytest.raises(Killed):
        pack_texts(until(at), encoder(7), part)
    assert not (part / "packed.json").exists()
    with (part / "tokens.int32").open("ab") as file:
        file.write(b"torn")  # what a kill leaves behind the last note
    read_again = []

    def counted():
        for text in texts:
            read_again.append(text)
            yield text

    encoded = []
    own = packing.readable
    monkeypatch.setattr(packing, "readable", lambda text: encoded.append(text) or own(text))
    assert read(pack_texts(counted(), encoder(7), part)) == wanted == plainly(texts, 7)
    assert (part / "tokens.int32").read_bytes() == (whole / "tokens.int32").read_bytes()
    if at > 20:
        assert len(encoded) < len(texts)  # texts that were packed are passed over, not encoded
    assert sorted(path.name for path in part.iterdir()) == ["packed.json", "tokens.int32"]


def test_a_note_without_its_bytes_is_not_believed(tmp_path, monkeypatch):
    monkeypatch.setattr(packing, "PART", 10)
    monkeypatch.setattr(packing, "_TEXTS_AT_ONCE", 1)
    texts = ["the film was good and not so bad"] * 9

    def killed():
        yield from texts[:5]
        raise Killed

    with pytest.raises(Killed):
        pack_texts(killed(), encoder(6), tmp_path)
    (tmp_path / "tokens.int32").write_bytes(b"1234")
    assert read(pack_texts(texts, encoder(6), tmp_path)) == plainly(texts, 6)
