"""A distillation step under a live teacher, under its cached logits and under its cached states; what filling costs.

    python benchmarks/teacher_cache.py --teacher pypi:mpnet --data DIR

DIR holds GLUE's SST-2 (train.tsv). A 4×312 student, batches of 64 texts of near length, our own recipe's terms (hidden,
attention, logits, hard) and the logits and hard terms alone; forward, backward and optimiser. The cases take turns,
batch by batch, and what counts is the time of the processor: a neighbour's work then changes little. Reading is timed
by the clock, from memory and, "cold", with the files thrown out of memory first.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from transformers import PreTrainedModel

from potstill.data.batching import Batches
from potstill.data.encoding import Encodings, TextEncoder
from potstill.data.sources import resolve_model
from potstill.data.tables import read_table
from potstill.models.dropout import set_dropout
from potstill.models.packed import read_only
from potstill.models.precision import training_dtype
from potstill.models.student import Shape, random_student
from potstill.models.teacher import load_classifier
from potstill.models.teacher_cache import TeacherCache, cache_key
from potstill.recipes import RECIPES, build_terms
from potstill.recipes.cached import CachedGuide, fields_of
from potstill.recipes.distilling import Distilling, projections_for
from potstill.recipes.guidance import Guide, LiveGuide
from potstill.training import AdamW, LossTerm

RESULTS = Path(__file__).parent / "results" / "teacher_cache.md"


class Case:
    """A student of its own under a guide."""

    def __init__(self, teacher: PreTrainedModel, guide: Guide, terms: Sequence[LossTerm], batches: Batches) -> None:
        shape = Shape.parse("4x312", teacher_heads=int(teacher.config.num_attention_heads))
        student = random_student(teacher.config, shape, seed=0)
        set_dropout(student, on=False)
        projections = projections_for(terms, shape.hidden, int(teacher.config.hidden_size), shared=False)
        self.program = Distilling(student, guide, terms, projections, batches)
        self.optimiser = AdamW(self.program.modules, dtype=training_dtype("auto"))

    def step(self, rows: np.ndarray) -> float:
        """Seconds of an update."""
        started = time.process_time()
        self.optimiser.zero_grad()
        terms = self.program.step(rows)
        sum(self.program.weights[n] * term.sum / max(term.count, 1.0) for n, term in terms.items()).backward()
        self.optimiser.step(1e-5)
        return time.process_time() - started


def read_texts(data: Path, count: int) -> tuple[list[str], np.ndarray]:
    """The first sentences of SST-2 and their labels."""
    table = read_table([data / "train.tsv"], format="tsv", columns=["sentence", "label"], header=True)
    return table.column("sentence")[:count], np.array(table.column("label")[:count], dtype=np.int64)


def drop_from_memory(folder: Path) -> None:
    """Have the next read of every file below come from the disk."""
    for path in folder.rglob("*.safetensors"):
        descriptor = os.open(path, os.O_RDONLY)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def cached(
    teacher: PreTrainedModel, terms: Sequence[LossTerm], encodings: Encodings, folder: Path
) -> tuple[TeacherCache, float, float]:
    """A filled cache; seconds of filling it, and of verifying it afterwards."""
    fields = fields_of(terms, biased=False)
    times = []
    for _ in range(2):
        cache = TeacherCache(folder / cache_key("benchmark", teacher.dtype), encodings, fields)
        started = time.process_time()
        cache.fill(teacher)
        times.append(time.process_time() - started)
    return cache, times[0], times[1]


def reading(cache: TeacherCache, order: Sequence[np.ndarray], folder: Path, *, drop: bool) -> float:
    """Median seconds of reading a batch, by the clock."""
    times = []
    for rows in order:
        if drop:
            drop_from_memory(folder)
        started = time.perf_counter()
        cache.read(rows)
        times.append(time.perf_counter() - started)
    return float(np.median(times))


def measure(args: argparse.Namespace, work: Path) -> list[str]:
    """Lines of the table."""
    folder = resolve_model(args.teacher).paths[0]
    teacher = read_only(load_classifier(folder, ("negative", "positive"), new_head=True), "auto")
    texts, labels = read_texts(Path(args.data), args.texts)
    encodings = TextEncoder.from_folder(folder, max_length=64).encode(texts)
    batches = Batches(encodings, labels, np.arange(len(texts)), 64, seed=0)
    phase = RECIPES["potstill"].phases[0]
    layers = int(teacher.config.num_hidden_layers)
    all_terms = build_terms(phase, student=4, teacher=layers, mapping="uniform")
    alone = [term for term in all_terms if not term.layers]
    states, filling, verifying = cached(teacher, all_terms, encodings, work / "states")
    logits, logits_filling, _ = cached(teacher, alone, encodings, work / "logits")
    cases = {
        "all terms, live teacher": Case(teacher, LiveGuide(teacher, all_terms, encodings), all_terms, batches),
        "all terms, cached states": Case(teacher, CachedGuide(teacher, states), all_terms, batches),
        "logits and labels, live teacher": Case(teacher, LiveGuide(teacher, alone, encodings), alone, batches),
        "logits and labels, cached logits": Case(teacher, CachedGuide(teacher, logits), alone, batches),
        "labels alone": Case(teacher, LiveGuide(teacher, alone[1:], encodings), alone[1:], batches),
    }
    times: dict[str, list[float]] = {name: [] for name in cases}
    order = [rows for rows in batches.of_epoch(1) if len(rows) == 64]
    order = [order[index] for index in np.linspace(0, len(order) - 1, args.batches).astype(int)]
    for rows in order:
        for name, case in cases.items():
            case.step(rows) if not times[name] else None  # the first of all makes kernels and memory
            times[name].append(case.step(rows))
    warm, cold = (reading(states, order, work / "states", drop=drop) for drop in (False, True))
    mean = {name: float(np.mean(found)) / 64 for name, found in times.items()}
    size = sum(path.stat().st_size for path in (work / "states").rglob("*.safetensors"))
    live, read = mean["all terms, live teacher"], mean["all terms, cached states"]
    return [
        "| step of 64 texts | examples/s | against live |",
        "|---|---|---|",
        *(
            f"| {name} | {1 / mean[name]:.0f} | {mean[kind] / mean[name]:.2f} |"
            for name in cases
            for kind in ["all terms, live teacher" if name.startswith("all") else "logits and labels, live teacher"]
        ),
        "",
        "| the cache | |",
        "|---|---|",
        f"| filling, states and logits | {len(texts) / filling:.0f} examples/s |",
        f"| filling, logits alone | {len(texts) / logits_filling:.0f} examples/s |",
        f"| verifying by SHA-256 | {len(texts) / verifying:.0f} examples/s |",
        f"| size, {len(states.states)} states | {size / encodings.lengths.sum() / 1e3:.1f} kB a token, "
        f"{size / len(texts) / 1e3:.0f} kB a text |",
        f"| reading a batch of 64, from memory | {1e3 * warm:.1f} ms |",
        f"| reading a batch of 64, cold | {1e3 * cold:.1f} ms |",
        f"| epochs from which filling pays | {(filling + verifying) / len(texts) / (live - read):.2f} |",
    ]


def main() -> None:
    """Measure and write the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--teacher", default="pypi:mpnet")
    parser.add_argument("--data", required=True, help="folder with GLUE's SST-2")
    parser.add_argument("--texts", type=int, default=1024)
    parser.add_argument("--batches", type=int, default=8)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    with tempfile.TemporaryDirectory() as work:
        table = measure(args, Path(work))
    lines = [
        "# Teacher cache: MPNet (109 M) → 4×312, SST-2",
        "",
        f"torch {torch.__version__}, {torch.cpu.get_capabilities()['cpu_name']}, {args.threads} thread(s), "
        f"{training_dtype('auto')}, {args.texts:,} texts, {args.batches} batches by turns; processor time.",
        "",
        "`python benchmarks/teacher_cache.py --data DIR`",
        "",
        *table,
    ]
    RESULTS.write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
