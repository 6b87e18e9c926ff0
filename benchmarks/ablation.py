"""What each part of the default recipe is worth at equal time: SST-2 (8,000 rows) and MRPC, three seeds.

    python benchmarks/ablation.py run --data DIR
    python benchmarks/ablation.py table runs/ablation-sst2 runs/ablation-mrpc

DIR holds GLUE's SST-2 and MRPC. MiniLM (22.7 M; `--teacher`) is fine-tuned once a task and distilled into 4x312
(`--student`), 90 seconds of training a cell (`--minutes`). SST-2's dev is cut from train.tsv by hash before 8,000 rows
are kept, and GLUE's dev.tsv is the test split. The second call writes results/ablation.md and results/ablation.json
(`--name`).
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
TASKS = {
    "sst2": (
        *("--train", "{data}/SST-2/train.tsv", "--test", "{data}/SST-2/dev.tsv", "--text", "sentence"),
        *("--label", "label", "--rows", "8000", "--set", "data.dev_share=0.05"),
    ),
    "mrpc": (
        *("--train", "{data}/MRPC/train.tsv", "--dev", "{data}/MRPC/dev.tsv"),
        *("--test", "{data}/MRPC/test_labelled.tsv", "--text", "#1 String", "--pair", "#2 String"),
        *("--label", "Quality", "--set", "teacher.epochs=5"),
    ),
}
KEPT = ("task", "data", "teacher", "student", "seeds", "minutes", "steps", "cells", "environment")


def run(args: argparse.Namespace) -> None:
    """Run, or go on with, both ablations."""
    for name in args.tasks.split(","):
        given = [part.format(data=args.data) for part in TASKS[name]]
        budget = [
            "--teacher",
            args.teacher,
            "--student",
            args.student,
            "--minutes",
            str(args.minutes),
            "--seeds",
            str(args.seeds),
            "--out",
            f"{args.out}-{name}",
        ]
        extra = [part for setting in args.set for part in ("--set", setting)]
        chosen = ["--cells", args.cells] if args.cells else []
        potstill = str(Path(sys.executable).parent / "potstill")
        subprocess.run([potstill, "ablate", *given, *budget, *chosen, *extra], check=True)


def percent(metric: dict[str, float] | None, *, signed: bool = False) -> str:
    """A score, or a difference, with its interval; a dash where there is none."""
    if metric is None:
        return "–"
    form = "{:+.1f} [{:+.1f}, {:+.1f}]" if signed else "{:.1f} [{:.1f}, {:.1f}]"
    return form.format(*(100 * metric[key] for key in ("value", "low", "high")))


def rows_of(made: dict[str, Any]) -> list[str]:
    """A task's table."""
    lines = [
        "| cell | dev | difference | test | difference | steps | paper's average |",
        "|---|---|---|---|---|---|---|",
    ]
    for cell in made["cells"]:
        paper = "–" if cell["paper"] is None else f"{cell['paper']['average']:.1f}"
        if cell["dev"] is None:
            lines.append(f"| {cell['name']} | refused: {cell['refused']} | | | | | {paper} |")
            continue
        gaps = [percent(cell[key], signed=True) for key in ("difference", "test_difference")]
        lines.append(
            f"| {cell['name']} | {percent(cell['dev'])} | {gaps[0]} | {percent(cell['test'])} | {gaps[1]} "
            f"| {cell['steps']:,.0f} | {paper} |"
        )
    return lines


def table(args: argparse.Namespace) -> None:
    """Write results/NAME.md and results/NAME.json."""
    found = [json.loads((Path(folder) / "ablation.json").read_text()) for folder in args.runs]
    machine = found[0]["environment"]
    lines = [
        "# What each part of the default recipe is worth",
        "",
        f"{machine['cpu']} ({', '.join(machine['cpu_flags'])}), {machine['threads']} threads, "
        f"torch {machine['torch']}, transformers {machine['transformers']}. "
        "Accuracy in per cent; differences in points from `full`, with 95 % "
        "paired bootstrap intervals over examples and seeds. The last column is TinyBERT's (arXiv 1909.10351, tables "
        "2 to 4): averages over four tasks, full 75.6.",
    ]
    for folder, made in zip(args.runs, found, strict=True):
        lines += ["", f"## {Path(folder).name}", ""]
        given = f"{made['minutes']:g} minutes" if made["minutes"] else f"{made['steps']} steps"
        lines += [
            f"{made['data']['train']:,} rows; {made['teacher']['shape']} → {made['student']['shape']}; teacher on dev "
            f"{percent(made['teacher']['dev'])}; {given} a cell, seeds {', '.join(map(str, made['seeds']))}.",
            "",
            *rows_of(made),
        ]
    lines += [
        "",
        *([args.note, ""] if args.note else []),
        "Made by `python benchmarks/ablation.py`; its docstring has the commands.",
        "",
    ]
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{args.name}.md").write_text("\n".join(lines))
    facts = [{"name": Path(r).name, **{key: m[key] for key in KEPT}} for r, m in zip(args.runs, found, strict=True)]
    for fact in facts:
        for key in ("source", "origin"):
            fact["teacher"].pop(key, None)  # may be a folder of the machine
    (RESULTS / f"{args.name}.json").write_text(json.dumps({"schema_version": 1, "runs": facts}, indent=1) + "\n")


def main() -> None:
    """Run, or tabulate."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = parser.add_subparsers(required=True)
    running = parts.add_parser("run")
    running.add_argument("--data", required=True, help="folder with GLUE's SST-2 and MRPC")
    running.add_argument("--teacher", default="pypi:minilm")
    running.add_argument("--student", default="4x312")
    running.add_argument("--tasks", default=",".join(TASKS))
    running.add_argument("--minutes", type=float, default=1.5)
    running.add_argument("--seeds", type=int, default=3)
    running.add_argument("--cells", help="left out, all")
    running.add_argument("--out", default="runs/ablation", help="the run folders are OUT-TASK")
    running.add_argument("--set", action="append", default=[], help="a further setting, section.key=value")
    running.set_defaults(work=run)
    tabulating = parts.add_parser("table")
    tabulating.add_argument("runs", nargs="+", help="run folders")
    tabulating.add_argument("--name", default="ablation")
    tabulating.add_argument("--note", default="", help="what else must be known to run it again")
    tabulating.set_defaults(work=table)
    args = parser.parse_args()
    args.work(args)


if __name__ == "__main__":
    main()
