"""Candidates for every word that may be replaced, computed once and kept in a folder of shards.

Another number of copies, probability or seed then reads them again, and no masked LM is run. A shard is an Arrow file
with a row for each sentence: `sentence` (its words, a space between), `positions` (of words that may be replaced) and
`candidates` (of each, as they were proposed). Shards hold sentences in the order given, so that reading them in that
order holds one in memory at a time.
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

_COLUMNS = ("sentence", "positions", "candidates")
_MOST_WORDS = 16_384
"""In a shard: what a run that is stopped may have to do again."""
_SCHEMA = pa.schema(
    [
        ("sentence", pa.large_string()),
        ("positions", pa.list_(pa.int32())),
        ("candidates", pa.list_(pa.list_(pa.large_string()))),
    ]
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
        shard: Sentences in a shard, at most; long ones are fewer.
        report: Told of the sentences done.

    Returns:
        Sentences whose shards were there before.
    """
    folder.mkdir(parents=True, exist_ok=True)
    found = 0
    done = 0
    for number, part in enumerate(_shards(sentences, shard)):
        path = folder / f"{number:06d}.arrow"
        if _is_whole(path):
            found += len(part)
        else:
            places = [[at for at, word in enumerate(words) if is_replaceable(word, stop_words)] for words in part]
            asked = [(words, at) for words, own in zip(part, places, strict=True) for at in own]
            given = iter(proposer.propose([words for words, _ in asked], [at for _, at in asked]) if asked else ())
            candidates = [[list(next(given)) for _ in own] for own in places]
            columns = ([" ".join(words) for words in part], places, candidates)
            buffer = io.BytesIO()
            table = pa.table(dict(zip(_COLUMNS, columns, strict=True)), schema=_SCHEMA)
            feather.write_feather(table, buffer, compression="zstd")
            write_bytes(path, buffer.getvalue())
        done += len(part)
        report.progress(done, len(sentences))
    return found


def _shards(sentences: Sequence[tuple[str, ...]], most: int) -> Iterator[list[tuple[str, ...]]]:
    """At most so many sentences, and so many words, at a time; a longer sentence stands alone."""
    part: list[tuple[str, ...]] = []
    words = 0
    for sentence in sentences:
        if part and (len(part) == most or words + len(sentence) > _MOST_WORDS):
            yield part
            part, words = [], 0
        part.append(sentence)
        words += len(sentence)
    if part:
        yield part


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
        joined = {id(words): " ".join(words) for words in {id(words): words for words in sentences}.values()}
        for row, words in enumerate(sentences):
            wanted.setdefault(joined[id(words)], []).append(row)
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
        rows = zip(*columns, strict=True)
        return {sentence: dict(zip(places, candidates, strict=True)) for sentence, places, candidates in rows}

    def _missing(self, sentence: str, position: int) -> StorageError:
        return StorageError(
            f"{self.folder} holds no candidates for word {position} of {sentence[:100]!r}",
            expected="those of the texts that are rewritten",
            fix="remove the folder and run again",
        )
