"""CoNLL's columns: a word a line with its tag last, blank lines between sentences. Knows no tag's meaning."""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

from potstill.data.lines import byte_pieces, line_records, record_text
from potstill.data.rows import BadRow
from potstill.errors import DataError
from potstill.progress import SILENT, Reporter

__all__ = ["Sentence", "conll_sentences"]

_DOCUMENT = "-DOCSTART-"
_BLANKS = re.compile("[ \t]+")


@dataclass(frozen=True)
class Sentence:
    """One sentence.

    Attributes:
        line: The line of its first word, from 1; the other words follow line by line.
        words: n ≥ 1 words, none of them empty.
        tags: Their n tags.
    """

    line: int
    words: tuple[str, ...]
    tags: tuple[str, ...]

    @property
    def text(self) -> str:
        """The words, one space between them."""
        return " ".join(self.words)

    @property
    def offsets(self) -> list[tuple[int, int]]:
        """Start and end of each word in `text`, in code points."""
        ends = accumulate(len(word) + 1 for word in self.words)
        return [(end - 1 - len(word), end - 1) for end, word in zip(ends, self.words, strict=True)]


def conll_sentences(path: Path, *, report: Reporter = SILENT) -> Iterator[Sentence | BadRow]:
    """The sentences of a file: the word in its first column, the tag in its last.

    Columns are parted by tabs where most lines have one, else by spaces and tabs; quotes mean nothing. -DOCSTART- lines
    part sentences. A line that begins with `#` before a sentence's first word, and has not the file's number of
    columns, is a comment.

    Args:
        path: The file, UTF-8, or UTF-16 with a byte order mark.
        report: Told of the bytes read.

    Yields:
        A `Sentence`; or a `BadRow`, once for a sentence, with the line that makes it unusable: another number of
        columns than most lines have, no word, not UTF-8.

    Raises:
        DataError: The file cannot be read, or has one column.
    """
    records = [record_text(record) for record in line_records(byte_pieces(path, report))]
    usable = [text for text, good in records if good and text.strip(" \t")]
    parts = re.compile("\t") if sum("\t" in text for text in usable) * 2 > len(usable) else _BLANKS
    counts = Counter(len(parts.split(_ended(text, parts))) for text in usable)
    columns = counts.most_common(1)[0][0] if counts else 0
    if columns < 2:
        raise DataError(
            f"{path}: lines with {columns} column{'s' * (columns != 1)}",
            expected="a word, and its tag in the last column, on each line",
        )
    yield from _sentences(str(path), records, parts, columns)


def _ended(text: str, parts: re.Pattern[str]) -> str:
    return text.strip(" \t") if parts is _BLANKS else text


def _sentences(
    file: str, records: list[tuple[str, bool]], parts: re.Pattern[str], columns: int
) -> Iterator[Sentence | BadRow]:
    words: list[str] = []
    tags: list[str] = []
    first, fault = 0, None
    for line, (text, good) in enumerate([*records, ("", True)], 1):
        fields = [field.strip() for field in parts.split(_ended(text, parts))] if good else []
        if good and (not text.strip() or fields[0] == _DOCUMENT):
            if fault is not None:
                yield fault
            elif words:
                yield Sentence(first, tuple(words), tuple(tags))
            words, tags, fault = [], [], None
        elif len(fields) == columns and fields[0]:
            first = first if words else line
            words.append(fields[0])
            tags.append(fields[-1])
        elif fault is None and not (good and not words and text.startswith("#")):
            wrong = f"{len(fields)} columns, not {columns}" if len(fields) != columns else "no word"
            fault = BadRow(file, line, wrong if good else text)
