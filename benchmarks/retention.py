"""How much of MPNet (109 M) a 4×312 student keeps, on SST-2, MRPC, STS-B and QNLI, over seeds.

    python benchmarks/retention.py run --data DIR --task mrpc --seeds 3 --set run.budget=60
    python benchmarks/retention.py table runs/retention-*
    python benchmarks/retention.py curve runs/curve-*

DIR holds GLUE's SST-2, MRPC, STS-B (with the scored test of its authors) and QNLI. MPNet is fine-tuned once a task, in
the run of seed 0, with the default settings; the other seeds share it. Two runs of one thread each (`--set
run.threads=1`), side by side, get more done on two cores than one run of two threads.

Nothing is chosen by the test split. SST-2: dev is cut from train.tsv by hash, GLUE's dev.tsv is the test split. MRPC
and STS-B: their own three splits. QNLI: GLUE's training split is not there, so its dev split is cut by hash: half of it
is the test split, a twentieth dev, the rest train; questions on one sentence stay together. The second call writes
results/retention.md and results/retention.json; the third, of runs that differ in `run.budget`, results/curve.md and
results/curve.json: what is kept against minutes.
"""

import argparse
import csv
import hashlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tables import percent

RESULTS = Path(__file__).parent / "results"
TITLES = {"sst2": "SST-2", "mrpc": "MRPC", "stsb": "STS-B", "qnli": "QNLI"}
FACTS = ("task", "data", "teacher", "student", "retention", "size_ratio", "recipe", "seconds", "environment")
QNLI = {"test": 0.5, "dev": 0.55, "train": 1.0}


def rows_of(path: Path) -> Iterator[dict[str, str]]:
    """A GLUE table: quoting off, a BOM in MRPC."""
    with path.open(encoding="utf-8-sig", newline="") as lines:
        header, *rest = (line.rstrip("\r\n").split("\t") for line in lines)
    yield from (dict(zip(header, row, strict=True)) for row in rest)


def qnli_splits(data: Path, out: Path) -> None:
    """QNLI's dev split as three files: questions and sentences that stand together in any row stay together."""
    found = list(rows_of(data / "QNLI" / "dev.tsv"))
    parents: dict[str, str] = {}

    def root(name: str) -> str:
        while parents.setdefault(name, name) != name:
            name = parents[name] = parents[parents[name]]
        return name

    for row in found:
        parents[root("q" + row["question"])] = root("s" + row["sentence"])
    first: dict[str, str] = {}
    for row in found:
        name = root("q" + row["question"])
        first[name] = min(first.get(name, row["question"]), row["question"])
    splits: dict[str, list[dict[str, str]]] = {name: [] for name in QNLI}
    for row in found:
        place = int(hashlib.sha256(first[root("q" + row["question"])].encode()).hexdigest()[:8], 16) / 2**32
        splits[next(name for name, upto in QNLI.items() if place < upto)].append(row)
    out.mkdir(parents=True, exist_ok=True)
    for name, rows in splits.items():
        with (out / f"{name}.csv").open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, ["question", "sentence", "label"], extrasaction="ignore")
            writer.writeheader()
            writer.writerows(rows)


def plain(text: str) -> str:
    """Letters and digits alone: what makes two sentences the same."""
    return " ".join("".join(c if c.isalnum() else " " for c in text.lower()).split())


def write_pairs(task: str, data: Path, sick: Path, out: Path) -> None:
    """Pairs of SICK and of MNLI's dev split without labels, as the task's file has them; none that its dev or test has.

    A pair is left out where one of its sentences is one of these splits'.
    """
    pairs = [(row["sentence_A"], row["sentence_B"]) for row in rows_of(sick)]
    pairs += [(row["premise"], row["hypothesis"]) for row in rows_of(data / "MNLI" / "dev_matched.tsv")]
    names, splits = {
        "mrpc": (("#1 String", "#2 String"), (data / "MRPC" / "dev.tsv", data / "MRPC" / "test_labelled.tsv")),
        "stsb": ((5, 6), (data / "STS-B" / "sts-dev.tsv", data / "STS-B" / "sts-test.tsv")),
    }[task]
    judged = set()
    for path in splits:
        header, *rest = (line.split("\t") for line in path.read_text(encoding="utf-8-sig").splitlines())
        places = [name if isinstance(name, int) else header.index(name) for name in names]
        rows = [header, *rest] if task == "stsb" else rest
        judged |= {plain(row[place]) for row in rows for place in places}
    kept = [pair for pair in pairs if not judged & set(map(plain, pair))]
    print(f"{len(kept):,} of {len(pairs):,} pairs have no sentence of dev or test")
    lines = [] if task == "stsb" else ["Quality\t#1 String\t#2 String"]
    lines += ["\t".join((*[""] * (5 if task == "stsb" else 1), *pair)) for pair in kept]
    out.write_text("\n".join(lines) + "\n", encoding="utf-8")


def inputs_of(task: str, data: Path, out: str) -> list[str]:
    """The data flags of a task."""
    match task:
        case "sst2":
            folder = data / "SST-2"
            named = ["--text", "sentence", "--label", "label", "--set", "data.dev_share=0.02"]
            return ["--train", f"{folder}/train.tsv", "--test", f"{folder}/dev.tsv", *named]
        case "mrpc":
            folder, splits = data / "MRPC", ("train.tsv", "dev.tsv", "test_labelled.tsv")
            named = ["--text", "#1 String", "--pair", "#2 String", "--label", "Quality"]
        case "stsb":
            folder, splits = data / "STS-B", ("sts-train.tsv", "sts-dev.tsv", "sts-test.tsv")
            named = ["--task", "regression", "--set", "data.header=false", "--text", "6", "--pair", "7", "--label", "5"]
        case _:
            folder, splits = Path(f"{out}-qnli-data"), ("train.csv", "dev.csv", "test.csv")
            qnli_splits(data, folder)
            named = ["--text", "question", "--pair", "sentence", "--label", "label"]
    roles = ("--train", "--dev", "--test")
    return [*(part for role, name in zip(roles, splits, strict=True) for part in (role, f"{folder}/{name}")), *named]


def run(args: argparse.Namespace) -> None:
    """Run, or go on with, the seeds of a task."""
    inputs = inputs_of(args.task, Path(args.data), args.out)
    if args.sick:
        pairs = Path(f"{args.out}-{args.task}-pairs.tsv")
        write_pairs(args.task, Path(args.data), Path(args.sick), pairs)
        inputs += ["--set", f'data.unlabelled=["{pairs}"]']
    settings = ["evaluate.hard_labels=false", "evaluate.tfidf=false", "export.formats=[]", *args.set]
    potstill = str(Path(sys.executable).parent / "potstill")
    first = f"{args.out}-{args.task}-0"
    for seed in range(args.seeds):
        teacher = args.teacher if seed == 0 else f"{first}/stages/teacher/model"
        call = [
            *(potstill, "distill", "--teacher", teacher, "--student", args.student, *inputs),
            *("--seed", str(seed), "--out", f"{args.out}-{args.task}-{seed}"),
            *(part for setting in settings for part in ("--set", setting)),
        ]
        subprocess.run(call, check=True)


def table(args: argparse.Namespace) -> None:
    """Write results/NAME.md and results/NAME.json."""
    reports: dict[str, list[dict[str, Any]]] = {}
    for folder in args.runs:
        name = Path(folder).name.removeprefix(f"{args.prefix}-").rsplit("-", 1)[0]
        reports.setdefault(name, []).append(json.loads((Path(folder) / "report.json").read_text()))
    first = next(iter(reports.values()))[0]
    machine, teacher, student = first["environment"], first["teacher"], first["student"]
    lines = [
        f"# What {student['shape']} keeps of {teacher['shape']}",
        "",
        f"{machine['cpu']} ({', '.join(machine['cpu_flags'])}), {machine['threads']} thread(s) a run, torch "
        f"{machine['torch']}, transformers {machine['transformers']}. Teacher {teacher['parameters'] / 1e6:.1f} M "
        f"parameters, student {student['parameters'] / 1e6:.2f} M: {first['size_ratio']:.1f}× fewer. Scores on the "
        "test split with 95 % intervals: accuracy, for STS-B Pearson's correlation, in per cent. Minutes of one run, "
        "without the teacher's fine-tuning.",
        "",
        "| task | seed | teacher | student | kept | minutes |",
        "|---|---|---|---|---|---|",
    ]
    means, lows = [], []
    for name, found in reports.items():
        for report in found:
            scores = [report["teacher"]["score"], report["student"]["score"], report["retention"]]
            spent = report["seconds"]["total"] - report["seconds"].get("teacher", 0.0)
            seed = report["settings"]["run"]["seed"]
            cells = " | ".join(map(percent, scores))
            lines.append(f"| {TITLES.get(name, name)} | {seed} | {cells} | {spent / 60:.0f} |")
        means.append(sum(report["retention"]["value"] for report in found) / len(found))
        lows.append(sum(report["retention"]["low"] for report in found) / len(found))
    each = ", ".join(f"{TITLES.get(name, name)} {100 * mean:.1f}" for name, mean in zip(reports, means, strict=True))
    lines += [
        "",
        f"Mean retention by task: {each}; over the tasks {100 * sum(means) / len(means):.1f} %, lower bounds "
        f"{100 * sum(lows) / len(lows):.1f} % (means of the runs' own).",
        "",
        *([args.note, ""] if args.note else []),
        "Made by `python benchmarks/retention.py`; its docstring has the commands.",
        "",
    ]
    write(args.name, lines, [(name, report) for name, found in reports.items() for report in found])


def steps_of(report: dict[str, Any]) -> str:
    """Steps of each assistant and of the student: `120 + 900`."""
    names = [stage for stage in report["recipe"]["stages"] if stage["name"].split("-")[0] in ("assistant", "student")]
    return " + ".join(str(stage["steps"]) for stage in names)


def curve(args: argparse.Namespace) -> None:
    """Write results/NAME.md and results/NAME.json: what is kept against the minutes of a budget."""
    reports = [json.loads((Path(folder) / "report.json").read_text()) for folder in args.runs]
    reports.sort(key=lambda report: (-report["student"]["parameters"], report["settings"]["run"]["budget"]))
    machine = reports[0]["environment"]
    lines = [
        "# What is kept against minutes",
        "",
        f"{machine['cpu']} ({', '.join(machine['cpu_flags'])}), torch {machine['torch']}, transformers "
        f"{machine['transformers']}. Minutes of `--budget`, for a teacher that is fine-tuned already: its answers, "
        "assistants, the student and measuring. SST-2; accuracy on the test split with 95 % intervals, in per cent. "
        "One seed. Steps are those of assistants and of the student.",
        "",
        "| teacher | student | parameters, M | minutes | threads | steps | teacher's score | score | kept |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for report in reports:
        teacher, student = report["teacher"], report["student"]
        cells = [
            *(teacher["shape"], student["shape"], f"{student['parameters'] / 1e6:.2f}"),
            *(f"{report['settings']['run']['budget']:g}", str(report["environment"]["threads"]), steps_of(report)),
            *map(percent, (teacher["score"], student["score"], report["retention"])),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    lines += ["", *([args.note, ""] if args.note else [])]
    lines += ["Made by `python benchmarks/retention.py`; its docstring has the commands.", ""]
    write(args.name, lines, [("sst2", report) for report in reports])


def write(name: str, lines: list[str], named: list[tuple[str, dict[str, Any]]]) -> None:
    """A table and its facts, without what names the machine's folders."""
    (RESULTS / f"{name}.md").write_text("\n".join(lines))
    facts = []
    for task, report in named:
        run = report["settings"]["run"]
        fact = {"name": task, "seed": run["seed"], "budget": run["budget"], **{key: report[key] for key in FACTS}}
        for key in ("source", "origin"):
            fact["teacher"].pop(key, None)
        fact["data"] = {key: fact["data"][key] for key in ("train", "dev", "test", "augmented")}
        facts.append(fact)
    (RESULTS / f"{name}.json").write_text(json.dumps({"schema_version": 1, "runs": facts}, indent=1) + "\n")


def main() -> None:
    """Run, or tabulate."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = parser.add_subparsers(required=True)
    running = parts.add_parser("run")
    running.add_argument("--data", required=True, help="folder with GLUE's tasks")
    running.add_argument("--task", choices=list(TITLES), required=True)
    running.add_argument("--seeds", type=int, default=3)
    running.add_argument("--teacher", default="pypi:mpnet", help="of seed 0: an encoder, or a fine-tuned model")
    running.add_argument("--student", default="4x312")
    running.add_argument("--out", default="runs/retention", help="the run folders are OUT-TASK-SEED")
    running.add_argument("--sick", help="SICK's table: MRPC and STS-B are learned from its pairs and MNLI's too")
    running.add_argument("--set", action="append", default=[], help="a further setting, section.key=value")
    running.set_defaults(work=run)
    tabulating = parts.add_parser("table")
    tabulating.add_argument("runs", nargs="+", help="run folders")
    tabulating.add_argument("--name", default="retention")
    tabulating.add_argument("--prefix", default="retention", help="what the folders' names begin with")
    tabulating.add_argument("--note", default="", help="what else must be known to run it again")
    tabulating.set_defaults(work=table)
    drawing = parts.add_parser("curve")
    drawing.add_argument("runs", nargs="+", help="run folders, each of a budget of its own")
    drawing.add_argument("--name", default="curve")
    drawing.add_argument("--note", default="", help="what else must be known to run it again")
    drawing.set_defaults(work=curve)
    args = parser.parse_args()
    args.work(args)


if __name__ == "__main__":
    main()
