"""Candidates for every word that may be replaced, computed once and kept in a folder of shards.

Another number of copies, probability or seed then reads them again, and no masked LM is run. A shard is an Arrow file
with a row for each (sentence, position): `sentence` (its words, a space between), `position` (of the word) and
`candidates`, as they were proposed. Shards hold sentences in the order given, so that reading them in that order holds
one in memory at a time.
"""

import io
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.feather as feather

from potstill.data.augment import Proposer, is_replaceable
from potstill.errors import StorageError
from potstill.progress import SILENT, Reporter
from potstill.storage import write_bytes

__all__ = ["StoredCandidates", "write_candidates"]

_COLUMNS = ("sentence", "position", "candidates")
_SCHEMA = pa.schema(
    [("sentence", pa.large_string()), ("position", pa.int32()), ("candidates", pa.list_(pa.large_string()))]
)


def write_candidates(
    folder: Path,
    sentences: Sequence[tuple[str, ...]],
    proposer: Proposer,
    *,
    stop_words: frozenset[str],
    shard: int = 1024,
    report: Reporter = SILENT,
) -> int:
    """Ask for every word of every sentence that `is_replaceable`; a shard that is there whole is not made again.

    Args:
        folder: Where the shards go; made if absent. What is in it must come from the same call.
        sentences: Distinct.
        proposer: Asked for the sentences of one shard at a time.
        stop_words: Casefolded words that are not asked for.
        shard: Sentences in a shard.
        report: Told of the sentences done.

    Returns:
        Sentences whose shards were there before.
    """
    folder.mkdir(parents=True, exist_ok=True)
    found = 0
    for number, start in enumerate(range(0, len(sentences), shard)):
        part, path = sentences[start : start + shard], folder / f"{number:06d}.arrow"
        if _is_whole(path):
            found += len(part)
        else:
            asked = [(s, place) for s in part for place, word in enumerate(s) if is_replaceable(word, stop_words)]
            given = proposer.propose([s for s, _ in asked], [place for _, place in asked]) if asked else []
            columns = ([" ".join(s) for s, _ in asked], [place for _, place in asked], [list(words) for words in given])
            buffer = io.BytesIO()
            table = pa.table(dict(zip(_COLUMNS, columns, strict=True)), schema=_SCHEMA)
            feather.write_feather(table, buffer, compression="zstd")
            write_bytes(path, buffer.getvalue())
        report.progress(start + len(part), len(sentences))
    return found


def _is_whole(path: Path) -> bool:
    """Whether a shard can be read; one that cannot is made again."""
    try:
        return path.is_file() and bool(feather.read_table(str(path)).schema.equals(_SCHEMA))
    except (pa.ArrowException, OSError):
        return False


class StoredCandidates:
    """Proposes what `write_candidates` wrote (a `potstill.data.augment.Proposer`).

    Args:
        folder: Of the shards.
    """

    needs_context = True

    def __init__(self, folder: Path) -> None:
        self.folder, self.shards = folder, sorted(folder.glob("*.arrow"))
        self._at = 0
        self._held: tuple[int, dict[str, dict[int, list[str]]]] = (-1, {})

    def propose(self, sentences: Sequence[Sequence[str]], positions: Sequence[int]) -> list[list[str]]:
        """As `Proposer.propose`.

        Raises:
            StorageError: A sentence or a position for which nothing was written.
        """
        found: list[list[str]] = [[] for _ in positions]
        wanted: dict[str, list[int]] = {}
        for row, words in enumerate(sentences):
            wanted.setdefault(" ".join(words), []).append(row)
        for table in self._from_here():
            for sentence in [sentence for sentence in wanted if sentence in table]:
                for row in wanted.pop(sentence):
                    if positions[row] not in table[sentence]:
                        raise self._missing(sentence, positions[row])
                    found[row] = table[sentence][positions[row]]
            if not wanted:
                break
        if wanted:
            sentence, rows = next(iter(wanted.items()))
            raise self._missing(sentence, positions[rows[0]])
        return found

    def _from_here(self) -> Iterator[dict[str, dict[int, list[str]]]]:
        """Every shard once, from the one that was read last."""
        for _ in self.shards:
            if self._held[0] != self._at:
                self._held = (self._at, self._read(self.shards[self._at]))
            yield self._held[1]
            self._at = (self._at + 1) % len(self.shards)

    @staticmethod
    def _read(path: Path) -> dict[str, dict[int, list[str]]]:
        try:
            table = feather.read_table(str(path))
            columns = [table[name].to_pylist() for name in _COLUMNS]
        except (pa.ArrowException, OSError, KeyError) as error:
            raise StorageError(f"{path} cannot be read: {error}", fix="remove its folder and run again") from error
        found: dict[str, dict[int, list[str]]] = {}
        for sentence, position, candidates in zip(*columns, strict=True):
            found.setdefault(sentence, {})[position] = candidates
        return found

    def _missing(self, sentence: str, position: int) -> StorageError:
        return StorageError(
            f"{self.folder} holds no candidates for word {position} of {sentence[:100]!r}",
            expected="those of the texts that are rewritten",
            fix="remove the folder and run again",
        )
