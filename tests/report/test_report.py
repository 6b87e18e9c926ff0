import copy
import json

import pytest

import potstill.report
from potstill.errors import DataError, StorageError
from potstill.report import conclude, validate, write_report


def test_both_files_are_written_and_say_the_same(any_report, tmp_path):
    before = copy.deepcopy(any_report)
    path = write_report(any_report, tmp_path / "run")
    assert any_report == before
    assert path == tmp_path / "run" / "report.html"
    assert sorted(p.name for p in path.parent.iterdir()) == ["report.html", "report.json"]
    written = json.loads((path.parent / "report.json").read_text(encoding="utf-8"))
    assert written["conclusion"] == conclude(any_report)
    assert validate(written)
    page = path.read_text(encoding="utf-8")
    assert any_report["name"] in page


def test_report_json_holds_what_was_given(full, tmp_path):
    write_report(full, tmp_path)
    written = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))
    odd = written["disagreements"].pop(4), full["disagreements"].pop(4)
    assert odd[0]["text"] == "a bell ␇, a NUL ␀ and half an emoji \ufffd here"
    assert written | {"conclusion": ""} == full


def test_a_wrong_report_writes_nothing(full, tmp_path):
    del full["task"]
    with pytest.raises(DataError, match="task: field required"):
        write_report(full, tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("value", [float("nan"), float("inf"), object(), {1, 2}])
def test_settings_that_are_no_json_write_nothing(full, tmp_path, value):
    full["settings"]["train"]["note"] = value
    with pytest.raises(DataError, match=r"settings\.train"):
        write_report(full, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_file_that_cannot_be_replaced_is_a_storage_error(full, tmp_path):
    (tmp_path / "report.html").mkdir()
    with pytest.raises(StorageError, match=r"report\.html cannot be written"):
        write_report(full, tmp_path)


def test_public_names_exist():
    assert all(hasattr(potstill.report, name) for name in potstill.report.__all__)
