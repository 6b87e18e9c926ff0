"""Plain texts, joined and cut into windows of one length, in a file: memory stays flat whatever their number.

Texts follow one another with a separator between them and no padding, as RoBERTa's FULL-SENTENCES do (Liu et al.,
arXiv 1907.11692, section 4.2); each window stands between the tokenizer's special tokens.
"""

import os
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Self

import numpy as np

from potstill.data.encoding import Encodings, TextEncoder, readable
from potstill.errors import StorageError
from potstill.storage import read_json, write_json

__all__ = ["open_packed", "pack_texts"]

_TEXTS_AT_ONCE = 4096
_TOKENS, _FACTS, _NOTES = "tokens.int32", "packed.json", "packing.json"

PART = 1 << 22
"""Tokens between two notes of how far a packing has come."""


def pack_texts(texts: Iterable[str], encoder: TextEncoder, folder: Path, *, max_tokens: int | None = None) -> Encodings:
    """Write windows of `encoder.max_length` tokens into `folder`, and open them.

    The last window is as long as what is left for it. What is written is noted every `PART` tokens: a call that was
    killed is gone on with by the same call, which passes over the texts that were packed and ends in the same bytes.

    Args:
        texts: Read once, in order; the same at every call.
        encoder: Whose tokenizer and maximum length.
        folder: Exists; for these texts alone.
        max_tokens: Stop after this many tokens, special tokens not counted; None means all.

    Returns:
        As `open_packed`; no window at all where the texts hold no token.
    """
    if (folder / _FACTS).is_file():
        return open_packed(folder)
    before, after = _frame(encoder)
    room = encoder.max_length - len(before) - len(after)
    packed = _Packed.resumed(folder)
    with (folder / _TOKENS).open("r+b" if packed.written else "wb") as file:
        file.truncate(4 * packed.written)
        file.seek(0, os.SEEK_END)

        def write(rows: np.ndarray) -> None:
            framed = np.concatenate([np.tile(before, (len(rows), 1)), rows, np.tile(after, (len(rows), 1))], axis=1)
            file.write(framed.astype(np.int32).tobytes())
            packed.written += framed.size

        noted = packed.written
        for count, tokens in _tokens(islice(texts, packed.texts, None), encoder, after[:1], is_first=packed.is_first):
            left = None if max_tokens is None else max_tokens - packed.taken
            tokens = np.concatenate([packed.rest, tokens])[:left]
            whole = len(tokens) // room
            write(tokens[: whole * room].reshape(whole, room))
            packed.rest, packed.texts = tokens[whole * room :], packed.texts + count
            packed.taken += whole * room
            packed.is_first = packed.is_first and not packed.taken and not len(packed.rest)
            if max_tokens is not None and packed.taken + len(packed.rest) >= max_tokens:
                break
            if packed.written - noted >= PART:
                noted = packed.written
                file.flush()
                os.fsync(file.fileno())
                packed.note(folder)
        if len(packed.rest):
            write(packed.rest[None])
    facts = {"length": encoder.max_length, "tokens": packed.written, "pad_token_id": encoder.pad_token_id}
    write_json(folder / _FACTS, facts)
    (folder / _NOTES).unlink(missing_ok=True)
    return open_packed(folder)


@dataclass
class _Packed:
    """How far a packing has come.

    Attributes:
        texts: Texts read.
        taken: Tokens in whole windows, special tokens of windows not counted.
        written: Tokens in the file.
        rest: int32, tokens that wait for a window to be full.
        is_first: Whether no token was met yet.
    """

    texts: int
    taken: int
    written: int
    rest: np.ndarray
    is_first: bool

    @classmethod
    def resumed(cls, folder: Path) -> Self:
        """What the folder notes, where its file holds as much; else nothing."""
        if (folder / _NOTES).is_file() and (folder / _TOKENS).is_file():
            found = read_json(folder / _NOTES)
            if (folder / _TOKENS).stat().st_size >= 4 * found["written"]:
                return cls(**{**found, "rest": np.array(found["rest"], dtype=np.int32)})
        return cls(0, 0, 0, np.zeros(0, dtype=np.int32), True)

    def note(self, folder: Path) -> None:
        """Write it down; the file's bytes are on the disk already."""
        write_json(folder / _NOTES, {**asdict(self), "rest": self.rest.tolist()})


def open_packed(folder: Path) -> Encodings:
    """The windows that `pack_texts` wrote; tokens are read from the file as they are needed.

    Raises:
        StorageError: The file has not the size that was written.
    """
    facts = read_json(folder / _FACTS)
    length, total, path = facts["length"], facts["tokens"], folder / _TOKENS
    if not path.is_file() or path.stat().st_size != 4 * total:
        raise StorageError(
            f"{path} is missing or damaged", expected=f"{4 * total} bytes", fix="remove it and run again"
        )
    tokens = np.memmap(path, dtype=np.int32, mode="r") if total else np.zeros(0, dtype=np.int32)
    count = -(-total // length)
    starts = np.minimum(np.arange(count + 1, dtype=np.int64) * length, total)
    kinds = np.broadcast_to(np.int8(0), total)
    return Encodings(tokens, kinds, starts, np.arange(count, dtype=np.int64), 0, 0, facts["pad_token_id"])


def _tokens(
    texts: Iterator[str], encoder: TextEncoder, separator: np.ndarray, *, is_first: bool
) -> Iterator[tuple[int, np.ndarray]]:
    """Many texts at a time: how many, and their tokens; the separator stands before each text but the first."""
    while chunk := [readable(text) for text in islice(texts, _TEXTS_AT_ONCE)]:
        parts: list[np.ndarray] = []
        for encoding in encoder.tokenizer.encode_batch(chunk, add_special_tokens=False):
            ids = np.array(encoding.ids, dtype=np.int32)
            if len(ids):
                parts += [ids] if is_first else [separator, ids]
                is_first = False
        yield len(chunk), np.concatenate([np.zeros(0, dtype=np.int32), *parts])


def _frame(encoder: TextEncoder) -> tuple[np.ndarray, np.ndarray]:
    """Special tokens before and after a single text."""
    encoding = encoder.tokenizer.encode("a")
    special = np.array(encoding.special_tokens_mask, dtype=bool)
    inside = np.flatnonzero(~special)
    ids = np.array(encoding.ids, dtype=np.int32)
    return ids[: inside[0]], ids[inside[-1] + 1 :]
