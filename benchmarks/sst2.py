"""MPNet (109 M) → 4×312 on SST-2 over several seeds, with MiniLM fine-tuned as baseline.

    python benchmarks/sst2.py --data DIR [--seeds 0 1 2] [--minutes 60] [--out runs/sst2]

DIR holds GLUE's SST-2: train.tsv and dev.tsv. Dev, by which everything is chosen, is cut from train.tsv by hash; GLUE's
dev.tsv, the only labelled part beside it, is the test split and looked at once a run. The first seed's fine-tuned teacher
serves the other seeds, so that they differ in the student alone. Writes results/sst2.md and results/sst2.json.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"


def command(args: argparse.Namespace, seed: int, teacher: str, budget: float) -> list[str]:
    """The `potstill distill` call of one seed."""
    data = Path(args.data)
    return [
        *("potstill", "distill", "--teacher", teacher, "--student", "4x312", "--baseline", "pypi:minilm"),
        *(
            "--train",
            str(data / "train.tsv"),
            "--test",
            str(data / "dev.tsv"),
            "--text",
            "sentence",
            "--label",
            "label",
        ),
        *("--seed", str(seed), "--budget", str(budget), "--out", f"{args.out}-{seed}"),
        *("--set", "data.dev_share=0.02", "--set", "teacher.epochs=1", "--set", "augment.method=none"),
        *(part for setting in args.set for part in ("--set", setting)),
    ]


def run(args: argparse.Namespace) -> list[dict[str, Any]]:
    """Run, or go on with, every seed; returns their reports."""
    reports = []
    teacher, budget = "pypi:mpnet", float(args.minutes)
    for number, seed in enumerate(args.seeds):
        out = Path(f"{args.out}-{seed}")
        call = [Path(sys.executable).parent / "potstill", *command(args, seed, teacher, budget)[1:]]
        subprocess.run(call, check=True)
        reports.append(json.loads((out / "report.json").read_text()))
        if number == 0:
            teacher = str(out / "stages" / "teacher" / "model")
            budget = args.later_minutes or budget
    return reports


def percent(metric: dict[str, float]) -> str:
    """A score with its interval, in per cent."""
    return f"{100 * metric['value']:.1f} [{100 * metric['low']:.1f}, {100 * metric['high']:.1f}]"


def table(reports: list[dict[str, Any]], calls: list[str]) -> str:
    """The results as Markdown."""
    first = reports[0]
    environment = first["environment"]
    lines = [
        "# SST-2: MPNet (109 M) → 4×312",
        "",
        f"{environment['cpu']} ({', '.join(environment['cpu_flags'])}), {environment['threads']} threads, torch "
        f"{environment['torch']}, transformers {environment['transformers']}. Judged on GLUE's dev.tsv "
        f"({first['student']['score']['n']} sentences), looked at once; everything was chosen on a part of train.tsv.",
        "",
        "| seed | teacher | student | kept | hard labels alone | MiniLM fine-tuned | TF-IDF | minutes |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for report in reports:
        base = report["baselines"]
        lines.append(
            f"| {report['settings']['run']['seed']} | {percent(report['teacher']['score'])} "
            f"| {percent(report['student']['score'])} | {percent(report['retention'])} "
            f"| {percent(base['hard_labels']['score'])} | {percent(base['small_pretrained']['score'])} "
            f"| {percent(base['tfidf_logistic']['score'])} | {report['seconds']['total'] / 60:.0f} |"
        )
    kept = [report["retention"]["value"] for report in reports]
    mean = sum(kept) / len(kept)
    lines += ["", f"Mean retention {100 * mean:.1f} % (seeds {100 * min(kept):.1f} to {100 * max(kept):.1f})."]
    lines += ["", "Exports of the first seed, speed against the teacher in torch float32 on the test machine:", ""]
    lines += ["| export | MB | test score | accepted | batch 1 | batch 32 | engine × student at batch 1 |"]
    lines += ["|---|---|---|---|---|---|---|"]
    for export in first["exports"]:
        lines.append(
            f"| {export['format']} {export['precision']} | {export['bytes'] / 1e6:.1f} | {percent(export['test_score'])} "
            f"| {'yes' if export['accepted'] else 'no'} | {export['speedup']['1']:.1f}× | {export['speedup']['32']:.1f}× "
            f"| {export['engine_share']['1']:.1f} × {export['student_share']['1']:.1f} |"
        )
    lines += ["", "Commands:", "", "```", *calls, "```"]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="folder with GLUE's SST-2")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--minutes", type=float, default=60, help="budget of the first seed's run")
    parser.add_argument("--later-minutes", type=float, help="budget of the others, whose teacher is ready")
    parser.add_argument("--out", default="runs/sst2", help="run folders are OUT-SEED")
    parser.add_argument("--set", action="append", default=[], help="further settings, section.key=value")
    args = parser.parse_args()
    reports = run(args)
    shown = argparse.Namespace(**{**vars(args), "data": "SST-2", "out": "runs/sst2"})
    first = f"{shown.out}-{args.seeds[0]}/stages/teacher/model"
    calls = [
        " ".join(
            command(
                shown,
                seed,
                "pypi:mpnet" if number == 0 else first,
                args.minutes if number == 0 else args.later_minutes or args.minutes,
            )
        )
        for number, seed in enumerate(args.seeds)
    ]
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "sst2.md").write_text(table(reports, calls))
    kept = ("teacher", "student", "retention", "gap_closed", "baselines", "exports", "seconds", "environment", "recipe")
    facts = [{"seed": report["settings"]["run"]["seed"], **{key: report[key] for key in kept}} for report in reports]
    (RESULTS / "sst2.json").write_text(json.dumps({"schema_version": 1, "runs": facts}, indent=1) + "\n")


if __name__ == "__main__":
    main()
