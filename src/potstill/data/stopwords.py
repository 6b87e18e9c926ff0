"""Words that augmentation leaves alone: English function words, or a file of one's own."""

from pathlib import Path

from potstill.data.rows import EMPTY_ROW, BadRow, iter_rows
from potstill.errors import DataError

__all__ = ["STOP_WORDS", "read_stop_words"]

# Determiners, pronouns, prepositions, conjunctions, auxiliaries, negations and quantifiers; then the pieces that
# tokenised English is left with (`ca n't`, `wo n't`, `they 'll`).
_WORDS = """
    a an the this that these those such same other another each every either both
    i me my mine myself you your yours yourself yourselves he him his himself she her hers herself it its itself
    we us our ours ourselves they them their theirs themselves who whom whose which what one
    of to in on at by for from with without within into onto upon over under above below between among against about
    around across through during before after behind beside beyond near off out up down toward towards until till since
    and or but nor so yet if unless because although though while whereas whether than as when where why how
    am is are was were be been being have has had having do does did doing done
    can could may might must shall should will would ought cannot
    no not never none nothing nobody nowhere neither hardly
    all any some many much more most few fewer less least several enough
    here there then now too very just only also again once ever even still else
    ca wo sha nt ll ve re em s t d m o y
"""

STOP_WORDS = frozenset(_WORDS.split())
"""About 190 words, casefolded."""


def read_stop_words(path: Path) -> frozenset[str]:
    """The words of a file, one a line, casefolded; blank lines are passed over.

    Raises:
        DataError: The file is missing or empty, or a line of it is no UTF-8 text.
    """
    words = set()
    for row in iter_rows(path, format="txt"):
        if not isinstance(row, BadRow):
            words.add((row.values["text"] or "").strip().casefold())
        elif row.reason != EMPTY_ROW:
            raise DataError(f"{path} line {row.row}: {row.reason}", expected="a word a line, in UTF-8")
    return frozenset(words)
