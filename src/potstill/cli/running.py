"""A command that works in a run folder: shown on standard error, and written to the run's log."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from potstill.errors import PotstillError
from potstill.progress import Reporter

__all__ = ["run_shown"]


def run_shown(work: Callable[[Reporter], dict[str, Any]], folder: Path, *, quiet: bool) -> dict[str, Any]:
    """Run `work` with a reporter, and return what it returns.

    An error and an interruption are written to `folder/log.txt` and passed on.
    """
    from potstill.cli.display import FanOut, display
    from potstill.cli.logfile import LogFile

    with display(sys.stderr, quiet=quiet) as shown:
        log = LogFile(folder / "log.txt", shown)
        try:
            return work(FanOut(shown, log))
        except (PotstillError, KeyboardInterrupt) as error:
            interrupted = not isinstance(error, PotstillError)
            if interrupted:
                shown.note("stopped; the same command goes on from here")
            log.end("interrupted" if interrupted else f"error: {error}")
            raise
        finally:
            log.close()
