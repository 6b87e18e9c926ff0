"""Words that augmentation leaves alone."""

import pytest

from potstill.data.stopwords import STOP_WORDS, read_stop_words
from potstill.errors import DataError


def test_the_list_is_function_words():
    assert {"the", "of", "not", "no", "never", "and", "is", "ca", "s"} <= STOP_WORDS
    assert not {"good", "bad", "film", "not_", ""} & STOP_WORDS
    assert all(word == word.casefold() and word.isalpha() for word in STOP_WORDS)
    assert 100 < len(STOP_WORDS) < 250


def test_a_file(tmp_path):
    path = tmp_path / "stop.list"
    path.write_bytes("\ufeffThe\n\n NICHT \r\nund\n".encode())
    assert read_stop_words(path) == {"the", "nicht", "und"}
    path.write_bytes(b"the\ncaf\xe9\n")
    with pytest.raises(DataError, match="line 2: not UTF-8"):
        read_stop_words(path)
    with pytest.raises(DataError, match="does not exist"):
        read_stop_words(tmp_path / "absent")
