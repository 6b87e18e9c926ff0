"""`potstill report`: draws a run's report again."""

from pathlib import Path
from typing import Annotated

import typer

from potstill.cli.output import results, write_json
from potstill.errors import DataError

__all__ = ["report"]


def report(
    run: Annotated[Path, typer.Argument(help="A run folder, which holds report.json.")],
    as_json: Annotated[bool, typer.Option("--json", help="Answer with report.json on standard output.")] = False,
) -> None:
    """Draw a run's report again.

    report.html is made anew from report.json.

    \b
    Example:
      potstill report runs/sst2
    """
    from potstill import storage
    from potstill.report import write_report

    if not (run / "report.json").is_file():
        raise DataError(f"{run} has no report.json", expected="the folder of a finished run")
    with results() as out:
        page = write_report(storage.read_json(run / "report.json"), run)
        if as_json:
            write_json(out, storage.read_json(run / "report.json"))
        else:
            out.write(f"{page}\n")
