"""Where the Gram form of the attention loss, and fused attention in training, become the faster choice; relations.

    python benchmarks/attention_loss.py [--lengths 16 32 64 96 128 256 512 1024 2048] [--seconds 0.5]

Forms are measured by turns, forward and backward, 12 heads 26 wide (student) and 64 wide (teacher), inputs bfloat16,
about 4,096 tokens a batch. The relation loss (MiniLMv2, 24 heads) is measured against its formula written plainly: all
L x L scores of both models, float32, autograd. Writes results/attention_loss.md.
"""

import argparse
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional

from potstill.losses import attention_mse
from potstill.losses.relation import relation_kl

RESULTS = Path(__file__).parent / "results"
HEADS, NARROW, WIDE, TOKENS, RELATION_HEADS = 12, 26, 64, 4096, 24


def by_turns(runs: dict[str, Callable[[], None]], seconds: float) -> dict[str, float]:
    """Median milliseconds of each run, measured A B A B for about `seconds` each."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    for run in runs.values():
        run()
    end = time.perf_counter() + seconds * len(runs)
    while time.perf_counter() < end or len(next(iter(times.values()))) < 3:
        for name, run in runs.items():
            started = time.perf_counter()
            run()
            times[name].append(1000 * (time.perf_counter() - started))
    return {name: sorted(values)[len(values) // 2] for name, values in times.items()}


def make(length: int, width: int) -> Tensor:
    """Queries, keys or values of one batch."""
    batch = max(1, TOKENS // length)
    return torch.randn(batch, HEADS, length, width, dtype=torch.bfloat16, requires_grad=True)


def losses(length: int) -> dict[str, Callable[[], None]]:
    """The two forms of the loss."""
    student, teacher = (make(length, NARROW), make(length, NARROW)), (make(length, WIDE), make(length, WIDE))

    def run(form: str) -> None:
        sums, _ = attention_mse(student, teacher, (NARROW**-0.5, WIDE**-0.5), None, form=form)  # type: ignore[arg-type]
        sums.backward()

    return {form: (lambda form=form: run(form)) for form in ("materialised", "gram")}  # type: ignore[misc]


def relations(length: int) -> dict[str, Callable[[], None]]:
    """The relation loss: written plainly, and ours."""
    student, teacher = make(length, NARROW), make(length, WIDE).detach()

    def cut(vectors: Tensor) -> Tensor:
        return vectors.transpose(1, 2).flatten(-2).unflatten(-1, (RELATION_HEADS, -1)).transpose(1, 2).float()

    def plain() -> None:
        logs = []
        for part in map(cut, (student, teacher)):
            logs.append(functional.log_softmax(part @ part.mT * part.shape[-1] ** -0.5, dim=-1))
        functional.kl_div(logs[0], logs[1], reduction="sum", log_target=True).backward()

    def ours() -> None:
        relation_kl(student, teacher, None, heads=RELATION_HEADS)[0].backward()

    return {"plain": plain, "a part at a time": ours}


def kernels(length: int) -> dict[str, Callable[[], None]]:
    """Attention itself: matmul and softmax, or fused."""
    q, k, v = make(length, NARROW), make(length, NARROW), make(length, NARROW)

    def plain() -> None:
        weights = functional.softmax((q @ k.mT) * NARROW**-0.5, dim=-1)
        (weights @ v).sum().backward()

    def fused() -> None:
        functional.scaled_dot_product_attention(q, k, v).sum().backward()

    return {"matmul and softmax": plain, "fused (SDPA)": fused}


def main() -> None:
    """Measure and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengths", type=int, nargs="+", default=[16, 32, 64, 96, 128, 256, 512, 1024, 2048])
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    lines = [
        "# Attention loss and attention kernels, forward and backward, milliseconds",
        "",
        f"torch {torch.__version__}, {torch.cpu.get_capabilities()['cpu_name']}, {args.threads} threads; 12 heads, "
        "26 and 64 wide, bfloat16 inputs, about 4,096 tokens a batch; medians, by turns.",
        "",
        "`python benchmarks/attention_loss.py`",
        "",
        "| length | loss, materialised | loss, Gram | attention, matmul and softmax | attention, fused "
        "| relations, plain | relations, ours |",
        "|---|---|---|---|---|---|---|",
    ]
    for length in args.lengths:
        found: dict[str, float] = {}
        for forms in (losses, kernels, relations):
            found |= by_turns(forms(length), args.seconds)
        lines.append(f"| {length} | " + " | ".join(f"{value:.1f}" for value in found.values()) + " |")
        print(lines[-1], flush=True)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "attention_loss.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
