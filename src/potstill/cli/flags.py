"""Flags that every command with a run folder has."""

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["Budget", "Out", "Quiet", "Seed", "Set", "SettingsFile"]

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
