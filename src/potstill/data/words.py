"""What counts as a word, as blank, and as the same text.

Knows nothing of files, labels or models.
"""

import re
import unicodedata
from functools import cache

__all__ = ["WORD_MARKS", "is_blank", "is_letters", "match_case", "normalise", "text_key", "whole_words", "word_spans"]

_ASCII_GAP = re.compile(r"[^a-z0-9]+")
_ASCII_WORD = re.compile(r"\w++(?:'\w++)*+|[^\w\s]")
_ASCII_WHOLE = re.compile(r"\w++|\S")
_BLANK = re.compile(r"[\s\x00-\x1f\x7f-\x9f\u00ad\u200b-\u200f\u2028-\u202e\u2060-\u2064\ufeff]*")
_PAIR_JOINT = "\x1f"

# Written without spaces between words: Thai, Lao, Myanmar, Khmer, kana, Han.
_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\u2fdf\u3005\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff"
)

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
    # Variation selectors, keycaps and skin tones belong to what they follow; so does what a joiner ties to it.
    tail = rf"(?:[{marks}\ufe00-\ufe0f\u20e3\U0001f3fb-\U0001f3ff]|\u200d[^\w\s])*+"
    letter = rf"(?![{_UNSPACED}])\w"
    run = rf"(?:{letter}|[{marks}]|[\u00ad\u200c\u200d](?={letter}))*+"
    return {
        "whole": re.compile(rf"{letter}{run}{tail}|[\U0001f1e6-\U0001f1ff]{{2}}|\S{tail}"),
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


def whole_words(text: str) -> list[tuple[int, int]]:
    """Start and end (code points, end exclusive) of every word that an entity may begin or end at, in order.

    A word is letters, digits, marks and underscores; any other character that is no white space stands alone, with the
    marks, selectors and joined characters that make one sign with it. Apostrophes part words, so that `London` is one
    in `London's`, and so do hyphens and full stops. In scripts without spaces each character is a word, as BERT reads
    Chinese.
    """
    pattern = _ASCII_WHOLE if text.isascii() else _patterns()["whole"]
    return [match.span() for match in pattern.finditer(text)]


def match_case(word: str, like: str) -> str:
    """`word` in the casing of `like`: all capitals (from two letters on), a first capital, or as it is."""
    if len(like) > 1 and like.isupper():
        return word.upper()
    return word[:1].upper() + word[1:] if like[:1].isupper() else word
