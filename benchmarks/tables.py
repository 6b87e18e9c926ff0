"""Finished runs as a table: results/NAME.md, and their figures as results/NAME.json.

python benchmarks/tables.py NAME TITLE RUN... [--note TEXT]
"""

import argparse
import json
import shlex
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
KEPT = ("teacher", "student", "retention", "gap_closed", "size_ratio", "baselines", "exports", "seconds", "environment")
BASELINES = ("hard_labels", "small_pretrained", "tfidf_logistic")


def percent(metric: dict[str, float] | None) -> str:
    """A score with its interval, in per cent; a dash where there is none."""
    if metric is None:
        return "–"
    return f"{100 * metric['value']:.1f} [{100 * metric['low']:.1f}, {100 * metric['high']:.1f}]"


def call_of(report: dict[str, Any]) -> str:
    """The command behind a report, its own folders shortened to their last part."""
    words = shlex.split(report["command"])
    return shlex.join(Path(word).name if word.startswith("/") else word for word in words)


def score_rows(reports: list[dict[str, Any]]) -> list[str]:
    """One row a seed, and the mean."""
    lines = [
        "| seed | teacher | student | kept | hard labels alone | small model, fine-tuned | TF-IDF | minutes |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for report in reports:
        base = [report["baselines"].get(name, {}).get("score") for name in BASELINES]
        scores = [report["teacher"]["score"], report["student"]["score"], report["retention"], *base]
        minutes = report["seconds"]["total"] / 60
        seed = report["settings"]["run"]["seed"]
        lines.append(f"| {seed} | " + " | ".join(percent(score) for score in scores) + f" | {minutes:.0f} |")
    kept = [100 * report["retention"]["value"] for report in reports]
    mean = sum(kept) / len(kept)
    return [*lines, "", f"Mean retention {mean:.1f} % over {len(kept)} seed(s), {min(kept):.1f} to {max(kept):.1f}."]


def export_rows(report: dict[str, Any]) -> list[str]:
    """One row an export."""
    lines = [
        "| export | MB | dev score | accepted | batch 1 | batch 32 | engine × student, batch 1 | batch 32 |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for export in report["exports"]:
        shares = [f"{export['engine_share'][size]:.1f} × {export['student_share'][size]:.1f}" for size in ("1", "32")]
        lines.append(
            f"| {export['format']} {export['precision']} | {export['bytes'] / 1e6:.1f} "
            f"| {percent(export['score'])} | {'yes' if export['accepted'] else 'no'} "
            f"| {export['speedup']['1']:.1f}× | {export['speedup']['32']:.1f}× | {shares[0]} | {shares[1]} |"
        )
    return lines


def table(title: str, reports: list[dict[str, Any]], note: str) -> str:
    """The results as Markdown."""
    first = reports[0]
    machine = first["environment"]
    teacher, student = first["teacher"], first["student"]
    lines = [
        f"# {title}",
        "",
        f"{machine['cpu']} ({', '.join(machine['cpu_flags'])}), torch {machine['torch']}, transformers "
        f"{machine['transformers']}. Accuracy in per cent with 95 % intervals on {student['score']['n']} texts "
        f"({first['judged_on']}), looked at once a run.",
        "",
        f"Teacher {teacher['shape']}, {teacher['parameters'] / 1e6:.1f} M parameters; student {student['shape']}, "
        f"{student['parameters'] / 1e6:.2f} M: {first['size_ratio']:.1f}× fewer.",
        "",
        *score_rows(reports),
        "",
        f"Exports of seed {first['settings']['run']['seed']}; speed on the dev texts (teacher in torch float32 = 1):",
        "",
        *export_rows(first),
        "",
        *([note, ""] if note else []),
        "Commands:",
        "",
        "```",
        *(call_of(report) for report in reports),
        "```",
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Write the table and the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name")
    parser.add_argument("title")
    parser.add_argument("runs", nargs="+", help="run folders")
    parser.add_argument("--note", default="", help="what else must be known to run it again")
    args = parser.parse_args()
    reports = [json.loads((Path(folder) / "report.json").read_text()) for folder in args.runs]
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{args.name}.md").write_text(table(args.title, reports, args.note))
    facts = [{"seed": r["settings"]["run"]["seed"], **{key: r[key] for key in KEPT}} for r in reports]
    for fact in facts:
        for name in ("source", "origin"):
            fact["teacher"].pop(name, None)  # may be a folder of the machine
    (RESULTS / f"{args.name}.json").write_text(json.dumps({"schema_version": 1, "runs": facts}, indent=1) + "\n")


if __name__ == "__main__":
    main()
