"""Running the command line in this process, with what the commands call replaced."""

import sys
import types

import pytest

import potstill
from potstill.cli import main


@pytest.fixture
def replace(monkeypatch):
    """Put something in the place of a package, so that a command's tests need not import the real one."""

    def put(name, **names):
        module = types.ModuleType(f"potstill.{name}")
        module.__dict__.update(names)
        monkeypatch.setitem(sys.modules, module.__name__, module)
        monkeypatch.setattr(potstill, name, module, raising=False)

    return put


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
