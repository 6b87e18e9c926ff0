"""Running the command line in this process, with what the commands call replaced."""

import sys

import pytest

from potstill.cli import main


class Ran:
    def __init__(self, code, out, err):
        self.code, self.out, self.err = code, out, err


@pytest.fixture
def run(capfd, monkeypatch, tmp_path):
    """Run a command in an empty folder; exit code, standard output and standard error come back."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")

    def command(*arguments, stdin=b""):
        given = tmp_path / ".stdin"
        given.write_bytes(stdin)
        with given.open(encoding="utf-8") as stream:
            monkeypatch.setattr(sys, "stdin", stream)
            code = main([str(argument) for argument in arguments])
        given.unlink()
        sys.stdout.flush()
        captured = capfd.readouterr()
        return Ran(code, captured.out, captured.err)

    return command
