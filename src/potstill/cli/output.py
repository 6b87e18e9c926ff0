"""Standard output holds results and nothing else, whatever the libraries underneath print."""

import contextlib
import io
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

import typer

from potstill.errors import StorageError

__all__ = ["answer_file", "results", "write_json"]

_READER_GONE = 141  # 128 + SIGPIPE, as a shell shows it


@contextlib.contextmanager
def results() -> Iterator[TextIO]:
    """Yields standard output for results alone.

    Until the block ends, everything else that is written to standard output, by Python, by libraries in C or by child
    processes, arrives at standard error. A reader that goes away early (`| head`) ends the command without noise.
    """
    sys.stdout.flush()
    try:
        kept = os.dup(sys.stdout.fileno())
    except io.UnsupportedOperation:  # replaced by something in memory
        out = sys.stdout
        with contextlib.redirect_stdout(sys.stderr):
            yield out
        return
    with contextlib.ExitStack() as stack:
        out = stack.enter_context(open(kept, "w", encoding="utf-8", errors="backslashreplace"))
        stack.enter_context(_descriptor_1_to_stderr())
        stack.enter_context(contextlib.redirect_stdout(sys.stderr))
        try:
            yield out
            out.flush()
        except BrokenPipeError:
            # What is left in the buffer has no reader: closing must not try again.
            os.dup2(os.open(os.devnull, os.O_WRONLY), kept)
            raise typer.Exit(_READER_GONE) from None


@contextlib.contextmanager
def _descriptor_1_to_stderr() -> Iterator[None]:
    # Libraries in C and child processes write to descriptor 1, whatever Python's sys.stdout is.
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)


def write_json(out: TextIO, value: Any) -> None:
    """Write a value as the same bytes that `potstill.storage.write_json` puts into a file."""
    out.write(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


@contextlib.contextmanager
def answer_file(path: Path) -> Iterator[TextIO]:
    """A text file that appears when the block ends well, and not at all when it does not.

    A link is followed and a file that is replaced keeps its mode; what is no plain file (a pipe, a device) is written
    to as it stands.

    Raises:
        StorageError: No space or no permission.
    """
    path = path.resolve()
    try:
        if path.exists() and not path.is_file():
            with path.open("w", encoding="utf-8") as stream:
                yield stream
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        mode = path.stat().st_mode & 0o777 if path.exists() else 0o644
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with open(handle, "w", encoding="utf-8") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.chmod(name, mode)
            os.replace(name, path)
        finally:
            Path(name).unlink(missing_ok=True)
    except OSError as error:
        raise StorageError(
            f"{path} cannot be written: {error.strerror}", fix="free space, or choose another file"
        ) from error
