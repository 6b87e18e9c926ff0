"""The command line as a whole: help, version, exit codes, one line for an error, and how quickly it starts."""

import re
import subprocess
import sys

import pytest

from potstill import __version__
from potstill.cli import app as cli
from potstill.errors import DataError, GateRefused, LockHeld, NonFiniteError, PotstillError

COMMANDS = ["distill", "finetune", "ablate", "pretrain", "init", "sources", "predict", "evaluate", "report"]


def test_version(run):
    ran = run("--version")
    assert (ran.code, ran.out) == (0, f"{__version__}\n")


def test_help_lists_the_commands(run):
    ran = run("--help")
    assert ran.code == 0
    assert all(re.search(rf"^  {command} +\S", ran.out, re.MULTILINE) for command in COMMANDS)
    assert "..." not in ran.out.partition("Commands:")[2], "a command's first line is too long"


@pytest.mark.parametrize("command", COMMANDS)
def test_each_help_shows_an_example(run, command):
    ran = run(command, "--help")
    assert ran.code == 0
    assert re.search(rf"Example:\n +potstill {command}\b", ran.out)
    assert "--json" in ran.out


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["distil"], "No such command 'distil'. Did you mean 'distill'?"),
        (["distill", "--sed", "3"], "No such option: --sed"),
        (["distill", "--seed", "x"], "Invalid value for '--seed'"),
        (["report"], "Missing argument"),
        (["predict", "d", "--engine", "tensorflow"], "--engine"),
    ],
)
def test_a_wrong_command_line_is_one_line_and_2(run, arguments, told):
    ran = run(*arguments)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("error: ")
    assert told in ran.err
    assert ran.err.count("\n") == 1
    assert "--help)" in ran.err


@pytest.mark.parametrize(
    ("error", "code", "told"),
    [
        (DataError("a.tsv has no column 'x'", expected="one of 'y'", fix="did you mean 'y'?"), 2, None),
        (GateRefused("teacher no better than the majority class"), 1, None),
        (NonFiniteError("loss is NaN at step 3"), 1, None),
        (LockHeld("runs/x is in use by process 7", fix="wait for it"), 3, None),
        (DataError("two\nlines"), 2, "error: two lines\n"),
        (KeyboardInterrupt(), 130, "interrupted\n"),
        (PermissionError(13, "Permission denied", "/etc/shadow"), 2, "error: /etc/shadow: Permission denied\n"),
    ],
)
def test_errors_become_a_line_and_a_code(run, monkeypatch, error, code, told):
    def fail(*_):
        raise error

    monkeypatch.setattr("potstill.data.catalogue.catalogue", fail)
    ran = run("sources")
    assert (ran.code, ran.out) == (code, "")
    assert ran.err == (told or f"error: {error}\n")


def test_a_defect_shows_where_it_is(run, monkeypatch):
    def fail():
        raise ZeroDivisionError

    monkeypatch.setattr("potstill.data.catalogue.catalogue", fail)
    with pytest.raises(ZeroDivisionError):
        run("sources")


def test_every_error_has_a_code_that_the_help_names():
    todo, codes = [PotstillError], set()
    while todo:
        kind = todo.pop()
        codes.add(kind.exit_code)
        todo.extend(kind.__subclasses__())
    assert codes == {1, 2, 3}
    assert all(f"{code} " in cli._EPILOG for code in codes)


def test_starting_imports_nothing_heavy():
    script = (
        "import sys, potstill.cli; heavy = {'torch', 'transformers', 'pydantic', 'numpy', 'rich', 'pyarrow'}; "
        "sys.exit(', '.join(heavy & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_the_installed_command():
    script = "import sys; from potstill.cli import main; sys.exit(main())"
    done = subprocess.run([sys.executable, "-c", script, "--version"], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, f"{__version__}\n")
