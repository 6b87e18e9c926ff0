"""Nearest words, against a plain loop over all words."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from potstill.data.neighbours import StaticNeighbours
from potstill.errors import DataError

GLOVE = Path(__file__).parents[2].parent / "shared" / "data" / "vectors" / "glove.6B.50d.7.8k.txt"
real = pytest.mark.skipif(not GLOVE.is_file(), reason="the real word vectors are not beside the repository")


def ask(neighbours, *words):
    return [list(found) for found in neighbours.propose([words] * len(words), range(len(words)))]


def plain(words, matrix, word, k):
    at = words.index(word)
    near = [
        (-float(row @ matrix[at]) / float(np.linalg.norm(row) * np.linalg.norm(matrix[at])), other)
        for other, row in zip(words, matrix, strict=True)
        if other != word
    ]
    return [other for _, other in sorted(near)[:k]]


@given(st.integers(2, 700), st.integers(1, 20), st.integers(0, 1000))
def test_nearest_words_are_those_of_a_plain_loop(size, k, seed):
    generator = np.random.default_rng(seed)
    words = ["w" + "".join(chr(97 + int(digit)) for digit in str(i)) for i in range(size)]
    matrix = generator.normal(size=(size, 6)) * generator.uniform(0.1, 100, size=(size, 1))
    asked = [words[i] for i in generator.integers(0, size, 3)]
    found = ask(StaticNeighbours.from_vectors(words, matrix, k), *asked)
    assert found == [plain(words, matrix, word, k) for word in asked]


def test_more_words_than_one_block():
    words = [chr(97 + i // 676) + chr(97 + i // 26 % 26) + chr(97 + i % 26) for i in range(1000)]
    angle = np.arange(1000) / 1000 * np.pi
    neighbours = StaticNeighbours.from_vectors(words, np.stack([np.cos(angle), np.sin(angle)], 1), 2)
    found = ask(neighbours, *words)
    assert all(
        {words[max(0, i - 2)], words[min(999, i + 2)], words[i - 1], words[(i + 1) % 1000]} >= set(near)
        for i, near in enumerate(found)
    )
    assert ask(neighbours, words[7]) == [found[7]]


def test_neither_a_word_nor_a_casing_of_it_is_its_neighbour():
    words = ["Movie", "movie", "MOVIE", "film", "Film", "3d", "##ing", "[MASK]", "co-op", "sky"]
    neighbours = StaticNeighbours.from_vectors(words, np.ones((10, 2)) + np.arange(20).reshape(10, 2) / 100, 15)
    assert neighbours.words == ("Movie", "film", "sky")
    assert [sorted(found) for found in ask(neighbours, "mOvie", "FILM", "3d", "absent")] == [
        ["film", "sky"],
        ["Movie", "sky"],
        [],
        [],
    ]
    assert "MOVIE" in neighbours
    assert "3d" not in neighbours


def test_rows_that_have_no_direction_are_left_out():
    matrix = np.array([[1, 0], [0, 0], [np.nan, 1], [np.inf, 1], [1e30, 1e30], [1e-30, 0]], np.float32)
    neighbours = StaticNeighbours.from_vectors(["a", "b", "c", "d", "e", "f"], matrix, 5)
    assert neighbours.words == ("a", "e", "f")
    assert ask(neighbours, "a", "b") == [["f", "e"], []]
    assert np.isfinite(neighbours.unit).all()


def test_a_table_of_one_word_proposes_nothing():
    assert ask(StaticNeighbours.from_vectors(["a"], np.ones((1, 3)), 5), "a", "b") == [[], []]
    assert ask(StaticNeighbours.from_vectors([], np.ones((0, 3)), 5), "a") == [[]]


def test_arguments_that_cannot_be():
    with pytest.raises(ValueError, match="2 words, 3 vectors"):
        StaticNeighbours.from_vectors(["a", "b"], np.ones((3, 2)))
    with pytest.raises(ValueError, match="k = 0"):
        StaticNeighbours.from_vectors(["a"], np.ones((1, 2)), 0)


def test_a_glove_file(tmp_path):
    path = tmp_path / "vectors.txt"
    path.write_text("5 3\ncat 1 0 0\ndog 0.9 0.1 0\n. . . 0 1 0\nDog 0 0 1\nfish 0.5 0.5 0\n")
    neighbours = StaticNeighbours.from_glove(path, 2)
    assert neighbours.words == ("cat", "dog", "fish")
    assert ask(neighbours, "Cat") == [["dog", "fish"]]
    assert StaticNeighbours.from_glove(path, 2, limit=3).words == ("cat", "dog")


def test_lines_without_vectors(tmp_path):
    path = tmp_path / "vectors.txt"
    warned = []

    class Reporter:
        def progress(self, done, total, **values): ...

        def warn(self, message):
            warned.append(message)

    good = [f"{'abcdefghij'[i // 100]}{'abcdefghij'[i // 10 % 10]}{'abcdefghij'[i % 10]} {i} 1\n" for i in range(300)]
    path.write_text("".join([*good, "cut 0.\n", "word 1 x\n", "word 1 2\n"]))
    assert len(StaticNeighbours.from_glove(path, report=Reporter()).words) == 301
    assert [message.partition(": ")[2] for message in warned] == ["2 of 303 lines hold no word vector and are left out"]
    path.write_text("".join([*good[:50], "word 1 x\n"]))
    with pytest.raises(DataError, match="1 of 51 lines hold no word vector"):
        StaticNeighbours.from_glove(path)
    path.write_text("just text\n")
    with pytest.raises(DataError, match="hold no word vector"):
        StaticNeighbours.from_glove(path)
    with pytest.raises(DataError, match="does not exist"):
        StaticNeighbours.from_glove(tmp_path / "absent")


@real
def test_real_vectors():
    lines = [line.split(" ") for line in GLOVE.read_text(encoding="utf-8").splitlines()]
    words = [line[0] for line in lines if line[0].isalpha()]
    matrix = np.array([line[1:] for line in lines if line[0].isalpha()], dtype=np.float64)
    neighbours = StaticNeighbours.from_glove(GLOVE)
    assert neighbours.words == tuple(words)
    for word in ("movie", "good", "france", "two"):
        assert ask(neighbours, word) == [plain(words, matrix, word, 15)]
