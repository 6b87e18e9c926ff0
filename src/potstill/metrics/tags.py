"""Tags of words (`B-PER`, `I-PER`, `O`) to entities and back, in the schemes that there are.

    IOB1    I- everywhere; B- where an entity follows one of its own type at once (CoNLL-2003 as distributed)
    IOB2    B- on the first word of each entity, I- on the others; also called BIO
    IOBES   E- on the last word of two or more, S- on a single one; BILOU writes L- and U-, read alike

One rule reads them all, as conlleval and seqeval do: an entity begins at B- or S-, after O, E- or S-, and where the
type changes; it ends before the next one, before O, and after E- or S-. So a model's I- without a B- is an entity
rather than nothing. The scheme matters where tags are written, and to say what a file has that its scheme does not.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from potstill.errors import DataError
from potstill.metrics.entities import Entity

__all__ = ["TagScheme", "TagSchemeFound", "detect_scheme", "read_tags", "split_tag", "write_tags"]

TagScheme = Literal["IOB1", "IOB2", "IOBES"]

_BEGINS, _ENDS = "BS", "ES"
_PREFIXES = {"B": "B", "I": "I", "E": "E", "S": "S", "L": "E", "U": "S"}


@dataclass(frozen=True)
class TagSchemeFound:
    """The scheme that some tags are written in.

    Attributes:
        scheme: The one that most of them fit; IOB2 where none stands against any.
        odd: How many tags it would write otherwise: 0 where all fit.
        first_odd: Sentence and word of the first of these, from 0; None where there is none.
    """

    scheme: TagScheme
    odd: int
    first_odd: tuple[int, int] | None


def split_tag(tag: str) -> tuple[str, str]:
    """Prefix (one of O B I E S; L is E, U is S) and type ("" of O) of a tag; the type may have hyphens in it.

    Raises:
        DataError: It is no tag of any scheme.
    """
    if tag == "O":
        return "O", ""
    prefix, hyphen, label = tag.partition("-")
    if prefix not in _PREFIXES or not hyphen or not label:
        raise DataError(f"the tag {tag!r}", expected="O, or B-, I-, E-, S-, L- or U- before a type, such as B-PER")
    return _PREFIXES[prefix], label


def read_tags(tags: Sequence[str]) -> list[Entity]:
    """The entities of one sentence, in order; start and end count words.

    Raises:
        DataError: As `split_tag`.
    """
    found: list[Entity] = []
    start: int | None = None
    before, label = "O", ""
    for place, tag in enumerate(tags):
        prefix, own = split_tag(tag)
        begins = prefix != "O" and (prefix in _BEGINS or before == "O" or before in _ENDS or own != label)
        if start is not None and (begins or prefix == "O"):
            found.append(Entity(start, place, label))
            start = None
        if begins:
            start = place
        before, label = prefix, own
    if start is not None:
        found.append(Entity(start, len(tags), label))
    return found


def write_tags(entities: Iterable[Entity], words: int, scheme: TagScheme = "IOB2") -> list[str]:
    """The tags of a sentence of so many words; what `read_tags` reads back as the same entities.

    Raises:
        DataError: An entity that is empty, outside the sentence, without a type, or over another one.
    """
    tags = ["O"] * words
    end_before, label_before = 0, None
    for entity in sorted(entities):
        start, end, label = entity
        if not (end_before <= start < end <= words and label):
            raise DataError(
                f"the entity {tuple(entity)} in a sentence of {words} words",
                expected="entities with a type, within the sentence, none over another",
            )
        tags[start:end] = [f"I-{label}"] * (end - start)
        if scheme != "IOB1" or (start == end_before and label == label_before):
            tags[start] = f"B-{label}"
        if scheme == "IOBES":
            tags[end - 1] = f"{'E' if end - start > 1 else 'S'}-{label}"
        end_before, label_before = end, label
    return tags


def detect_scheme(sentences: Sequence[Sequence[str]]) -> TagSchemeFound:
    """The scheme that would write the entities of all sentences with the fewest tags changed.

    L- and U- count as E- and S-. Of two that fit equally well, that is the first of IOB2, IOB1, IOBES.

    Raises:
        DataError: As `split_tag`.
    """
    plain = [["-".join(filter(None, split_tag(tag))) for tag in tags] for tags in sentences]
    entities = [read_tags(tags) for tags in plain]
    schemes: tuple[TagScheme, ...] = ("IOB2", "IOB1", "IOBES")
    return min((_fit(scheme, plain, entities) for scheme in schemes), key=lambda found: found.odd)


def _fit(scheme: TagScheme, sentences: Sequence[Sequence[str]], entities: Sequence[Sequence[Entity]]) -> TagSchemeFound:
    odd: list[tuple[int, int]] = []
    for number, (tags, found) in enumerate(zip(sentences, entities, strict=True)):
        wanted = write_tags(found, len(tags), scheme)
        odd += [(number, place) for place, tag in enumerate(tags) if tag != wanted[place]]
    return TagSchemeFound(scheme, len(odd), odd[0] if odd else None)
