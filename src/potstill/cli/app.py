"""The commands together, and what happens when one fails: one line on standard error, and an exit code."""

import os
import sys
from collections.abc import Sequence
from typing import Annotated

import typer
from typer.exceptions import TyperException

from potstill import __version__
from potstill.cli.ablate import ablate
from potstill.cli.cache import cache
from potstill.cli.data import data
from potstill.cli.distill import distill
from potstill.cli.evaluate import evaluate
from potstill.cli.finetune import finetune
from potstill.cli.init import init
from potstill.cli.pace import one_line
from potstill.cli.predict import predict
from potstill.cli.pretrain import pretrain
from potstill.cli.report import report
from potstill.cli.sources import sources
from potstill.errors import PotstillError

__all__ = ["app", "main"]

_EPILOG = (
    "Exit codes: 0 done, 1 a gate refused, 2 bad input or settings, 3 run folder in use, 130 interrupted, "
    "141 the reader of the output has gone."
)

_INTERRUPTED = 130
# Progress is shown by our own display; bars that libraries draw would lie across it. Read when they are imported.
_QUIET = {"TQDM_DISABLE": "1", "TRANSFORMERS_VERBOSITY": "error"}

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for _command in (distill, finetune, ablate, pretrain, init, sources, predict, evaluate, report, cache):
    app.command()(_command)


app.add_typer(data, name="data")


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(__version__)
        raise typer.Exit


@app.callback(epilog=_EPILOG)
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Distils any BERT-style encoder into a compact, fast student and puts it to work.

    \b
    Example:
      potstill distill --teacher bert-base-uncased --train train.tsv --text sentence --student 4x312
    """


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command.

    Args:
        arguments: What follows the program's name. None: those of this process.

    Returns:
        The exit code: 0 done, 1 a gate refused, 2 bad input or settings, 3 a lock is held, 130 interrupted,
        141 the reader of standard output has gone.
    """
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    try:
        code = app(args=None if arguments is None else list(arguments), prog_name="potstill", standalone_mode=False)
        if code == _INTERRUPTED:  # typer has caught the KeyboardInterrupt
            raise KeyboardInterrupt
        return int(code or 0)
    except PotstillError as error:
        return _fail(str(error), error.exit_code)
    except TyperException as error:
        return _fail(_with_help(error), 2)
    except (KeyboardInterrupt, typer.Abort):
        return _fail("interrupted", _INTERRUPTED, "")
    except OSError as error:
        return _fail(f"{error.filename}: {error.strerror}" if error.filename else str(error), 2)


def _with_help(error: TyperException) -> str:
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "potstill"
    return f"{error.format_message()} (see {command} --help)"


def _fail(message: str, code: int, mark: str = "error: ") -> int:
    sys.stderr.write(f"{mark}{one_line(message)}\n")
    return code
