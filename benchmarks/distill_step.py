"""One step of distilling, ours against plain `transformers`, in one process and by turns.

    python benchmarks/distill_step.py [--json] [--cases single pairs …] [--teachers bert mpnet] [--losses tinybert]

Teacher 12×768, random weights of BERT-base's or MPNet-base's shape; student 4×312; losses of TinyBERT's first pass
(embedding, hidden, attention) or of the default recipe, long texts of the default recipe alone. `plain` is what
`transformers` gives when nothing is changed: float32, eager attention, every text padded to one length (64 single, 128
pairs), dense AdamW over all parameters, and the same losses on the same projections (checked: both must find the same
value of each loss on the same texts).

A row: `case, losses, teacher, batch, ours_examples_per_s, plain_examples_per_s, ratio, gemm_share, parts_ms, peak_mb`.
gemm_share = (2·teacher + 6·student non-embedding parameters) × real tokens/s ÷ the bfloat16 rate of a 2,048³ product,
measured between the turns. parts_ms are means over our steps. peak_mb is the process's largest resident set in a step
of ours, before anything plain is made (Linux). Writes results/distill_step.md; --json prints the rows instead.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from distill_plain import Plain
from distill_texts import CASES, Case, read_encodings
from transformers import BertConfig, MPNetConfig, PretrainedConfig

from potstill.data.batching import Batches
from potstill.data.encoding import Encodings
from potstill.evaluation.cost import encoder_parameters
from potstill.models.dropout import set_dropout
from potstill.models.packed import read_only
from potstill.models.precision import training_dtype
from potstill.models.student import Shape, random_student
from potstill.recipes import RECIPES, build_terms
from potstill.recipes.distilling import Distilling, projections_for
from potstill.recipes.guidance import LiveGuide
from potstill.training import AdamW

RESULTS = Path(__file__).parent / "results" / "distill_step.md"
TEACHERS: dict[str, type[PretrainedConfig]] = {"bert": BertConfig, "mpnet": MPNetConfig}
LOSSES = {"tinybert": ("paper", 0), "default": ("potstill", 0)}
STUDENT = Shape.parse("4x312")
RATE = 1e-4
PLAIN_BYTES = 12e9
"""What plain's attention matrices may take: one a layer of either model, and what the backward pass keeps of them."""


def now() -> float:
    """Seconds, once the device has done what it was told."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()


def config_of(teacher: str, case: Case) -> PretrainedConfig:
    """Of the teacher: BERT-base or MPNet-base, with room for the case's inputs."""
    made: PretrainedConfig = TEACHERS[teacher](num_labels=2)
    made.max_position_embeddings = max(514, case.length + 2)
    return made


class Ours:
    """A step as the training loop makes it."""

    def __init__(self, teacher: str, losses: str, case: Case, encodings: Encodings, device: str) -> None:
        config = config_of(teacher, case)
        shape = Shape.of(config)
        mode, index = LOSSES[losses]
        phase = RECIPES[mode].phases[index]
        self.terms = build_terms(phase, student=STUDENT.layers, teacher=shape.layers, mapping="uniform")
        student = random_student(config, STUDENT, seed=1).to(device)
        set_dropout(student, on=phase.dropout)
        self.teacher = read_only(random_student(config, shape, seed=0).to(device), "auto")
        labels = np.arange(len(encodings), dtype=np.int64) % 2
        self.batches = Batches(encodings, labels, np.arange(len(encodings)), case.batch, seed=0)
        torch.manual_seed(2)
        projections = projections_for(
            self.terms, STUDENT.hidden, shape.hidden, shared=RECIPES[mode].projection == "shared"
        ).to(device)
        guide = LiveGuide(self.teacher, self.terms, encodings)
        self.program = Distilling(student, guide, self.terms, projections, self.batches)
        self.optimiser = AdamW(self.program.modules, dtype=training_dtype("auto"))
        self.parts: dict[str, list[float]] = {}

    def losses(self, rows: np.ndarray) -> dict[str, float]:
        """Each term's value, dropout off."""
        for module in self.program.modules.values():
            module.eval()
        with torch.no_grad():
            terms = self.program.step(rows)
        return {name: float(term.sum) / term.count for name, term in terms.items()}

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """Adds the block's milliseconds to a part."""
        started = now()
        yield
        self.parts.setdefault(name, []).append(1000 * (now() - started))

    def watch(self) -> None:
        """Time the models' forward passes, from hooks."""
        for name, model in (("teacher", self.teacher), ("student", self.program.student)):
            began: list[float] = []
            model.register_forward_pre_hook(lambda *_, began=began: began.append(now()))
            model.register_forward_hook(
                lambda *_, began=began, name=name: self.parts.setdefault(name, []).append(1000 * (now() - began.pop()))
            )

    def step(self, rows: np.ndarray) -> None:
        """One update."""
        for module in self.program.modules.values():
            module.train()
        self.optimiser.zero_grad()
        with self.timed("terms"):
            terms = self.program.step(rows)
        with self.timed("backward"):
            weights = self.program.weights
            total = torch.stack([weights[name] * term.sum / term.count for name, term in terms.items()]).sum()
            total.backward()
        with self.timed("optimiser"):
            self.optimiser.step(RATE)

    def parts_ms(self) -> dict[str, float]:
        """Means over the steps watched."""
        means = {name: statistics.fmean(values) for name, values in self.parts.items()}
        forward = means["teacher"] + means["student"]
        found = {
            "teacher": means["teacher"],
            "student": means["student"],
            "losses": means["terms"] - forward,
            "backward": means["backward"],
            "optimiser": means["optimiser"],
        }
        return {name: round(value, 2) for name, value in found.items()}


def spread(batches: list[np.ndarray], tokens: Callable[[np.ndarray], float], count: int) -> list[np.ndarray]:
    """`count` batches that stand for the epoch: at even places in the order of their sizes."""
    ordered = sorted(batches, key=tokens)
    places = (np.arange(count) + 0.5) * len(ordered) / count
    return [ordered[int(place)] for place in places]


def gemm_rate(repeats: int = 4) -> float:
    """FLOP/s of a 2,048³ product in bfloat16."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    left, right = (torch.randn(2048, 2048, dtype=torch.bfloat16, device=device) for _ in range(2))
    left @ right
    started = now()
    for _ in range(repeats):
        left @ right
    return repeats * 2 * 2048**3 / (now() - started)


def peak_mb(run: Callable[[], None]) -> float | None:
    """Largest resident set during `run`, in MB; None where the system does not tell."""
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
        run()
        return torch.cuda.max_memory_allocated() / 1e6
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return None
    run()
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")) / 1024


@dataclass
class Turns:
    """What the turns found."""

    ours: list[float] = field(default_factory=list)
    tokens: list[float] = field(default_factory=list)
    plain: list[float] = field(default_factory=list)
    ratio: list[float] = field(default_factory=list)
    gemm: list[float] = field(default_factory=list)


def plain_fits(case: Case) -> bool:
    """Whether plain's attention matrices fit: 8 of B·12·L² float32 (one of 12 heads each, in either model)."""
    return 8 * case.batch * 12 * case.length**2 * 4 <= PLAIN_BYTES


def check(ours: dict[str, float], plain: dict[str, float]) -> None:
    """Both must compute the same losses, but for what bfloat16 rounds."""
    for name, value in ours.items():
        if abs(value - plain[name]) > 0.05 * abs(plain[name]) + 1e-4:
            raise SystemExit(f"the {name} loss is {value} here and {plain[name]} in plain transformers")


def measure(case: Case, teacher: str, losses: str, args: argparse.Namespace) -> dict[str, Any]:
    """One row."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    encodings = read_encodings(case, args.data)
    ours = Ours(teacher, losses, case, encodings, device)
    steps = spread(list(ours.batches.of_epoch(0)), ours.batches.tokens, min(args.steps, case.most))
    for rows in steps:
        ours.step(rows)  # kernels and memory for each length
    peak = peak_mb(lambda: ours.step(steps[-1]))
    plain = None
    if plain_fits(case):
        plain = Plain(ours.teacher, ours.program, config_of(teacher, case), case)
        check(ours.losses(steps[0]), plain.values(steps[0]))
    ours.watch()
    ours.parts.clear()
    order = np.random.default_rng(0).permutation(len(encodings))
    found = Turns()
    for turn in range(args.turns):
        started = now()
        for rows in steps:
            ours.step(rows)
        seconds = now() - started
        found.ours.append(sum(map(len, steps)) / seconds)
        found.tokens.append(float(sum(encodings.lengths[rows].sum() for rows in steps)) / seconds)
        if plain is not None:
            if turn == 0:
                plain.step(order[: case.batch])
            started = now()
            plain.step(order[(turn + 1) * case.batch : (turn + 2) * case.batch])
            found.plain.append(case.batch / (now() - started))
            found.ratio.append(found.ours[-1] / found.plain[-1])
        found.gemm.append(gemm_rate())
    sizes = [encoder_parameters(model.config.to_dict()).non_embedding for model in (ours.teacher, ours.program.student)]
    flops = (2 * sizes[0] + 6 * sizes[1]) * statistics.median(found.tokens)
    return {
        "case": case.name,
        "losses": losses,
        "teacher": teacher,
        "batch": case.batch,
        "mean_tokens": round(float(encodings.lengths.mean()), 1),
        "ours_examples_per_s": round(statistics.median(found.ours), 2),
        "plain_examples_per_s": round(statistics.median(found.plain), 2) if found.plain else None,
        "ratio": round(statistics.median(found.ratio), 2) if found.ratio else None,
        "gemm_share": round(flops / statistics.median(found.gemm), 3),
        "gemm_gflops": round(statistics.median(found.gemm) / 1e9, 1),
        "parts_ms": ours.parts_ms(),
        "peak_mb": None if peak is None else round(peak),
    }


def table(rows: list[dict[str, Any]], machine: str, command: str) -> str:
    """The rows as Markdown."""
    parts = list(rows[0]["parts_ms"])
    lines = [
        "# A step of distilling, against plain `transformers`",
        "",
        machine,
        "",
        f"`{command}`",
        "",
        "| case | losses | teacher | batch | tokens | ours, examples/s | plain | ratio | GEMM share | "
        + " | ".join(f"{name}, ms" for name in parts)
        + " | peak MB |",
        "|---" * (10 + len(parts)) + "|",
    ]
    for row in rows:
        cells = [row[name] for name in ("case", "losses", "teacher", "batch", "mean_tokens")]
        cells += [row[name] for name in ("ours_examples_per_s", "plain_examples_per_s", "ratio", "gemm_share")]
        cells += [*row["parts_ms"].values(), row["peak_mb"]]
        lines.append("| " + " | ".join("–" if cell is None else str(cell) for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument("--teachers", nargs="+", choices=list(TEACHERS), default=list(TEACHERS))
    parser.add_argument("--losses", nargs="+", choices=list(LOSSES), default=list(LOSSES))
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--steps", type=int, default=12, help="steps of ours in a turn")
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument("--data", type=Path, default=Path(__file__).parents[2] / "shared" / "data")
    parser.add_argument("--json", action="store_true", help="print the rows; write nothing")
    args = parser.parse_args()
    if args.threads:
        torch.set_num_threads(args.threads)
    rows = []
    for case in args.cases:
        for teacher in args.teachers:
            # On a processor fused attention has no dropout, which TinyBERT's first pass asks for: not for long texts.
            for losses in args.losses if case in ("single", "pairs") else ["default"]:
                rows.append(measure(CASES[case], teacher, losses, args))
                print(json.dumps(rows[-1]), flush=True)
    if not args.json:
        cpu = torch.cpu.get_capabilities()["cpu_name"]
        machine = (
            f"torch {torch.__version__}, transformers {transformers.__version__}, {cpu}, {torch.get_num_threads()} "
            f"threads, {training_dtype('auto')}; medians of {args.turns} turns."
        )
        RESULTS.write_text(table(rows, machine, "python benchmarks/distill_step.py"))


if __name__ == "__main__":
    main()
