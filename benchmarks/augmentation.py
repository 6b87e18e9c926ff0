"""How fast new texts are made, by method, and what a masked LM costs: a table, or JSON.

    python benchmarks/augmentation.py SST-2.tsv PAIRS.tsv --model MASKED_LM --vectors GLOVE [--rows 10000] [--json]

The masked LM runs once, with --threads; what is made from its cached candidates, and everything else, is measured on
one thread. Rates are of distinct new texts, in seconds of the clock; the processor's own seconds stand beside them.
"""

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer

from potstill.data.augment import ByPieces, Replacing, replaced, sentences_of
from potstill.data.candidates import StoredCandidates, write_candidates
from potstill.data.examples import Examples
from potstill.data.neighbours import StaticNeighbours
from potstill.data.new_texts import NewTexts, combined
from potstill.data.recombine import recombined
from potstill.data.sampling import masked_words, sampled_ngrams
from potstill.data.stopwords import STOP_WORDS
from potstill.data.tables import read_table
from potstill.models.masked_lm import MaskedLMProposer
from potstill.models.vocabulary import whole_words, word_rows
from potstill.pipeline.assemble import environment

RESULTS = Path(__file__).parent / "results" / "augmentation.md"


def examples_of(path: Path, columns: list[str], rows: int) -> Examples:
    """The first rows of a file; labels play no part here."""
    table = read_table([path])
    texts = [[text or "" for text in table.column(name)[:rows]] for name in columns]
    count = len(texts[0])
    return Examples(np.arange(count), texts[0], texts[1] if len(texts) > 1 else None, np.zeros(count, dtype=np.int64))


def measured(work: Callable[[], Any]) -> dict[str, float]:
    """Seconds of the clock and of the processor, of one call."""
    clock, processor = time.perf_counter(), time.process_time()
    work()
    return {"seconds": time.perf_counter() - clock, "cpu_seconds": time.process_time() - processor}


def made(examples: Examples, work: Callable[[], NewTexts]) -> dict[str, float]:
    """The same, and how many distinct new texts came of it."""
    found: list[Examples] = []
    row = measured(lambda: found.append(combined(examples, [work()])))
    new = len(found[0]) - len(examples)
    return {**row, "new": new, "per_second": new / row["seconds"], "per_cpu_second": new / row["cpu_seconds"]}


def measure(args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Candidates once, then every method."""
    single, pairs = examples_of(args.single, ["sentence"], args.rows), examples_of(args.pairs, args.columns, args.rows)
    tokenizer = Tokenizer.from_file(str(args.model / "tokenizer.json"))
    words, rows = word_rows(args.model, tokenizer)
    table = StaticNeighbours.from_vectors(words, np.asarray(rows, dtype=np.float32))
    torch.set_num_threads(args.threads)
    contextual = MaskedLMProposer.load(args.model, candidates=15, precision="auto")
    proposer = ByPieces(contextual, table, whole_words(tokenizer))
    load = os.getloadavg()[0]
    candidates = measured(lambda: write_candidates(folder, sentences_of(single), proposer, stop_words=STOP_WORDS))
    torch.set_num_threads(1)
    glove, rule = StaticNeighbours.from_glove(args.vectors), Replacing(args.copies)
    drawn: dict[str, int] = {"seed": 0, "copies": args.copies}
    methods = {
        "masked-lm, cached": made(single, lambda: replaced(single, StoredCandidates(folder), seed=0, rule=rule)),
        "glove": made(single, lambda: replaced(single, glove, seed=0, rule=rule, method="glove")),
        "embeddings": made(
            single,
            lambda: replaced(
                single,
                StaticNeighbours.from_vectors(words, np.asarray(rows, dtype=np.float32)),
                seed=0,
                rule=rule,
                method="embeddings",
            ),
        ),
        "masking": made(single, lambda: masked_words(single, "[MASK]", **drawn)),
        "ngram": made(single, lambda: sampled_ngrams(single, **drawn)),
        "recombine": made(pairs, lambda: recombined(pairs, **drawn)),
    }
    return {
        "schema_version": 1,
        "rows": len(single),
        "pairs": len(pairs),
        "copies": args.copies,
        "masked_lm": {**candidates, "threads": args.threads, "load": load, "bytes": size_of(folder)},
        "methods": methods,
        "environment": {**environment(args.threads), "processors": os.cpu_count()},
    }


def size_of(folder: Path) -> int:
    """Bytes of the files in a folder."""
    return sum(path.stat().st_size for path in folder.iterdir())


def markdown(found: dict[str, Any], command: str) -> str:
    """The table."""
    machine, lm = found["environment"], found["masked_lm"]
    cached = found["methods"]["masked-lm, cached"]
    total = lm["seconds"] + cached["seconds"]
    lines = [
        "# Making new texts",
        "",
        f"{machine['cpu']}, torch {machine['torch']}, scikit-learn {machine['versions']['scikit-learn']}. "
        f"{found['rows']:,} texts of SST-2, {found['pairs']:,} pairs of MRPC, {found['copies']} copies of each; "
        "duplicates are left out, and counted in no rate.",
        "",
        "| method | new texts | seconds | new texts a second | a second of the processor |",
        "|---|---|---|---|---|",
        *(
            f"| {name} | {row['new']:,} | {row['seconds']:.1f} | {row['per_second']:,.0f} "
            f"| {row['per_cpu_second']:,.0f} |"
            for name, row in found["methods"].items()
        ),
        "",
        "Candidates by the masked LM, once for all copies, probabilities and seeds: "
        f"{lm['seconds']:.0f} seconds of the clock, {lm['cpu_seconds']:.0f} of the processor, on {lm['threads']} "
        f"thread(s); {lm['bytes'] / 1e6:.1f} MB. With {found['copies']} copies made from them: {total / 60:.1f} "
        f"minutes; 10,000 texts cost {lm['cpu_seconds'] * 1e4 / found['rows']:.0f} seconds of the processor at this "
        f"rate. The other figures are of one thread. The load average of {machine['processors']} processors, from "
        f"other work, was {lm['load']:.1f} when it began: an idle machine is as much faster by the clock.",
        "",
        f"Command: `{command}`",
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure, and write the table or print JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("single", type=Path, help="texts, in the column sentence")
    parser.add_argument("pairs", type=Path, help="pairs of texts")
    parser.add_argument("--columns", nargs=2, default=["#1 String", "#2 String"], help="the pairs' columns")
    parser.add_argument("--model", type=Path, required=True, help="a masked LM's folder")
    parser.add_argument("--vectors", type=Path, required=True, help="word vectors in GloVe's format")
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--copies", type=int, default=20)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", action="store_true", help="print JSON and write nothing")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = measure(args, Path(folder))
    if args.json:
        print(json.dumps(found, indent=1))
        return
    named = " ".join(f"{path.parent.name}/{path.name}" for path in (args.single, args.pairs))
    command = f"python benchmarks/augmentation.py {named} --model MASKED_LM --vectors {args.vectors.name}"
    command += f" --rows {args.rows} --copies {args.copies} --threads {args.threads}"
    RESULTS.write_text(markdown(found, command))
    print(RESULTS.read_text())


if __name__ == "__main__":
    main()
