"""Words that are one piece of a vocabulary, in the three ways that vocabularies mark them, and their embedding rows."""

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from tests.tiny import tiny_bert, tiny_tokenizer
from tokenizers import Tokenizer, models
from transformers import AutoModelForSequenceClassification

from potstill.errors import ModelError
from potstill.models.vocabulary import whole_words, word_rows

PIECES = {"[UNK]": 0, "film": 1, "##s": 2, "a": 3, "3d": 4, "été": 5, "##film": 6, ".": 7}
WORDPIECE = Tokenizer(models.WordPiece(PIECES, unk_token="[UNK]"))
BYTE_LEVEL = Tokenizer(models.BPE({"film": 0, "Ġfilm": 1, "Ġa": 2, "s": 3, "Ġ3d": 4, "Ġ": 5, "ĠFilm": 6}, merges=[]))
UNIGRAM = Tokenizer(models.Unigram([("<unk>", 0.0), ("▁film", -1.0), ("s", -2.0), ("▁", -3.0)], unk_id=0))


def test_word_pieces():
    test = whole_words(WORDPIECE)
    assert [test(word) for word in ("film", "Film", "a", "été")] == [True] * 4
    assert [test(word) for word in ("s", "films", "3d", ".", "", "##s")] == [False] * 6


def test_byte_level_pieces_begin_with_a_mark():
    test = whole_words(BYTE_LEVEL)
    assert [test(word) for word in ("film", "Film", "FILM", "a")] == [True] * 4
    assert [test(word) for word in ("s", "3d", "", "Ġfilm")] == [False] * 4


def test_unigram_pieces_begin_with_a_mark():
    test = whole_words(UNIGRAM)
    assert test("film")
    assert not test("s")
    assert not test("")


def test_rows_are_those_of_the_models_table(tmp_path):
    folder = tiny_bert(tmp_path / "model")
    tokenizer = tiny_tokenizer()
    words, rows = word_rows(folder, tokenizer)
    assert words == sorted(words)
    assert {"film", "good", "the"} <= set(words)
    assert not any(word.startswith("#") or "[" in word or not word.isalpha() for word in words)
    table = AutoModelForSequenceClassification.from_pretrained(folder).base_model.get_input_embeddings().weight
    wanted = table.detach()[[tokenizer.token_to_id(word) for word in words]]
    np.testing.assert_array_equal(rows, wanted.numpy())
    assert rows.dtype == np.float32


def test_a_table_in_bfloat16_and_words_past_its_end(tmp_path):
    save_file({"x.word_embeddings.weight": torch.ones(4, 2).bfloat16()}, tmp_path / "model.safetensors")
    words, rows = word_rows(tmp_path, WORDPIECE)
    assert words == ["a", "film"]
    assert rows.dtype == np.float32


def test_no_table_and_damaged_files(tmp_path):
    with pytest.raises(ModelError, match="has no table of word embeddings"):
        word_rows(tmp_path, WORDPIECE)
    save_file({"other": torch.ones(4, 2)}, tmp_path / "model.safetensors")
    with pytest.raises(ModelError, match="has no table of word embeddings"):
        word_rows(tmp_path, WORDPIECE)
    (tmp_path / "model.safetensors").write_bytes(b"\0" * 100)
    with pytest.raises(ModelError, match="cannot be read"):
        word_rows(tmp_path, WORDPIECE)
