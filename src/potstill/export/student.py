"""A model's folder, exported: `onnx/` and `openvino/` below it, each whole or not there."""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from transformers import PreTrainedModel

from potstill.data.encoding import Encodings
from potstill.engines import ENGINE_OF_FORMAT, FILES, FORMAT_OF_ENGINE, FormatName, Precision, has_bfloat16
from potstill.engines.torch import load_model
from potstill.errors import ModelError
from potstill.export.onnx_int8 import quantise_onnx
from potstill.export.to_onnx import to_onnx
from potstill.export.to_openvino import quantise_openvino, to_openvino
from potstill.progress import SILENT, Reporter
from potstill.storage import atomic_folder, digest_file

__all__ = ["CALIBRATION_WINDOWS", "Exported", "export_student"]

CALIBRATION_WINDOWS = 300
"""How many windows, at most, set the ranges of OpenVINO's int8."""


@dataclass(frozen=True)
class Exported:
    """One export.

    Attributes:
        format: `onnx` or `openvino`.
        precision: `float32`, `bfloat16` or `int8`.
        path: The file that the engine opens.
        bytes: Size of all files it needs; the OpenVINO file is the same in float32 and bfloat16.
    """

    format: FormatName
    precision: Precision
    path: Path
    bytes: int


def export_student(
    folder: Path,
    formats: Sequence[tuple[FormatName, Precision]],
    *,
    calibration: Encodings,
    into: Path | None = None,
    report: Reporter = SILENT,
) -> list[Exported]:
    """Write a model in other formats. Any sequence classifier will do, a teacher too.

    `onnx/` and `openvino/` are replaced as a whole: what an earlier call left there and this one does not name is gone.
    OpenVINO's bfloat16 is left out, with a note, where the processor does not have it.

    Args:
        folder: Holds the model as `save_pretrained` writes it. Not changed but for the two folders.
        formats: What to write.
        calibration: Real texts as the model will read them; of use to OpenVINO's int8 alone.
        into: Where to put the two folders; None means below `folder`.
        report: Receives progress in files, and the notes.

    Returns:
        What was written, in the order of `formats`.

    Raises:
        ModelError: A format that does not exist, a model that cannot be exported, or an extra that is not installed.
        StorageError: The folders cannot be written.
    """
    wanted = _wanted(formats, report)
    if ("openvino", "int8") in wanted and len(calibration) == 0:
        raise ModelError("no texts to calibrate int8 with", expected="a few hundred")
    if not wanted:
        return []
    model = load_model(folder)
    facts = {"source": {path.name: digest_file(path) for path in sorted(folder.glob("*.safetensors"))}}
    place = into or folder
    step = _steps(wanted, report)
    for name in ("onnx", "openvino"):
        precisions = [precision for one, precision in wanted if one == name]
        if precisions:
            with atomic_folder(place / name, {**facts, "format": name}) as work:
                if name == "onnx":
                    _write_onnx(model, work, precisions, step)
                else:
                    _write_openvino(model, work, precisions, calibration, step)
    step()
    return [_exported(place, name, precision) for name, precision in wanted]


def _wanted(formats: Sequence[tuple[FormatName, Precision]], report: Reporter) -> list[tuple[FormatName, Precision]]:
    known = [(FORMAT_OF_ENGINE[engine], precision) for engine, precision in FILES if engine != "torch"]
    for pair in formats:
        if pair not in known:
            raise ModelError(f"export as {' '.join(pair)}", expected="one of: " + ", ".join(map(" ".join, known)))
    wanted = list(dict.fromkeys(formats))
    if ("openvino", "bfloat16") in wanted and not has_bfloat16():
        report.note("openvino bfloat16 is left out: this processor does not compute in it")
        wanted.remove(("openvino", "bfloat16"))
    return wanted


def _steps(wanted: list[tuple[FormatName, Precision]], report: Reporter) -> Callable[[], None]:
    """A function to call before each file is written, and after the last: it reports how many are done."""
    total = len({FILES[ENGINE_OF_FORMAT[name], other] for name, one in wanted for other in {one, "float32"}})
    done = itertools.count()
    return lambda: report.progress(next(done), total)


def _file(name: FormatName, precision: Precision) -> str:
    return Path(FILES[ENGINE_OF_FORMAT[name], precision]).name


def _write_onnx(model: PreTrainedModel, work: Path, precisions: list[Precision], step: Callable[[], None]) -> None:
    plain = work / _file("onnx", "float32")
    step()
    to_onnx(model, plain)
    if "int8" in precisions:
        step()
        quantise_onnx(plain, work / _file("onnx", "int8"))
    if "float32" not in precisions:
        for path in work.glob(f"{plain.name}*"):
            path.unlink()


def _write_openvino(
    model: PreTrainedModel,
    work: Path,
    precisions: list[Precision],
    calibration: Encodings,
    step: Callable[[], None],
) -> None:
    plain = work / _file("openvino", "float32")
    step()
    to_openvino(model, plain)
    if "int8" in precisions:
        step()
        count = min(CALIBRATION_WINDOWS, len(calibration))
        windows = np.linspace(0, len(calibration) - 1, count).round().astype(np.int64)
        quantise_openvino(plain, work / _file("openvino", "int8"), calibration, windows)
    if precisions == ["int8"]:
        plain.unlink()
        plain.with_suffix(".bin").unlink()


def _exported(place: Path, name: FormatName, precision: Precision) -> Exported:
    path = place / FILES[ENGINE_OF_FORMAT[name], precision]
    beside = [path.with_suffix(".bin"), Path(f"{path}.data")]
    return Exported(name, precision, path, sum(one.stat().st_size for one in (path, *beside) if one.is_file()))
