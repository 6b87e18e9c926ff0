"""What counts as a word, as blank, and as the same text.

Knows nothing of files, labels or models.
"""

import re
import unicodedata
from functools import cache

__all__ = ["WORD_MARKS", "is_blank", "is_letters", "match_case", "normalise", "text_key", "word_spans"]

_ASCII_GAP = re.compile(r"[^a-z0-9]+")
_ASCII_WORD = re.compile(r"\w++(?:'\w++)*+|[^\w\s]")
_BLANK = re.compile(r"[\s\x00-\x1f\x7f-\x9f\u00ad\u200b-\u200f\u2028-\u202e\u2060-\u2064\ufeff]*")
_PAIR_JOINT = "\x1f"

WORD_MARKS = ("Ġ", "▁")
"""How byte-level BPE and Unigram mark the piece that begins a word."""


@cache
def _marks() -> str:
    # Combining marks are part of a word (the vowel signs of Hindi), variation selectors and enclosing marks are not.
    found = (chr(code) for code in range(0x300, 0x20000) if unicodedata.category(chr(code)) in ("Mn", "Mc"))
    return "".join(mark for mark in found if not "\ufe00" <= mark <= "\ufe0f")


@cache
def _patterns() -> dict[str, re.Pattern[str]]:
    marks = _marks()
    # A set of characters alone is looked up at once; with a class such as \w in it, it would be searched one by one.
    part = rf"(?:\w++|[{marks}]++)++"
    return {
        "gap": re.compile(rf"(?:(?![{marks}])\W|_)+"),
        "flood": re.compile(rf"([{marks}]{{30}})[{marks}]+"),
        "word": re.compile(rf"{part}(?:['\u2019]{part})*+|[^\w\s]"),
        "letters": re.compile(rf"[^\W\d_](?:[^\W\d_]++|[{marks}]++)*+"),
    }


def is_blank(text: str) -> bool:
    """True where nothing in `text` can be seen: whitespace, control and zero-width characters only."""
    return _BLANK.fullmatch(text) is not None


def is_letters(word: str) -> bool:
    """True where `word` is letters alone (with their combining marks), one at least."""
    return word.isalpha() or (not word.isascii() and _patterns()["letters"].fullmatch(word) is not None)


def normalise(text: str) -> str:
    """A text as it is compared: NFKC, casefolded, letters and digits only, everything between them one space.

    Combining marks that belong to letters stay, so that Hindi keeps its vowels. A run of more than 30 of them is cut to
    30 first, which keeps Unicode normalisation linear in the length of hostile text. A text without letters and digits
    becomes empty.
    """
    if text.isascii():
        return _ASCII_GAP.sub(" ", text.lower()).strip()
    patterns = _patterns()
    plain = unicodedata.normalize("NFKC", patterns["flood"].sub(r"\1", text)).casefold()
    return patterns["gap"].sub(" ", unicodedata.normalize("NFKC", plain)).strip()


def text_key(text: str, pair: str | None = None) -> str:
    """What two texts (or pairs) share exactly when they count as the same.

    It is `normalise` without its spaces, so that a tokenised text (`it 's`) equals the plain one (`it's`). A text of
    punctuation or emoji alone is compared as it stands. A pair is both sides.
    """
    key = normalise(text).replace(" ", "") or "".join(text.split())
    return key if pair is None else f"{key}{_PAIR_JOINT}{text_key(pair)}"


def word_spans(text: str) -> list[tuple[int, int]]:
    """Start and end (code points, end exclusive) of every word and every punctuation mark, in order.

    A word is letters, digits, marks and underscores, with apostrophes inside it; any other character that is no
    whitespace stands alone.
    """
    pattern = _ASCII_WORD if text.isascii() else _patterns()["word"]
    return [match.span() for match in pattern.finditer(text)]


def match_case(word: str, like: str) -> str:
    """`word` in the casing of `like`: all capitals (from two letters on), a first capital, or as it is."""
    if len(like) > 1 and like.isupper():
        return word.upper()
    return word[:1].upper() + word[1:] if like[:1].isupper() else word
