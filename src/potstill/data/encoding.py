"""Texts to token ids, with `tokenizers` alone (no torch, so that an engine without torch can use it).

A tokenizer file may carry a truncation and padding of its own (sentence encoders often say 128): both are always set
here, never inherited. What does not fit is cut or windowed as told, and counted.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from tokenizers import Encoding, Tokenizer

from potstill.data.spans import Spans, template_specials
from potstill.errors import ModelError

__all__ = ["Encodings", "LongText", "TextEncoder", "readable"]

LongText = Literal["cut", "window"]

_CHUNK = 4096


@dataclass(frozen=True)
class Encodings:
    """Encoded texts, flat: window w is `input_ids[starts[w]:starts[w + 1]]`.

    A text that fits is one window. n texts give m ≥ n windows.

    Attributes:
        input_ids: int32 (total tokens,).
        token_type_ids: int8 (total tokens,); 1 on the second text of a pair where the tokenizer says so.
        starts: int64 (m + 1,).
        example: int64 (m,); the position of the text that each window belongs to, ascending.
        truncated: How many texts lost tokens.
        windowed: How many texts were read in more than one window.
        pad_token_id: The id that pads.
        spans: Where each token stands in its text; None where it was not asked for.
    """

    input_ids: np.ndarray
    token_type_ids: np.ndarray
    starts: np.ndarray
    example: np.ndarray
    truncated: int
    windowed: int
    pad_token_id: int
    spans: Spans | None = None

    def __len__(self) -> int:
        return len(self.example)

    @property
    def lengths(self) -> np.ndarray:
        """int64 (m,): tokens in each window, special tokens included."""
        return np.diff(self.starts)

    def select(self, windows: np.ndarray) -> "Encodings":
        """Some of the windows, in the order given, each a text of its own."""
        kept = [slice(self.starts[window], self.starts[window + 1]) for window in windows]
        return Encodings(
            np.concatenate([self.input_ids[:0], *(self.input_ids[part] for part in kept)]),
            np.concatenate([self.token_type_ids[:0], *(self.token_type_ids[part] for part in kept)]),
            np.concatenate([[0], np.cumsum(self.lengths[windows])]).astype(np.int64),
            np.arange(len(windows), dtype=np.int64),
            0,
            0,
            self.pad_token_id,
        )

    def batch(self, windows: np.ndarray) -> dict[str, np.ndarray]:
        """The windows, padded to the longest of them.

        Returns:
            `input_ids`, `attention_mask`, `token_type_ids`, each int64 (len(windows), longest).
        """
        lengths = self.starts[windows + 1] - self.starts[windows]
        position = np.arange(int(lengths.max(initial=0)))
        real = position[None, :] < lengths[:, None]
        index = np.where(real, self.starts[windows][:, None] + position[None, :], 0)
        return {
            "input_ids": np.where(real, self.input_ids[index], self.pad_token_id).astype(np.int64),
            "attention_mask": real.astype(np.int64),
            "token_type_ids": np.where(real, self.token_type_ids[index], 0).astype(np.int64),
        }


class TextEncoder:
    """Encodes texts, or pairs, to a model's ids.

    Args:
        tokenizer: A `tokenizers.Tokenizer`; its own truncation and padding are switched off.
        max_length: Longest input in tokens, special tokens included.
        long_text: `cut` drops what does not fit (from the longer text of a pair first); `window` reads it in several
            windows. Of a pair only the second text is windowed, and only where the first leaves room for it.
        step: Content tokens between the starts of two windows; None means three quarters of a window. A pair's window
            that holds fewer of the second text moves by what it holds.

    Raises:
        ModelError: A step that would skip tokens, a maximum length without room, or no padding token.
    """

    def __init__(
        self, tokenizer: Tokenizer, *, max_length: int, long_text: LongText = "cut", step: int | None = None
    ) -> None:
        self.tokenizer = tokenizer
        self.max_length, self.long_text = max_length, long_text
        tokenizer.no_truncation()
        padding = tokenizer.padding
        tokenizer.no_padding()
        self.pad_token_id = _pad_token_id(tokenizer, padding)
        room = max_length - tokenizer.num_special_tokens_to_add(False)
        if room < 1:
            raise ModelError(f"a maximum length of {max_length} tokens", expected="room beside the special tokens")
        self._given_step = step
        self.step = step if step is not None else max(1, room * 3 // 4)
        if not 1 <= self.step <= room:
            raise ModelError(
                f"a window step of {self.step} tokens", expected=f"1 to {room}, so that no token is skipped"
            )

    @classmethod
    def from_folder(
        cls, folder: Path, *, max_length: int, long_text: LongText = "cut", step: int | None = None
    ) -> "TextEncoder":
        """Read `tokenizer.json` in a model's folder.

        Raises:
            ModelError: It is absent or damaged, or as the constructor says.
        """
        path = folder / "tokenizer.json"
        if not path.is_file():
            raise ModelError(f"{folder} has no tokenizer.json", fix="save its fast tokenizer with save_pretrained")
        try:
            tokenizer = Tokenizer.from_file(str(path))
        except Exception as error:  # the library raises no narrower one
            raise ModelError(f"{path} cannot be read: {error}", fix="fetch the model again") from error
        return cls(tokenizer, max_length=max_length, long_text=long_text, step=step)

    def encode(
        self, texts: Sequence[str], pairs: Sequence[str] | None = None, *, with_spans: bool = False
    ) -> Encodings:
        """Encode n texts, or n pairs, into m ≥ n windows. A lone surrogate is read as U+FFFD.

        Args:
            texts: The texts, or the first of each pair.
            pairs: The second; None where there are no pairs.
            with_spans: Whether to keep where each token stands in its text: 9 bytes a token.

        Raises:
            ModelError: Pairs under a maximum length without room for one token.
        """
        if pairs is not None and self.max_length <= self.tokenizer.num_special_tokens_to_add(True):
            raise ModelError(f"a maximum length of {self.max_length} tokens for pairs", expected="more")
        first = [readable(text) for text in texts]
        inputs = first if pairs is None else list(zip(first, map(readable, pairs), strict=True))
        # One array a chunk: lists of Python integers would take ten times the memory.
        ids, kinds, lengths, example = ([np.zeros(0, dtype=np.int64)] for _ in range(4))
        spans: list[Spans] = []
        specials = template_specials(self.tokenizer, is_pair=pairs is not None) if with_spans else (0, 0)
        truncated = windowed = 0
        for start in range(0, len(inputs), _CHUNK):
            windows: list[Encoding] = []
            owners: list[int] = []
            for position, encoding in enumerate(self.tokenizer.encode_batch(inputs[start : start + _CHUNK]), start):
                fits = len(encoding.ids) <= self.max_length
                own = [encoding] if fits else self._shorten(inputs[position])
                truncated += not fits and (self.long_text == "cut" or len(own) == 1)
                windowed += not fits and self.long_text == "window" and len(own) > 1
                windows += own
                owners += [position] * len(own)
            ids.append(np.fromiter((token for window in windows for token in window.ids), dtype=np.int32))
            kinds.append(np.fromiter((kind for window in windows for kind in window.type_ids), dtype=np.int8))
            lengths.append(np.fromiter((len(window.ids) for window in windows), dtype=np.int64))
            example.append(np.array(owners, dtype=np.int64))
            if with_spans:
                spans.append(Spans.of(windows, [inputs[owner] for owner in owners], specials))
        return Encodings(
            np.concatenate(ids, dtype=np.int32, casting="unsafe"),
            np.concatenate(kinds, dtype=np.int8, casting="unsafe"),
            np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(np.concatenate(lengths))]),
            np.concatenate(example),
            truncated,
            windowed,
            self.pad_token_id,
            Spans.joined(spans) if with_spans else None,
        )

    def count(self, texts: Sequence[str], pairs: Sequence[str] | None = None) -> np.ndarray:
        """Tokens of each whole text, or pair, special tokens included, int64 (n,): what `encode` has to fit or cut."""
        first = [readable(text) for text in texts]
        inputs = first if pairs is None else list(zip(first, map(readable, pairs), strict=True))
        counts = np.zeros(len(inputs), dtype=np.int64)
        for start in range(0, len(inputs), _CHUNK):
            encoded = self.tokenizer.encode_batch(inputs[start : start + _CHUNK])
            counts[start : start + len(encoded)] = [len(one.ids) for one in encoded]
        return counts

    def _shorten(self, text: str | tuple[str, str]) -> list[Encoding]:
        is_pair = isinstance(text, tuple)
        room = self.max_length - self.tokenizer.num_special_tokens_to_add(is_pair)
        overflow: dict[str, object] = {"stride": 0, "strategy": "longest_first"}
        if self.long_text == "window":
            first = len(self.tokenizer.encode(text[0], add_special_tokens=False).ids) if is_pair else 0
            if not is_pair:
                overflow = {"stride": room - self.step, "strategy": "longest_first"}
            elif first < room // 2:
                second = room - first
                overlap = second // 4 if self._given_step is None else max(0, second - self._given_step)
                overflow = {"stride": overlap, "strategy": "only_second"}
        try:
            self.tokenizer.enable_truncation(self.max_length, **overflow)
            encoding = self.tokenizer.encode(*text) if is_pair else self.tokenizer.encode(text)
        finally:
            self.tokenizer.no_truncation()
        keeps_windows = self.long_text == "window" and (not is_pair or overflow["strategy"] == "only_second")
        return [encoding, *encoding.overflowing] if keeps_windows else [encoding]


def readable(text: str) -> str:
    """The text with lone surrogates, which no tokenizer takes, as U+FFFD."""
    return text if text.isascii() else text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _pad_token_id(tokenizer: Tokenizer, padding: dict[str, object] | None) -> int:
    if padding is not None:
        return int(padding["pad_id"])  # type: ignore[call-overload, no-any-return]
    for token in ("[PAD]", "<pad>"):
        if (identifier := tokenizer.token_to_id(token)) is not None:
            return int(identifier)
    raise ModelError("a tokenizer without a padding token", expected="[PAD] or <pad> in its vocabulary")
