"""A tokenizer cut to the pieces that a corpus uses: WordPiece, BPE and Unigram. Knows no model.

Of texts whose pieces are all kept, the tokens stay the same, piece for piece: WordPiece takes the longest match, BPE
the first merge, Unigram the best path, and none of them depends on pieces that it did not take. Any other text is split
into smaller pieces that are kept; single characters always are, as far as the corpus (and ASCII) has them.
"""

import json
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from potstill.data.encoding import readable
from potstill.data.words import WORD_MARKS
from potstill.errors import ModelError
from potstill.progress import SILENT, Reporter

__all__ = ["Fit", "count_pieces", "fit_of", "kept_pieces", "pruned_tokenizer"]

_TEXTS_AT_ONCE = 4096
_KINDS = ("WordPiece", "BPE", "Unigram")


def count_pieces(tokenizer: Tokenizer, texts: Sequence[str], report: Reporter = SILENT) -> np.ndarray:
    """How often each piece stands in the texts: int64 (V,), V one more than the largest id."""
    counts = np.zeros(max(tokenizer.get_vocab().values()) + 1, dtype=np.int64)
    for start in range(0, len(texts), _TEXTS_AT_ONCE):
        chunk = [readable(text) for text in texts[start : start + _TEXTS_AT_ONCE]]
        ids = [encoding.ids for encoding in tokenizer.encode_batch(chunk)]
        counts += np.bincount(np.concatenate([np.zeros(0, dtype=np.int64), *ids]).astype(int), minlength=len(counts))
        report.progress(start + len(chunk), len(texts))
    return counts


def kept_pieces(tokenizer: Tokenizer, counts: np.ndarray, *, most: int | None = None) -> np.ndarray:
    """The ids to keep, ascending.

    Kept are special and added tokens, single characters that are ASCII or counted (of byte-level BPE every byte), the
    pieces of `counts` from the most frequent down, and whatever BPE merges on the way to them.

    Args:
        tokenizer: WordPiece, BPE or Unigram.
        counts: By `count_pieces`.
        most: Pieces to keep at most; None means all that are counted.

    Raises:
        ModelError: Another kind of tokenizer, or `most` below what must be kept.
    """
    state = _state(tokenizer)
    vocabulary: dict[str, int] = tokenizer.get_vocab()
    parts = _merged_from(state["model"])
    kept = {entry["id"] for entry in state["added_tokens"]}
    for piece, number in vocabulary.items():
        letter = _letter(piece, state["model"])
        if letter and (letter.isascii() or letter in WORD_MARKS or _always(state) or counts[number]):
            kept.add(number)
    unknown = _unknown(state["model"])
    kept |= {vocabulary[unknown]} if unknown in vocabulary else set()
    if most is not None and len(kept) > most:
        raise ModelError(
            f"a vocabulary of {most:,} pieces",
            expected=f"{len(kept):,} or more: special tokens and single characters",
            fix=f"set student.vocabulary to {len(kept)} at least",
        )
    names = {number: piece for piece, number in vocabulary.items()}
    for number in np.argsort(-counts, kind="stable"):
        if counts[number] == 0:
            break
        needed = _closure(names[int(number)], parts, vocabulary) - kept
        if most is not None and len(kept) + len(needed) > most:
            continue
        kept |= needed
    return np.array(sorted(kept), dtype=np.int64)


def pruned_tokenizer(tokenizer: Tokenizer, kept: np.ndarray) -> Tokenizer:
    """The tokenizer with the pieces `kept` alone (ascending ids); the piece kept[i] becomes piece i."""
    state = _state(tokenizer)
    place = {int(number): index for index, number in enumerate(kept)}
    model = state["model"]
    if model["type"] == "Unigram":
        model["vocab"] = [entry for number, entry in enumerate(model["vocab"]) if number in place]
        model["unk_id"] = None if model.get("unk_id") is None else place[model["unk_id"]]
    else:
        model["vocab"] = {piece: place[number] for piece, number in model["vocab"].items() if number in place}
    if model["type"] == "BPE":
        model["merges"] = [
            [first, second]
            for first, second in map(_pair, model["merges"])
            if {first, second, _joined(first, second, model)} <= model["vocab"].keys()
        ]
    state["added_tokens"] = [{**entry, "id": place[entry["id"]]} for entry in state["added_tokens"]]
    state["post_processor"] = _renumbered(state.get("post_processor"), place)
    if state.get("padding"):
        state["padding"]["pad_id"] = place[state["padding"]["pad_id"]]
    return Tokenizer.from_str(json.dumps(state))


@dataclass(frozen=True)
class Fit:
    """How a tokenizer reads a set of texts.

    Attributes:
        tokens: In all.
        unknown: How many of them are the unknown token.
        same: Texts whose pieces are those of the tokenizer before pruning.
        texts: In all.
    """

    tokens: int
    unknown: int
    same: int
    texts: int


def fit_of(pruned: Tokenizer, texts: Sequence[str], before: Tokenizer) -> Fit:
    """Read the texts with both tokenizers."""
    name = _unknown(_state(pruned)["model"])
    unknown = None if name is None else pruned.token_to_id(name)
    tokens = unknowns = same = 0
    for start in range(0, len(texts), _TEXTS_AT_ONCE):
        chunk = [readable(text) for text in texts[start : start + _TEXTS_AT_ONCE]]
        for own, theirs in zip(pruned.encode_batch(chunk), before.encode_batch(chunk), strict=True):
            tokens += len(own.ids)
            unknowns += own.ids.count(unknown) if unknown is not None else 0
            same += own.tokens == theirs.tokens
    return Fit(tokens, unknowns, same, len(texts))


def _state(tokenizer: Tokenizer) -> dict[str, Any]:
    state: dict[str, Any] = json.loads(tokenizer.to_str())
    kind = state["model"].get("type")
    if kind not in _KINDS:
        raise ModelError(f"a tokenizer of kind {kind!r}", expected=", ".join(_KINDS))
    return state


def _unknown(model: Mapping[str, Any]) -> str | None:
    if model["type"] == "Unigram":
        number = model.get("unk_id")
        return None if number is None else str(model["vocab"][number][0])
    name: str | None = model.get("unk_token")
    return name


def _always(state: Mapping[str, Any]) -> bool:
    """Whether single characters stand for bytes, so that without one of them some text could not be written."""
    return state["model"]["type"] == "BPE" and "ByteLevel" in json.dumps([state["pre_tokenizer"], state["decoder"]])


def _letter(piece: str, model: Mapping[str, Any]) -> str:
    """The single character of a piece, without the mark of its place in a word; or the byte; "" for other pieces."""
    bare = piece.removeprefix(model.get("continuing_subword_prefix") or "")
    bare = bare.removesuffix(model.get("end_of_word_suffix") or "")
    bare = bare[1:] if len(bare) == 2 and bare[0] in WORD_MARKS else bare
    return bare if len(bare) == 1 or (piece.startswith("<0x") and len(piece) == 6) else ""


def _pair(merge: str | Sequence[str]) -> tuple[str, str]:
    first, second = merge.split(" ") if isinstance(merge, str) else merge
    return first, second


def _joined(first: str, second: str, model: Mapping[str, Any]) -> str:
    return first + second.removeprefix(model.get("continuing_subword_prefix") or "")


def _merged_from(model: Mapping[str, Any]) -> dict[str, list[tuple[str, str]]]:
    """BPE: piece → the pairs that merge into it."""
    found: dict[str, list[tuple[str, str]]] = {}
    for first, second in map(_pair, model.get("merges") or ()):
        found.setdefault(_joined(first, second, model), []).append((first, second))
    return found


def _closure(piece: str, parts: Mapping[str, list[tuple[str, str]]], vocabulary: Mapping[str, int]) -> set[int]:
    """The piece and everything that merges on the way to it: any merge of a text's reading is among them."""
    needed, waiting = {piece}, deque([piece])
    while waiting:
        for pair in parts.get(waiting.popleft(), ()):
            fresh = [part for part in pair if part not in needed]
            needed.update(fresh)
            waiting.extend(fresh)
    return {vocabulary[name] for name in needed}


def _renumbered(processor: Any, place: Mapping[int, int]) -> Any:
    """A post-processor's special tokens under their new ids, whatever its kind."""
    if isinstance(processor, dict):
        made = {key: _renumbered(value, place) for key, value in processor.items()}
        if "ids" in processor:
            made["ids"] = [place[number] for number in processor["ids"]]
        for key in ("sep", "cls"):
            if isinstance(processor.get(key), list):
                token, number = processor[key]
                made[key] = [token, place[number]]
        return made
    return [_renumbered(item, place) for item in processor] if isinstance(processor, list) else processor
