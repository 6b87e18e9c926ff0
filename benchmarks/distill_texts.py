"""Texts for distill_step.py: real ones where they are there, else lengths drawn from a stated distribution."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from potstill.data.encoding import Encodings, TextEncoder

VOCABULARY, FIRST_WORD = 30522, 1996
CLS, SEP = 101, 102


@dataclass(frozen=True)
class Case:
    """A kind of text.

    Attributes:
        name: In the rows.
        batch: Texts in a step.
        length: What plain pads to.
        most: Steps in a turn, at most.
        file, columns: Where real texts stand, below the data folder; None: lengths are all `length`.
        drawn: Mean and deviation of the logarithm of the length, where there is no file.
    """

    name: str
    batch: int
    length: int
    most: int = 1000
    file: str | None = None
    columns: tuple[str, ...] = ()
    drawn: tuple[float, float] = (0.0, 0.0)


CASES = {
    case.name: case
    for case in (
        Case("single", 32, 64, file="glue/SST-2/train.tsv", columns=("sentence",), drawn=(2.4, 0.6)),
        Case(
            "pairs",
            32,
            128,
            file="glue/MNLI/dev_matched.tsv",
            columns=("premise", "hypothesis"),
            drawn=(3.58, 0.47),
        ),
        Case("len512", 8, 512, most=2),
        Case("len2048", 2, 2048, most=2),
        Case("len8192", 1, 8192, most=1),
    )
}
"""Long cases hold 4,096 tokens a step, the last 8,192."""


def read_encodings(case: Case, data: Path, rows: int = 8000) -> Encodings:
    """Encoded texts of the case."""
    if case.file is None:
        return _drawn(np.full(8 * case.batch, case.length))
    tokenizer = data / "vocab" / "bert-base-uncased.tokenizer.json"
    if not tokenizer.is_file() or not (data / case.file).is_file():
        lengths = np.exp(np.random.default_rng(0).normal(*case.drawn, size=rows)).round().astype(int)
        return _drawn(lengths.clip(3, case.length))
    lines = [line.rstrip("\n").split("\t") for line in (data / case.file).read_text(encoding="utf-8").split("\n")]
    places = [lines[0].index(name) for name in case.columns]
    kept = [[line[place] for place in places] for line in lines[1 : rows + 1] if len(line) > max(places)]
    encoder = TextEncoder(Tokenizer.from_file(str(tokenizer)), max_length=case.length)
    first, *second = zip(*kept, strict=True)
    return encoder.encode(first, second[0] if second else None)


def _drawn(lengths: np.ndarray) -> Encodings:
    """Texts of these lengths; words by Zipf's law over BERT's vocabulary."""
    generator = np.random.default_rng(1)
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    ranks = generator.zipf(1.1, size=int(starts[-1]))
    ids = (FIRST_WORD + ranks % (VOCABULARY - FIRST_WORD)).astype(np.int32)
    ids[starts[:-1]], ids[starts[1:] - 1] = CLS, SEP
    example = np.arange(len(lengths), dtype=np.int64)
    return Encodings(ids, np.zeros(len(ids), dtype=np.int8), starts, example, 0, 0, 0)
