"""MPNet (109 M) → 4×312 on SST-2, one seed a call, with MiniLM fine-tuned as baseline.

    python benchmarks/sst2.py --data DIR --seed 0 --budget 60
    python benchmarks/sst2.py --data DIR --seed 1 --teacher runs/sst2-0/stages/teacher/model --epochs 2 --threads 1
    python benchmarks/tables.py sst2 "SST-2: MPNet (109 M) → 4×312" runs/sst2-*

The first is the whole job within an hour, its teacher fine-tuned in it; the others share that teacher.

DIR holds GLUE's SST-2: train.tsv and dev.tsv. Dev, by which a run chooses, is cut from train.tsv by hash; GLUE's
dev.tsv, the only labelled part beside it, is the test split and is looked at once a run. It is not untouched: while
shrinking was written, half of its rows told whether refitting pays and how often, and all of them scored the trial
teachers. Two runs of one thread each, side by side, get more done on two cores than one run of two threads.
"""

import argparse
import subprocess
import sys
from pathlib import Path


def command(args: argparse.Namespace) -> list[str]:
    """The `potstill distill` call of one seed."""
    settings = [
        "data.dev_share=0.02",
        "teacher.epochs=1",
        "teacher.batch_size=64",
        "teacher.learning_rate=5e-5",
        "augment.method=none",
        *([] if args.epochs is None else [f"distill.epochs={args.epochs}"]),
        *([] if args.threads is None else [f"run.threads={args.threads}"]),
        *args.set,
    ]
    data = Path(args.data)
    return [
        *("potstill", "distill", "--teacher", args.teacher, "--student", "4x312"),
        *("--train", f"{data}/train.tsv", "--test", f"{data}/dev.tsv", "--text", "sentence", "--label", "label"),
        *("--seed", str(args.seed), "--out", f"{args.out}-{args.seed}"),
        *(() if args.budget is None else ("--budget", str(args.budget))),
        *(() if args.no_baseline else ("--baseline", "pypi:minilm")),
        *(part for setting in settings for part in ("--set", setting)),
    ]


def main() -> None:
    """Run, or go on with, one seed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="folder with GLUE's SST-2")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, help="of distillation; left out, the recipe's or the budget's")
    parser.add_argument("--budget", type=float, help="minutes for everything")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--teacher", default="pypi:mpnet", help="or a fine-tuned model's folder")
    parser.add_argument("--no-baseline", action="store_true", help="leave out MiniLM, whose score no seed changes much")
    parser.add_argument("--out", default="runs/sst2", help="the run folder is OUT-SEED")
    parser.add_argument("--set", action="append", default=[], help="a further setting, section.key=value")
    call = command(parser.parse_args())
    subprocess.run([str(Path(sys.executable).parent / call[0]), *call[1:]], check=True)


if __name__ == "__main__":
    main()
