"""The run's log file."""

import errno

import pytest

from potstill.cli.logfile import LogFile


class Listener:
    def __init__(self):
        self.warnings = []

    def stage(self, name, detail=""): ...

    def progress(self, done, total, **values): ...

    def note(self, message): ...

    def warn(self, message):
        self.warnings.append(message)


def test_nothing_is_made_before_something_happens(tmp_path):
    log = LogFile(tmp_path / "run" / "log.txt", Listener())
    log.end("error: no such file")
    log.close()
    assert list(tmp_path.iterdir()) == []


def test_two_runs_append(tmp_path):
    for number in (1, 2):
        log = LogFile(tmp_path / "run" / "log.txt", Listener())
        log.stage("teacher", f"run {number}")
        log.progress(1, 2, loss=0.5)
        log.note("a note \udcff")
        log.warn("careful")
        log.end("interrupted")
        log.close()
    lines = (tmp_path / "run" / "log.txt").read_text(encoding="utf-8").splitlines()
    assert sum("begun 20" in line for line in lines) == 2
    assert [line.partition("  ")[2] for line in lines[1:5]] == [
        "teacher: run 1",
        "a note \\udcff",
        "warning: careful",
        "interrupted",
    ]
    assert "teacher: run 2" in lines[7]


def test_a_full_disk_ends_the_log_and_not_the_run(tmp_path, monkeypatch):
    listener = Listener()
    log = LogFile(tmp_path / "log.txt", listener)
    log.stage("teacher")

    def full(text):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(log._stream, "write", full)
    log.note("a")
    log.note("b")
    assert listener.warnings == [
        f"{tmp_path / 'log.txt'} cannot be written (No space left on device); the log stops here"
    ]


@pytest.mark.parametrize("name", ["taken/log.txt"])
def test_a_folder_that_cannot_be(tmp_path, name):
    (tmp_path / "taken").write_text("a file")
    listener = Listener()
    LogFile(tmp_path / name, listener).stage("teacher")
    assert len(listener.warnings) == 1
