"""`potstill finetune`: an encoder and labelled data to a model that answers."""

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
from potstill.cli.summary import finetune_lines
from potstill.errors import GateRefused

if TYPE_CHECKING:
    from potstill.config import FinetuneSettings
    from potstill.progress import Reporter

__all__ = ["finetune"]


def finetune(  # one parameter is one flag
    settings: SettingsFile = None,
    model: Annotated[
        str | None, typer.Option(metavar="SOURCE", help=f"The encoder that is fine-tuned: {SOURCE}.")
    ] = None,
    train: Train = None,
    dev: Dev = None,
    test: Test = None,
    text: Text = None,
    pair: Pair = None,
    label: Label = None,
    rows: Rows = None,
    task: Task = None,
    epochs: Annotated[int | None, typer.Option(metavar="N", help="Times that the examples are learned from.")] = None,
    batch_size: Annotated[int | None, typer.Option(metavar="N", help="Examples in a step.")] = None,
    learning_rate: Annotated[float | None, typer.Option(metavar="RATE", help="Highest learning rate.")] = None,
    grid: Annotated[
        bool,
        typer.Option("--grid", help="Try BERT's grid of batch sizes, rates and epochs, and keep the best on dev."),
    ] = False,
    out: Out = None,
    seed: Seed = None,
    budget: Budget = None,
    set_: Set = None,
    quiet: Quiet = False,
    as_json: Annotated[bool, typer.Option("--json", help="Answer with finetune.json on standard output.")] = False,
) -> None:
    """Fine-tune an encoder on labelled data.

    The result is a plain transformers folder with its scores on dev and test, which predict, evaluate and distill
    --teacher take. It is trained as distill trains a teacher that is a bare encoder. Where no dev is named, a share of
    train is cut. The same command goes on where it was stopped, and does nothing when all is done. The exit code is 1
    where the model is hardly better than one answer for all texts.

    \b
    Example:
      potstill finetune --model pypi:minilm --train train.tsv --dev dev.tsv --text sentence --out runs/sst2
      potstill finetune --model bert-base-uncased --train train.csv --epochs 4 --learning-rate 2e-5 --budget 30
      potstill distill --teacher runs/sst2/model --train train.tsv --dev dev.tsv --text sentence
    """
    from potstill.config import FinetuneSettings, read_settings

    flags: dict[str, Any] = {
        "model.source": model,
        "data.train": train,
        "data.dev": dev,
        "data.test": test,
        "data.text": text,
        "data.pair": pair,
        "data.label": label,
        "data.rows": rows,
        "data.task": task,
        "training.epochs": epochs,
        "training.batch_size": batch_size,
        "training.learning_rate": learning_rate,
        "training.grid": True if grid else None,
        "run.out": out,
        "run.seed": seed,
        "run.budget": budget,
    }
    overrides = [f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in flags.items() if value is not None]
    loaded = read_settings(FinetuneSettings, settings, [*overrides, *(set_ or [])])
    folder = Path(loaded.run.out)
    with results() as stream:
        try:
            made = run_shown(lambda reporter: _finetune(loaded, reporter), folder, quiet=quiet)
        except GateRefused:
            if as_json:  # the result stands, and says why it was refused
                stream.write((folder / "finetune.json").read_text(encoding="utf-8"))
            raise
        if as_json:
            write_json(stream, made)
            return
        lines = [] if quiet else finetune_lines(made)
        stream.writelines(f"{line}\n" for line in [*lines, f"model: {folder / 'model'}"])


def _finetune(settings: "FinetuneSettings", reporter: "Reporter") -> dict[str, Any]:
    from potstill import pipeline

    return pipeline.finetune(settings, reporter)
