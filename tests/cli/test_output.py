"""Standard output holds results alone, and what they say of a run."""

import json
import os
import subprocess
import sys

import pytest
from tests.report.sample import full, scored

from potstill import storage
from potstill.cli.output import answer_file, results, write_json
from potstill.cli.summary import summary_lines
from potstill.errors import StorageError


def test_whatever_else_is_printed_goes_to_standard_error(capfd):
    with results() as out:
        sys.stdout.write("python\n")
        os.write(1, b"c library\n")
        subprocess.run([sys.executable, "-c", "print('child')"], check=True)
        out.write("result\n")
    sys.stdout.write("after\n")
    sys.stdout.flush()
    captured = capfd.readouterr()
    assert captured.out == "result\nafter\n"
    assert sorted(captured.err.splitlines()) == ["c library", "child", "python"]


def test_standard_output_comes_back_after_an_error(capfd):
    with pytest.raises(ValueError, match="x"), results():
        raise ValueError("x")
    os.write(1, b"here\n")
    assert capfd.readouterr().out == "here\n"


def test_standard_output_in_memory(capsys):
    with results() as out:
        sys.stdout.write("noise")
        out.write("result")
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("result", "noise")


def test_a_reader_that_goes_away_ends_it_quietly():
    script = (
        "import sys; from potstill.cli import app, main; import potstill.data.catalogue as c; "
        "e = c.catalogue(); c.catalogue = lambda: e * 5000; sys.exit(main(['sources']))"
    )
    command = [sys.executable, "-c", script]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.read(10)
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141


def test_json_has_the_bytes_of_the_file(tmp_path, capfd):
    value = {"text": 'é "\n', "score": 0.1 + 0.2, "none": None}
    storage.write_json(tmp_path / "report.json", value)
    with results() as out:
        write_json(out, value)
    assert capfd.readouterr().out.encode() == (tmp_path / "report.json").read_bytes()


def test_json_has_no_nan(capfd):
    with pytest.raises(ValueError, match="JSON"), results() as out:
        write_json(out, {"x": float("nan")})


def test_an_undecodable_name_stays_valid_json(capfd):
    with results() as out:
        write_json(out, {"path": "a\udcff"})
    assert json.loads(capfd.readouterr().out) == {"path": "a\udcff"}


def test_an_answer_file_is_whole_or_absent(tmp_path):
    path = tmp_path / "new" / "answers.jsonl"
    with answer_file(path) as file:
        file.write("one\n")
        assert not path.exists()
    assert path.read_text() == "one\n"
    with pytest.raises(KeyboardInterrupt), answer_file(path) as file:
        file.write("two\n")
        raise KeyboardInterrupt
    assert path.read_text() == "one\n"
    assert [one.name for one in path.parent.iterdir()] == ["answers.jsonl"]


def test_a_link_is_followed_and_a_mode_kept(tmp_path):
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_text("old")
    target.chmod(0o600)
    link.symlink_to(target)
    with answer_file(link) as file:
        file.write("new")
    assert link.is_symlink()
    assert (target.read_text(), target.stat().st_mode & 0o777) == ("new", 0o600)


def test_what_is_no_plain_file_is_written_to(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    with answer_file(path) as file:
        file.write("line\n")
    assert os.read(reader, 100) == b"line\n"
    os.close(reader)
    assert path.is_fifo()


def test_an_answer_file_that_cannot_be(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="cannot be written"), answer_file(tmp_path / "file" / "x"):
        pass


@pytest.mark.parametrize(("made", "told"), [(full, "91.2 %"), (scored, "0.912")])
def test_further_teachers_are_scored_as_the_first_is(made, told):
    report = made()
    another = {"score": {"value": 0.912, "low": 0.9, "high": 0.92, "n": 90}}
    lines = "\n".join(summary_lines(report | {"teachers": {"more": [another], "together": another}}))
    (line,) = [line for line in lines.splitlines() if line.startswith("further teachers")]
    assert line.count(told) == 2
    assert ("%" in line) == ("%" in told)
