"""The kinds of value that settings hold, beyond Python's own, each with what it may be in words."""

import os
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, StringConstraints

__all__ = [
    "DEFAULT_SHAPE",
    "EXPORT_FORMATS",
    "Allowed",
    "Assistants",
    "AugmentMethods",
    "ExportFormat",
    "ExportFormats",
    "Layers",
    "Place",
    "Shape",
    "Shares",
    "Source",
    "Sources",
    "Temperature",
    "Text",
    "Vocabulary",
    "Weight",
]


@dataclass(frozen=True)
class Allowed:
    """What a value may be, in words, where its type does not say it.

    Attributes:
        text: Follows "expected" in an error.
        comment: Whether a settings file repeats it beside the key. False for what its header says once.
    """

    text: str
    comment: bool = True


def _as_tuple(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(value)
    return (value,) if isinstance(value, str) else value


_TUPLE = BeforeValidator(_as_tuple)  # TOML has lists; one text alone is a list of one

_NUMBERS = BeforeValidator(lambda value: tuple(value) if isinstance(value, list) else value)

_SETTLED = AfterValidator(
    lambda value: value[0] if isinstance(value, tuple) and value[0] == value[1] else value
)  # what moves from a number to itself is that number: [0, 0] is 0

Text = Annotated[str, StringConstraints(min_length=1), Allowed("text in quotes, not empty", comment=False)]
Place = Annotated[
    str,
    StringConstraints(pattern=r"^[^\x00]+$"),
    AfterValidator(os.path.expanduser),
    Allowed("a path, not empty", comment=False),
]
Source = Annotated[
    str,
    StringConstraints(min_length=1),
    Allowed(
        "a path, hub:owner/name[@revision], pypi:package==version/path or a name from `potstill sources`", comment=False
    ),
]
Sources = Annotated[tuple[Source, ...], _TUPLE, Allowed("a source or a list of sources")]
Shape = Annotated[
    str,
    StringConstraints(pattern=r"^[1-9]\d{0,3}x[1-9]\d{0,5}(x[1-9]\d{0,5}x[1-9]\d{0,3})?$"),
    Allowed("layers x width, as in 4x312, or layers x width x FFN x heads, as in 4x312x1200x12"),
]
DEFAULT_SHAPE = "4x312"
"""Of a student that is made from its teacher: TinyBERT's."""
Layers = Annotated[
    Literal["every-other", "top", "bottom", "ends"] | Annotated[tuple[Annotated[int, Field(ge=0)], ...], _NUMBERS],
    Allowed('"every-other", "top", "bottom", "ends" or a list of numbers such as [0, 2, 4, 5]'),
]
Shares = Annotated[
    tuple[Annotated[float, Field(gt=0)], ...], _NUMBERS, Allowed("a list of numbers above 0, such as [2, 1]")
]
Assistants = Annotated[
    Literal["auto", "none"] | Annotated[tuple[Shape, ...], _TUPLE],
    Allowed('"auto", "none" or a list of shapes such as ["6x384"]'),
]

Vocabulary = Annotated[
    Literal["full", "used"] | Annotated[int, Field(ge=1)],
    Allowed('"full", "used" or a number of pieces such as 7000'),
]

_FROM_ZERO = Annotated[float, Field(ge=0)]
_ABOVE_ZERO = Annotated[float, Field(gt=0)]
Weight = Annotated[
    _FROM_ZERO | tuple[_FROM_ZERO, _FROM_ZERO],
    _NUMBERS,
    _SETTLED,
    Allowed("a number from 0 up, or two such as [1.0, 0.0]: at the first step and at the last", comment=False),
]
Temperature = Annotated[
    _ABOVE_ZERO | tuple[_ABOVE_ZERO, _ABOVE_ZERO],
    _NUMBERS,
    _SETTLED,
    Allowed("a number above 0, or two such as [4.0, 1.0]: at the first step and at the last"),
]

AugmentMethods = Annotated[
    Literal["auto", "none"]
    | Annotated[
        tuple[
            Literal["masked-lm", "conditional-masked-lm", "glove", "embeddings", "masking", "ngram", "recombine"], ...
        ],
        _TUPLE,
        Field(min_length=1),
    ],
    Allowed(
        '"auto", "none" or a list of "masked-lm", "conditional-masked-lm", "glove", "embeddings", "masking", "ngram", '
        '"recombine"'
    ),
]

ExportFormat = Literal["onnx-float32", "onnx-int8", "openvino-float32", "openvino-bfloat16", "openvino-int8"]
EXPORT_FORMATS: tuple[ExportFormat, ...] = (
    "onnx-float32",
    "onnx-int8",
    "openvino-float32",
    "openvino-bfloat16",
    "openvino-int8",
)
ExportFormats = Annotated[
    tuple[ExportFormat, ...], _TUPLE, Allowed("a list of " + ", ".join(f'"{name}"' for name in EXPORT_FORMATS))
]
