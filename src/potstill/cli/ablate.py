"""`potstill ablate`: what each part of a distillation is worth."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from potstill.cli.flags import Label, Out, Pair, Quiet, Rows, Seed, Set, SettingsFile, Text, Train
from potstill.cli.output import results, write_json
from potstill.cli.running import run_shown

if TYPE_CHECKING:
    from potstill.config import AblateSettings
    from potstill.progress import Reporter

__all__ = ["ablate"]


def ablate(  # one parameter is one flag
    settings: SettingsFile = None,
    teacher: Annotated[
        list[str] | None,
        typer.Option(metavar="SOURCE", help="The teacher, or several by several flags, as for distill."),
    ] = None,
    train: Train = None,
    dev: Annotated[str | None, typer.Option(metavar="SOURCE", help="Labelled examples to compare on.")] = None,
    test: Annotated[
        str | None,
        typer.Option(
            metavar="SOURCE",
            help="Labelled examples for further columns of the table; nothing is chosen by them.",
        ),
    ] = None,
    text: Text = None,
    pair: Pair = None,
    label: Label = None,
    rows: Rows = None,
    student: Annotated[
        str | None, typer.Option(metavar="LxH", help="The student's shape: LxH or LxHxFFNxHEADS.")
    ] = None,
    mode: Annotated[
        str | None, typer.Option(metavar="NAME", help="The method whose parts are changed: potstill, paper, ...")
    ] = None,
    cells: Annotated[
        str | None, typer.Option(metavar="NAME,NAME", help="Cells to run beside full (names by --list); left out, all.")
    ] = None,
    seeds: Annotated[int | None, typer.Option(metavar="N", help="Seeds of each cell.")] = None,
    minutes: Annotated[
        float | None, typer.Option(metavar="MINUTES", help="The student's training time in each cell.")
    ] = None,
    steps: Annotated[
        int | None, typer.Option(metavar="N", help="Steps of each cell, in place of --minutes; left out, by epochs.")
    ] = None,
    out: Out = None,
    seed: Seed = None,
    set_: Set = None,
    quiet: Quiet = False,
    as_json: Annotated[bool, typer.Option("--json", help="Answer with ablation.json on standard output.")] = False,
    names: Annotated[
        bool, typer.Option("--list", help="Print the cells of these settings, and what they change; run nothing.")
    ] = False,
) -> None:
    """Measure what each part of a distillation is worth.

    A cell is the distillation that `potstill distill` would run with one thing changed: a loss left out, other layers
    as teachers, another start, no augmented texts. Cells share the data and the fine-tuned teacher, get the same time
    (or steps), and are run with several seeds. The table shows each cell's difference from the full recipe with its
    95 % interval, beside what TinyBERT's paper found. The same command goes on where it was stopped; cells added later
    join those that are done.

    \b
    Example:
      potstill ablate --teacher pypi:minilm --train train.tsv --text sentence --student 4x312 --list
      potstill ablate --teacher pypi:minilm --train train.tsv --text sentence --student 4x312 \\
          --rows 8000 --minutes 1.5 --seeds 3 --out runs/ablation
      potstill ablate sst2.toml --cells labels-alone,logits-alone,no-hidden --minutes 1 --out runs/sst2-ablation
    """
    from potstill.config import AblateSettings, read_settings

    flags: dict[str, Any] = {
        "teacher.source": teacher[0] if teacher else None,
        "teacher.more": teacher[1:] if teacher else None,
        "data.train": train,
        "data.dev": dev,
        "data.test": test,
        "data.text": text,
        "data.pair": pair,
        "data.label": label,
        "data.rows": rows,
        "student.shape": student,
        "distill.mode": mode,
        "ablate.cells": cells,
        "ablate.seeds": seeds,
        "ablate.minutes": minutes,
        "ablate.steps": steps,
        "run.out": out,
        "run.seed": seed,
    }
    overrides = [f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in flags.items() if value is not None]
    loaded = read_settings(AblateSettings, settings, [*overrides, *(set_ or [])])
    if names:
        _list(loaded, as_json)
    else:
        _run(loaded, quiet, as_json)


def _list(settings: "AblateSettings", as_json: bool) -> None:
    from potstill.cli.ablation_lines import cell_lines
    from potstill.pipeline import ablation_cells

    with results() as stream:
        found = ablation_cells(settings)
        if as_json:
            write_json(stream, {"schema_version": 1, "cells": found})
        else:
            stream.writelines(f"{line}\n" for line in cell_lines(found))


def _run(settings: "AblateSettings", quiet: bool, as_json: bool) -> None:
    from potstill.cli.ablation_lines import ablation_lines

    folder = Path(settings.run.out)
    with results() as stream:
        made = run_shown(lambda reporter: _ablate(settings, reporter), folder, quiet=quiet)
        if as_json:
            write_json(stream, made)
            return
        lines = [] if quiet else ablation_lines(made)
        stream.writelines(f"{line}\n" for line in [*lines, f"ablation: {folder / 'ablation.html'}"])


def _ablate(settings: "AblateSettings", reporter: "Reporter") -> dict[str, Any]:
    from potstill import pipeline

    return pipeline.ablate(settings, reporter)
