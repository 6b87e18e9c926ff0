"""A folder exported: what is written, whole or not at all, and what is refused."""

import shutil

import pytest
from tests.tiny import ALL_FORMATS, encode_tiny, tiny_bert

from potstill import export
from potstill.engines import has_bfloat16, load
from potstill.errors import ModelError
from potstill.export import export_student
from potstill.storage import digest_file, read_manifest, verify_folder


class Notes:
    def __init__(self):
        self.notes, self.steps = [], []

    def stage(self, name, detail=""): ...

    def warn(self, message): ...

    def note(self, message):
        self.notes.append(message)

    def progress(self, done, total, **values):
        self.steps.append((done, total))


@pytest.fixture(autouse=True)
def _traced_before(bert, monkeypatch):
    """Tracing takes seconds and is the same each time: give what was traced for `bert`."""
    monkeypatch.setattr(export.student, "to_onnx", lambda _, path: shutil.copy(bert / "onnx" / "model.onnx", path))


@pytest.fixture
def copy(bert, tmp_path):
    """The exported model, to be changed."""
    shutil.copytree(bert, tmp_path / "copy")
    return tmp_path / "copy"


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_all_formats(folder):
    assert names(folder / "onnx") == ["manifest.json", "model.onnx", "model_int8.onnx"]
    files = ["manifest.json", "model.bin", "model.xml", "model_int8.bin", "model_int8.xml"]
    assert names(folder / "openvino") == files
    for name in ("onnx", "openvino"):
        facts = verify_folder(folder / name)
        assert facts["source"] == {"model.safetensors": digest_file(folder / "model.safetensors")}


def test_sizes(bert, tmp_path):
    report = Notes()
    done = export_student(bert, ALL_FORMATS, calibration=encode_tiny(bert), into=tmp_path, report=report)
    by_name = {(one.format, one.precision): one for one in done}
    expected = [pair for pair in ALL_FORMATS if pair != ("openvino", "bfloat16") or has_bfloat16()]
    assert list(by_name) == expected
    assert by_name["onnx", "int8"].bytes == (tmp_path / "onnx" / "model_int8.onnx").stat().st_size
    both = [tmp_path / "openvino" / name for name in ("model_int8.xml", "model_int8.bin")]
    assert by_name["openvino", "int8"].bytes == sum(path.stat().st_size for path in both)
    assert by_name["openvino", "int8"].path == both[0]
    assert report.steps == [(done, 4) for done in range(5)]
    assert names(tmp_path) == ["onnx", "openvino"]


def test_int8_alone_leaves_no_float32(copy):
    formats = [("openvino", "int8"), ("onnx", "int8")]
    done = export_student(copy, formats, calibration=encode_tiny(copy))
    assert [(one.format, one.precision) for one in done] == formats
    assert names(copy / "onnx") == ["manifest.json", "model_int8.onnx"]
    assert names(copy / "openvino") == ["manifest.json", "model_int8.bin", "model_int8.xml"]
    for one in done:
        load(copy, "onnxruntime" if one.format == "onnx" else "openvino", "int8")


def test_what_is_not_named_stays_away_from_the_other_folder(copy):
    before = read_manifest(copy / "openvino")
    export_student(copy, [("onnx", "float32")], calibration=encode_tiny(copy))
    assert names(copy / "onnx") == ["manifest.json", "model.onnx"]
    assert read_manifest(copy / "openvino") == before


def test_a_failure_leaves_what_was_there(copy, monkeypatch):
    before = read_manifest(copy / "onnx")

    def fails(source, path):
        path.write_bytes(b"half")
        raise ModelError("no")

    monkeypatch.setattr(export.student, "quantise_onnx", fails)
    with pytest.raises(ModelError):
        export_student(copy, [("onnx", "int8")], calibration=encode_tiny(copy))
    assert verify_folder(copy / "onnx") == before
    assert not [path for path in copy.iterdir() if path.name.startswith(".")]


def test_bfloat16_is_left_out_with_a_note(copy, monkeypatch):
    monkeypatch.setattr("potstill.engines.openvino.capabilities", lambda: frozenset({"FP32"}))
    report = Notes()
    formats = [("openvino", "bfloat16"), ("openvino", "float32")]
    done = export_student(copy, formats, calibration=encode_tiny(copy), report=report)
    assert [(one.format, one.precision) for one in done] == [("openvino", "float32")]
    assert report.notes == ["openvino bfloat16 is left out: this processor does not compute in it"]


@pytest.mark.parametrize("pair", [("onnx", "bfloat16"), ("torch", "float32"), ("tflite", "int8")])
def test_a_format_that_does_not_exist(bert, pair):
    with pytest.raises(
        ModelError, match=rf"export as {' '.join(pair)}; expected one of: onnx float32, onnx int8, open"
    ):
        export_student(bert, [pair], calibration=encode_tiny(bert))


def test_nothing_to_calibrate_with(bert):
    with pytest.raises(ModelError, match="no texts to calibrate int8 with"):
        export_student(bert, [("openvino", "int8")], calibration=encode_tiny(bert, []))


def test_nothing_wanted(tmp_path):
    assert export_student(tmp_path, [], calibration=encode_tiny(tiny_bert(tmp_path))) == []
    assert not (tmp_path / "onnx").exists()
