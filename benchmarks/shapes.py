"""The smallest student shape for the demo: what each keeps of the teacher's dev accuracy, and how fast it is.

    python benchmarks/shapes.py examples/movies.toml 3x192 2x192 2x120

Each shape is a run of its own in OUT/SHAPE; data and teacher are taken from the first. Only dev is read here. The
smallest shape is the last, as they are given, whose lower 95 % bound of accuracy kept reaches 97 % and whose best
accepted export is 5 times as fast as the teacher in torch float32 at batch 1 and at batch 32.
"""

import argparse
import json
import shutil
import subprocess
import sys
from pathlib import Path

from safetensors.numpy import load_file

from potstill.data.examples import Examples
from potstill.metrics import Metric, paired_retention
from potstill.storage import LOCK

RESULTS = Path(__file__).parent / "results" / "shapes.md"
KEPT, FASTER = 0.97, 5.0


def run(settings: str, shape: str, folder: Path, first: Path, options: list[str]) -> None:
    """Distil one shape; the data and the teacher of the first run are its own, under the same keys."""
    if folder != first:
        for stage in ("data", "teacher"):
            shutil.copytree(first / "stages" / stage, folder / "stages" / stage, dirs_exist_ok=True)
        (folder / LOCK).touch()  # marks the folder as a run's
    call = ["potstill", "distill", settings, "--student", shape, "--out", str(folder), *options]
    subprocess.run([str(Path(sys.executable).parent / call[0]), *call[1:]], check=True)


def dev_retention(folder: Path) -> Metric:
    """Accuracy kept on dev, with its paired 95 % interval."""
    gold = Examples.read(folder / "stages" / "data" / "dev.arrow").labels
    logits = load_file(folder / "stages" / "score" / "logits.safetensors")
    student, teacher = (logits[f"{role}/dev"].argmax(axis=1) for role in ("student", "teacher"))
    return paired_retention(gold, student, teacher)


def row(shape: str, folder: Path) -> tuple[str, bool, dict[str, str]]:
    """A table's line, whether the shape will do, and the machine."""
    report, kept = json.loads((folder / "report.json").read_text()), dev_retention(folder)
    best = report["best_export"]
    named = next(e for e in report["exports"] if all(e[key] == best[key] for key in ("format", "precision")))
    speed = [named["speedup"][size] for size in ("1", "32")]
    fits = kept.low >= KEPT and min(speed) >= FASTER
    student, dev = (
        report["student"],
        [100 * report[role]["dev"]["accuracy"]["value"] for role in ("teacher", "student")],
    )
    line = (
        f"| {shape} | {student['parameters'] / 1e6:.2f} | {dev[0]:.1f} → {dev[1]:.1f} "
        f"| {100 * kept.value:.1f} [{100 * kept.low:.1f}, {100 * kept.high:.1f}] "
        f"| {best['format']} {best['precision']} | {speed[0]:.1f}× | {speed[1]:.1f}× | {'yes' if fits else 'no'} |"
    )
    return line, fits, report["environment"]


def main() -> None:
    """Run every shape, then write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("settings")
    parser.add_argument("shapes", nargs="+", help="from the largest to the smallest")
    parser.add_argument("--out", type=Path, default=Path("runs/shapes"))
    parser.add_argument("--set", action="append", default=[], help="a further setting, section.key=value")
    parser.add_argument("--note", default="", help="what else must be known")
    args = parser.parse_args()
    first = args.out / args.shapes[0]
    for shape in args.shapes:
        run(args.settings, shape, args.out / shape, first, [part for name in args.set for part in ("--set", name)])
    rows = [row(shape, args.out / shape) for shape in args.shapes]
    fitting = [shape for shape, (_, fits, _) in zip(args.shapes, rows, strict=True) if fits]
    machine = rows[0][2]
    lines = [
        f"# Shapes for {args.settings}, by dev",
        "",
        f"{machine['cpu']}, {machine['threads']} threads, torch {machine['torch']}. Accuracy in per cent, with 95 % "
        "intervals; speed of the best accepted export on the dev texts, the teacher in torch float32 = 1. One seed.",
        "",
        "| shape | M parameters | teacher → student, dev | kept | best export | batch 1 | batch 32 | will do |",
        "|---|---|---|---|---|---|---|---|",
        *(line for line, _, _ in rows),
        "",
        f"Smallest that will do: {fitting[-1] if fitting else 'none'} (lower bound of accuracy kept ≥ {KEPT:.0%}, "
        f"≥ {FASTER:.0f}× at batch 1 and 32).",
        "",
        *([args.note, ""] if args.note else []),
        f"Command: `python benchmarks/shapes.py {args.settings} {' '.join(args.shapes)}`",
    ]
    RESULTS.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
