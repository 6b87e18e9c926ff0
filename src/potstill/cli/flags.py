"""Flags that several commands have, written once."""

from pathlib import Path
from typing import Annotated, Literal

import typer

__all__ = [
    "SOURCE",
    "Budget",
    "Dev",
    "Engine",
    "Format",
    "Header",
    "Label",
    "LabelMargin",
    "LabelSeparator",
    "LabelThreshold",
    "Out",
    "Pair",
    "Precision",
    "Quiet",
    "Rows",
    "Seed",
    "Set",
    "SettingsFile",
    "Silent",
    "Task",
    "Test",
    "Text",
    "Train",
]

SOURCE = "a path, hub:owner/name, pypi:package==version/path or a name from `potstill sources`"

# Of every command with a run folder.
SettingsFile = Annotated[
    Path | None, typer.Argument(metavar="SETTINGS.toml", help="Settings; flags override what it says.")
]
Out = Annotated[str | None, typer.Option(metavar="FOLDER", help="The run folder.")]
Seed = Annotated[int | None, typer.Option(metavar="N", help="Seed of everything random.")]
Budget = Annotated[
    float | None, typer.Option(metavar="MINUTES", help="Time for the whole run; epochs are scaled to fit.")
]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Any setting, as section.key=value; wins over other flags."),
]
Quiet = Annotated[bool, typer.Option("--quiet", help="Show warnings, errors and the last line alone.")]

# Of every command that learns from labelled data.
Train = Annotated[str | None, typer.Option(metavar="SOURCE", help="Labelled examples to learn from.")]
Dev = Annotated[str | None, typer.Option(metavar="SOURCE", help="Labelled examples to choose by.")]
Test = Annotated[str | None, typer.Option(metavar="SOURCE", help="Labelled examples to judge by.")]
Text = Annotated[str | None, typer.Option(metavar="COLUMN", help="The column that holds the text.")]
Pair = Annotated[str | None, typer.Option(metavar="COLUMN", help="The column that holds the second text.")]
Label = Annotated[str | None, typer.Option(metavar="COLUMN", help="The column that holds the label or the score.")]
Rows = Annotated[int | None, typer.Option(metavar="N", help="Learn from so many rows of train.")]
Task = Annotated[
    str | None, typer.Option(metavar="NAME", help="What is answered: classification, multilabel or regression.")
]

# Of every command that reads a file as it stands.
LabelThreshold = Annotated[
    float | None,
    typer.Option(metavar="NUMBER", help="For labels that are numbers: positive from here up, negative below."),
]
LabelSeparator = Annotated[
    Literal[",", ";", "|"], typer.Option(metavar="MARK", help="What stands between the labels of a set: , or ; or |.")
]
LabelMargin = Annotated[
    float, typer.Option(metavar="NUMBER", help="Leave out rows whose number is nearer to the threshold than this.")
]
Format = Annotated[
    Literal["csv", "tsv", "jsonl", "json", "parquet", "tab", "txt"] | None,
    typer.Option("--format", help="Its format.  [default: told by its name]"),
]
Header = Annotated[
    bool,
    typer.Option("--header/--no-header", help="Whether its first row names the columns, else 1, 2, ... (CSV, TSV)."),
]

Silent = Annotated[bool, typer.Option("--quiet", help="Show no progress.")]

# Of every command that runs a finished model.
Engine = Annotated[
    Literal["torch", "onnxruntime", "openvino"] | None, typer.Option("--engine", help="What runs the model.")
]
Precision = Annotated[
    Literal["float32", "bfloat16", "int8"] | None, typer.Option("--precision", help="Its arithmetic.")
]
