"""Plain texts, joined and cut into windows of one length, in a file: memory stays flat whatever their number.

Texts follow one another with a separator between them and no padding, as RoBERTa's FULL-SENTENCES do (Liu et al.,
arXiv 1907.11692, section 4.2); each window stands between the tokenizer's special tokens.
"""

from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

import numpy as np

from potstill.data.encoding import Encodings, TextEncoder, readable
from potstill.errors import StorageError
from potstill.storage import read_json, write_json

__all__ = ["open_packed", "pack_texts"]

_TEXTS_AT_ONCE = 4096
_TOKENS, _FACTS = "tokens.int32", "packed.json"


def pack_texts(texts: Iterable[str], encoder: TextEncoder, folder: Path, *, max_tokens: int | None = None) -> Encodings:
    """Write windows of `encoder.max_length` tokens into `folder`, and open them.

    The last window is as long as what is left for it.

    Args:
        texts: Read once, in order.
        encoder: Whose tokenizer and maximum length.
        folder: Exists.
        max_tokens: Stop after this many tokens, special tokens not counted; None means all.

    Returns:
        As `open_packed`; no window at all where the texts hold no token.
    """
    before, after = _frame(encoder)
    room = encoder.max_length - len(before) - len(after)
    separator = after[:1]
    rest = np.zeros(0, dtype=np.int32)
    left = np.inf if max_tokens is None else max_tokens
    written = 0
    with (folder / _TOKENS).open("wb") as file:
        for tokens in _tokens(texts, encoder, separator):
            tokens = np.concatenate([rest, tokens])[: None if np.isinf(left) else int(left)]
            whole = len(tokens) // room
            rows = tokens[: whole * room].reshape(whole, room)
            framed = np.concatenate([np.tile(before, (whole, 1)), rows, np.tile(after, (whole, 1))], axis=1)
            file.write(framed.astype(np.int32).tobytes())
            written += framed.size
            rest, left = tokens[whole * room :], left - whole * room
            if len(rest) >= left:
                break
        if len(rest):
            last = np.concatenate([before, rest, after]).astype(np.int32)
            file.write(last.tobytes())
            written += len(last)
    facts = {"length": encoder.max_length, "tokens": written, "pad_token_id": encoder.pad_token_id}
    write_json(folder / _FACTS, facts)
    return open_packed(folder)


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


def _tokens(texts: Iterable[str], encoder: TextEncoder, separator: np.ndarray) -> Iterator[np.ndarray]:
    """Tokens of many texts at a time; the separator stands before each text but the first."""
    waiting, is_first = iter(texts), True
    while chunk := [readable(text) for text in islice(waiting, _TEXTS_AT_ONCE)]:
        parts: list[np.ndarray] = []
        for encoding in encoder.tokenizer.encode_batch(chunk, add_special_tokens=False):
            ids = np.array(encoding.ids, dtype=np.int32)
            if len(ids):
                parts += [ids] if is_first else [separator, ids]
                is_first = False
        yield np.concatenate([np.zeros(0, dtype=np.int32), *parts])


def _frame(encoder: TextEncoder) -> tuple[np.ndarray, np.ndarray]:
    """Special tokens before and after a single text."""
    encoding = encoder.tokenizer.encode("a")
    special = np.array(encoding.special_tokens_mask, dtype=bool)
    inside = np.flatnonzero(~special)
    ids = np.array(encoding.ids, dtype=np.int32)
    return ids[: inside[0]], ids[inside[-1] + 1 :]
