"""Texts and their entities out of files: CoNLL's columns, or JSON Lines with spans. Offsets are in code points.

    Ada       B-PER           {"text": "Ada Lovelace wrote.", "spans": [{"start": 0, "end": 12, "label": "PER"}]}
    Lovelace  I-PER
    wrote     O

Entities are whole words (`potstill.data.words.whole_words`): what cuts one is named and set aside, as is any row that
cannot be used. Knows no split and no model.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from potstill.data.conll import Sentence, conll_sentences
from potstill.data.rows import BadRow, iter_rows
from potstill.data.words import whole_words
from potstill.errors import DataError
from potstill.metrics import Entity, TagSchemeFound, detect_scheme, read_tags
from potstill.progress import SILENT, Reporter

__all__ = ["EntityText", "EntityTexts", "entities_in_text", "entities_in_words", "read_entities", "read_spans"]

_CONLL = (".conll", ".iob", ".iob2", ".bio")
_SHOWN = 40


@dataclass(frozen=True)
class EntityText:
    """A text and its entities.

    Attributes:
        row: Its place in its file: the row, or of CoNLL the line of its first word, from 1.
        text: As it stands in the file; a CoNLL sentence is its words with one space between them.
        entities: In order, none over another; start and end are code points of `text`.
    """

    row: int
    text: str
    entities: tuple[Entity, ...]


@dataclass(frozen=True)
class EntityTexts:
    """What a file holds.

    Attributes:
        texts: The texts that can be used, in file order.
        bad: Those set aside, each with its row (of CoNLL: its line) and the reason.
        scheme: How CoNLL's tags are written, its `first_odd` counting `texts` and their words; None of spans.
    """

    texts: tuple[EntityText, ...]
    bad: tuple[BadRow, ...]
    scheme: TagSchemeFound | None


def read_entities(
    path: Path, *, format: str | None = None, text: str = "text", spans: str = "spans", report: Reporter = SILENT
) -> EntityTexts:
    """The texts of a file with their entities.

    Args:
        path: The file.
        format: `conll`, or one of `potstill.data.rows.FORMATS`; None: by the suffix (.conll, .iob, .iob2, .bio).
        text: The column of the text, of files with columns that have names.
        spans: The column of its entities, as `read_spans` takes them.
        report: Told of the bytes read.

    Raises:
        DataError: As `conll_sentences` and `iter_rows`; no text that can be used.
    """
    is_conll = format == "conll" or (format is None and path.suffix.lower() in _CONLL)
    found = _from_conll(path, report) if is_conll else _from_rows(path, format, text, spans, report)
    if not found.texts:
        first = f"{found.bad[0].reason} in row {found.bad[0].row}" if found.bad else "it has none"
        raise DataError(f"{path} has no text that can be used: {first}", expected="texts with entities")
    return found


def _from_conll(path: Path, report: Reporter) -> EntityTexts:
    texts: list[EntityText] = []
    bad: list[BadRow] = []
    tags: list[tuple[str, ...]] = []
    for one in conll_sentences(path, report=report):
        if isinstance(one, BadRow):
            bad.append(one)
            continue
        try:
            entities = _conll_entities(one)
        except DataError as error:
            bad.append(BadRow(str(path), one.line, error.got))
            continue
        texts.append(EntityText(one.line, one.text, tuple(entities)))
        tags.append(one.tags)
    return EntityTexts(tuple(texts), tuple(bad), detect_scheme(tags))


def _conll_entities(sentence: Sentence) -> list[Entity]:
    entities = entities_in_text(read_tags(sentence.tags), sentence.offsets)
    _check_entities(sentence.text, entities)
    return entities


def _from_rows(path: Path, format: str | None, text: str, spans: str, report: Reporter) -> EntityTexts:
    texts: list[EntityText] = []
    bad: list[BadRow] = []
    for row in iter_rows(path, format=format, columns=[text, spans], report=report):
        if isinstance(row, BadRow):
            bad.append(row)
            continue
        whole = row.values[text] or ""
        try:
            texts.append(EntityText(row.row, whole, read_spans(row.values[spans] or "", whole)))
        except DataError as error:
            bad.append(BadRow(str(path), row.row, error.got))
    return EntityTexts(tuple(texts), tuple(bad), None)


def read_spans(cell: str, text: str) -> tuple[Entity, ...]:
    """The entities of a text out of a cell: `[{"start": 0, "end": 12, "label": "PER"}]`, in any order; `[]`: none.

    Args:
        cell: JSON; offsets may be numbers or the digits of one, in code points, `end` exclusive. Other keys are left.
        text: The text that they point into.

    Returns:
        In order of their start.

    Raises:
        DataError: Its `got` says which entity is no entity, lies outside the text, over another or cuts a word.
    """
    expected = 'a list of {"start": 0, "end": 3, "label": "PER"}'
    try:
        items = json.loads(cell)
    except (ValueError, RecursionError):
        items = None
    if not isinstance(items, list):
        raise DataError(f"spans {cell[:_SHOWN]!r}", expected=expected)
    entities = []
    for item in items:
        start, end, label = (
            _offset(item, "start"),
            _offset(item, "end"),
            item.get("label") if _is_object(item) else None,
        )
        if start is None or end is None or not isinstance(label, str) or not label.strip():
            raise DataError(f"the span {json.dumps(item, ensure_ascii=False)[:80]}", expected=expected)
        entities.append(Entity(start, end, label.strip()))
    entities.sort()
    _check_entities(text, entities)
    return tuple(entities)


def _is_object(item: Any) -> bool:
    return isinstance(item, dict)


def _offset(item: Any, name: str) -> int | None:
    value = item.get(name) if _is_object(item) else None
    if isinstance(value, bool) or not isinstance(value, int | str):
        return None
    try:
        return int(value)
    except ValueError:
        return None


def _check_entities(text: str, entities: Sequence[Entity]) -> None:
    before = 0
    for start, end, label in entities:
        where = f"the {label} at {start} to {end}"
        if not 0 <= start < end <= len(text):
            raise DataError(f"{where} of a text of {len(text)} characters", expected="0 ≤ start < end ≤ its length")
        if start < before:
            raise DataError(f"{where} begins within the one before it", expected="entities that do not overlap")
        before = end
    entities_in_words(entities, whole_words(text), text)


def entities_in_words(
    entities: Iterable[Entity], words: Sequence[tuple[int, int]], text: str | None = None
) -> list[Entity]:
    """Entities whose start and end are code points as entities whose start and end count words.

    Args:
        entities: In code points.
        words: Start and end of each word of the text, in order.
        text: The text, to show what is cut; None: not shown.

    Raises:
        DataError: An entity that does not begin where a word does and end where one does.
    """
    starts = {start: place for place, (start, _) in enumerate(words)}
    ends = {end: place + 1 for place, (_, end) in enumerate(words)}
    found = []
    for start, end, label in entities:
        if start not in starts or end not in ends:
            shown = "" if text is None else f" ({text[start:end][:_SHOWN]!r} in {text[max(0, start - 9) : end + 9]!r})"
            raise DataError(f"the {label} at {start} to {end} cuts a word or takes in a space{shown}")
        found.append(Entity(starts[start], ends[end], label))
    return found


def entities_in_text(entities: Iterable[Entity], words: Sequence[tuple[int, int]]) -> list[Entity]:
    """Entities whose start and end count words as entities whose start and end are code points."""
    return [Entity(words[start][0], words[end - 1][1], label) for start, end, label in entities]
