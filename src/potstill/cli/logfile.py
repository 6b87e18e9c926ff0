"""The run's log: the plain lines of `display`, in a file."""

import contextlib
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import TextIO

from potstill.cli.display import PlainDisplay
from potstill.progress import Reporter

__all__ = ["LogFile"]


class LogFile:
    """Plain lines appended to a file, which is made when the first one comes: bad input leaves no folder behind.

    A log that cannot be written (a full disk) ends with a warning: the run's own files decide whether it goes on.

    Args:
        path: The file.
        otherwise: Who is told when it cannot be written.
    """

    def __init__(self, path: Path, otherwise: Reporter) -> None:
        self._path, self._otherwise = path, otherwise
        self._stream: TextIO | None = None
        self._lines: PlainDisplay | None = None
        self._broken = False

    def _write(self, action: Callable[[PlainDisplay], None]) -> None:
        if self._broken:
            return
        try:
            if self._lines is None:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                self._stream = self._path.open("a", encoding="utf-8", errors="backslashreplace")
                self._lines = PlainDisplay(self._stream)
                self._lines.write(f"begun {datetime.now().astimezone().isoformat(timespec='seconds')}")
            action(self._lines)
        except OSError as error:
            self._broken = True
            self.close()
            self._otherwise.warn(f"{self._path} cannot be written ({error.strerror}); the log stops here")

    def stage(self, name: str, detail: str = "") -> None:
        """Append a line."""
        self._write(lambda lines: lines.stage(name, detail))

    def progress(self, done: float, total: float, **values: float) -> None:
        """Append a line if the last one is long enough ago."""
        self._write(lambda lines: lines.progress(done, total, **values))

    def note(self, message: str) -> None:
        """Append a line."""
        self._write(lambda lines: lines.note(message))

    def warn(self, message: str) -> None:
        """Append a line."""
        self._write(lambda lines: lines.warn(message))

    def end(self, message: str) -> None:
        """Append why the run ended before its end, if it ever began."""
        if self._lines is not None:
            self.note(message)

    def close(self) -> None:
        """End the present stage and close the file."""
        if self._lines is not None:
            self._write(PlainDisplay.close)
        if self._stream is not None:
            with contextlib.suppress(OSError):  # what could not be written has been told
                self._stream.close()
