"""Which words are one piece of a tokenizer's vocabulary, and their rows in a model's embedding table."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open
from tokenizers import Tokenizer

from potstill.data.words import WORD_MARKS
from potstill.errors import ModelError

__all__ = ["whole_words", "word_rows"]


def _word_pieces(tokenizer: Tokenizer) -> dict[str, int]:
    """Word → id of the single piece that it is, for pieces of letters alone."""
    vocabulary = tokenizer.get_vocab(with_added_tokens=False)
    marked = [token for token in vocabulary if token.startswith(WORD_MARKS)]
    if marked:  # byte-level BPE and Unigram mark the beginning of a word
        return {token[1:]: vocabulary[token] for token in marked if token[1:].isalpha()}
    return {token: identifier for token, identifier in vocabulary.items() if token.isalpha()}  # WordPiece: no ##


def whole_words(tokenizer: Tokenizer) -> Callable[[str], bool]:
    """A test for words that the tokenizer reads as one piece, in the word's own casing or lower-cased."""
    pieces = frozenset(_word_pieces(tokenizer))
    return lambda word: word in pieces or word.lower() in pieces


def _embedding_table(path: Path) -> np.ndarray | None:
    try:
        with safe_open(str(path), framework="pt") as file:
            names = [name for name in list(file.keys()) if name.endswith("word_embeddings.weight")]
            return np.asarray(file.get_tensor(names[0]).float().numpy()) if names else None
    except SafetensorError as error:
        raise ModelError(f"{path} cannot be read: {error}", fix="fetch the model again") from error


def word_rows(folder: Path, tokenizer: Tokenizer) -> tuple[list[str], np.ndarray]:
    """Whole words and their rows of the input embedding table, float32 (words, width).

    Raises:
        ModelError: No table of word embeddings in the folder's safetensors files, or a damaged file.
    """
    pieces = _word_pieces(tokenizer)
    for path in sorted(folder.glob("*.safetensors")):
        table = _embedding_table(path)
        if table is not None:
            words = sorted(word for word in pieces if pieces[word] < len(table))
            return words, table[[pieces[word] for word in words]]
    raise ModelError(f"{folder} has no table of word embeddings", fix='set augment.method to "glove" or "none"')
