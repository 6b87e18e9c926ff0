"""`potstill distill`: the main job."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from potstill.cli.flags import (
    SOURCE,
    Budget,
    Dev,
    Label,
    Out,
    Pair,
    Quiet,
    Rows,
    Seed,
    Set,
    SettingsFile,
    Task,
    Test,
    Text,
    Train,
)
from potstill.cli.output import results, write_json
from potstill.cli.running import run_shown
from potstill.errors import GateRefused

if TYPE_CHECKING:
    from potstill.config import Settings
    from potstill.progress import Reporter

__all__ = ["distill"]


def distill(  # one parameter is one flag
    settings: SettingsFile = None,
    teacher: Annotated[
        list[str] | None, typer.Option(metavar="SOURCE", help=f"The teacher, or several by several flags: {SOURCE}.")
    ] = None,
    teacher_scores: Annotated[
        str | None,
        typer.Option(
            metavar="SOURCE",
            help="In place of --teacher, a file of answers (docs/scores.md); it may be the train file.",
        ),
    ] = None,
    train: Train = None,
    dev: Dev = None,
    test: Test = None,
    text: Text = None,
    pair: Pair = None,
    label: Label = None,
    rows: Rows = None,
    task: Task = None,
    student: Annotated[
        str | None, typer.Option(metavar="LxH", help="The student's shape: LxH or LxHxFFNxHEADS.")
    ] = None,
    baseline: Annotated[
        str | None, typer.Option(metavar="SOURCE", help="A small model to fine-tune for comparison.")
    ] = None,
    out: Out = None,
    seed: Seed = None,
    budget: Budget = None,
    set_: Set = None,
    quiet: Quiet = False,
    as_json: Annotated[bool, typer.Option("--json", help="Answer with report.json on standard output.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan (stages, sizes, time, disk).")] = False,
) -> None:
    """Distil a teacher into a small student.

    The student is measured against the teacher and simpler models, exported, and reported on. The same command goes
    on where it was stopped, and does nothing when all is done; with other settings it runs again what depends on
    them, and replaces the student and the report. Where no test is named or cut from train, dev judges.

    \b
    Example:
      potstill distill sst2.toml
      potstill distill --teacher bert-base-uncased --train train.tsv --dev dev.tsv \\
          --text sentence --label label --student 4x312 --out runs/sst2
      potstill distill --teacher-scores llm.csv --train texts.csv --student 4x192
      potstill distill sst2.toml --set teacher.epochs=2 --set distill.mode=paper --dry-run
    """
    from potstill.config import load_settings

    flags: dict[str, str | list[str] | int | float | None] = {
        "teacher.source": teacher[0] if teacher else None,
        "teacher.more": teacher[1:] if teacher else None,
        "teacher.scores": teacher_scores,
        "data.train": train,
        "data.dev": dev,
        "data.test": test,
        "data.text": text,
        "data.pair": pair,
        "data.label": label,
        "data.rows": rows,
        "data.task": task,
        "student.shape": student,
        "evaluate.baseline": baseline,
        "run.out": out,
        "run.seed": seed,
        "run.budget": budget,
    }
    overrides = [f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in flags.items() if value is not None]
    loaded = load_settings(settings, [*overrides, *(set_ or [])])
    if dry_run:
        _plan(loaded, as_json)
    else:
        _run(loaded, quiet, as_json)


def _plan(settings: "Settings", as_json: bool) -> None:
    from potstill.cli.summary import plan_lines
    from potstill.pipeline import plan

    with results() as out:
        planned = plan(settings)
        if as_json:
            write_json(out, planned)
        else:
            out.writelines(f"{line}\n" for line in plan_lines(planned))


def _run(settings: "Settings", quiet: bool, as_json: bool) -> None:
    from potstill.cli.summary import last_line, summary_lines

    folder = Path(settings.run.out)
    with results() as out:
        try:
            report = run_shown(lambda reporter: _distill(settings, reporter), folder, quiet=quiet)
        except GateRefused:
            # The result stands, and says why it was refused.
            if as_json and (refused := _refused(folder)) is not None:
                write_json(out, refused)
            raise
        if as_json:
            write_json(out, report)
            return
        lines = [] if quiet else summary_lines(report)
        out.writelines(f"{line}\n" for line in [*lines, last_line(folder)])


def _distill(settings: "Settings", reporter: "Reporter") -> dict[str, Any]:
    from potstill import pipeline

    return pipeline.distill(settings, reporter)


def _refused(folder: Path) -> dict[str, Any] | None:
    from potstill import storage

    path = folder / "report.json"
    report = storage.read_json(path) if path.is_file() else None
    return report if isinstance(report, dict) and report.get("status") == "refused" else None
