"""A distillation small enough for a test: a tiny BERT on texts whose label one word decides."""

import random
import shutil
from collections.abc import Callable
from pathlib import Path

from tests.tiny import tiny_model

from potstill.config import Settings, load_settings
from potstill.pipeline.budget import Budget
from potstill.pipeline.job import prepare_job
from potstill.pipeline.run import Run
from potstill.pipeline.stages import build_stages
from potstill.progress import SILENT

GOOD, BAD = ("good", "great", "funny", "loved", "liked"), ("bad", "awful", "dull", "sad", "hated")
OTHER = "the a film movie plot actor story is was it we saw watched long short slow fast".split()


def write_rows(path: Path, rows: int, seed: int, header: str = "text\tlabel") -> Path:
    """Texts of 3 to 9 words, one of which is good or bad."""
    draw = random.Random(seed)
    lines = [header]
    for number in range(rows):
        words = [draw.choice(OTHER) for _ in range(draw.randint(2, 8))]
        words.insert(draw.randrange(len(words) + 1), draw.choice(GOOD if number % 2 else BAD))
        lines.append(" ".join(words) + "\t" + ("pos" if number % 2 else "neg"))
    path.write_text("\n".join(lines) + "\n")
    return path


def tiny_settings(folder: Path, *overrides: str, kind: str = "bert") -> Settings:
    """Settings of a whole run below `folder`; made files are reused where they stand."""
    folder.mkdir(exist_ok=True)
    if not (folder / "train.tsv").exists():
        write_rows(folder / "train.tsv", 240, 1)
        write_rows(folder / "dev.tsv", 80, 2)
        write_rows(folder / "test.tsv", 80, 3)
        tiny_model(folder / "teacher", kind=kind, layers=2, hidden=32, heads=4, labels=("LABEL_0", "LABEL_1"))
    own = [
        f'teacher.source="{folder}/teacher"',
        "teacher.trained=false",
        "teacher.epochs=25",
        "teacher.learning_rate=0.003",
        f'data.train="{folder}/train.tsv"',
        f'data.dev="{folder}/dev.tsv"',
        f'data.test="{folder}/test.tsv"',
        "student.shape=1x16x32x4",
        "augment.copies=1",
        "distill.epochs=6",
        "distill.learning_rate=0.005",
        "distill.precision=float32",
        'export.formats=["onnx-float32"]',
        "evaluate.resamples=100",
        "run.threads=1",
        f'run.out="{folder}/run"',
    ]
    return load_settings(None, [*own, *overrides])


_TRAINED: dict[str, Path] = {}


def trained_teacher(kind: str, make_folder: Callable[[str], Path]) -> Path:
    """The folder of a tiny job whose teacher/ has been fine-tuned, made once a test run; not to be changed.

    Args:
        kind: bert or mpnet.
        make_folder: `tmp_path_factory.mktemp`.
    """
    if kind not in _TRAINED:
        folder = make_folder(f"trained-{kind}")
        job = prepare_job(tiny_settings(folder, kind=kind), SILENT)
        run = Run(folder / "run", SILENT)
        for stage in build_stages(job, Budget(None, 0.0, lambda: 0.0, {})):
            if stage.name in ("data", "teacher"):
                run.execute(stage)
        shutil.rmtree(folder / "teacher")
        shutil.copytree(run.done["teacher"] / "model", folder / "teacher")
        shutil.rmtree(folder / "run")
        _TRAINED[kind] = folder
    return _TRAINED[kind]


def with_trained_teacher(folder: Path, kind: str, make_folder: Callable[[str], Path]) -> None:
    """Lay the files of a tiny job into `folder`, its teacher fine-tuned; for settings with teacher.trained=true."""
    shutil.copytree(trained_teacher(kind, make_folder), folder, dirs_exist_ok=True)
