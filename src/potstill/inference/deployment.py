"""What potstill.json says about a model: its task, how texts are cut, and which engine to run it with."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, cast

from potstill.data.encoding import LongText
from potstill.engines import FILES, EngineName, Precision
from potstill.errors import ModelError
from potstill.metrics import Threshold
from potstill.storage import read_json
from potstill.tasks import TASKS, Task, make_task

__all__ = ["DEPLOYMENT", "Deployment", "is_masked_lm", "read_deployment"]

DEPLOYMENT = "potstill.json"
_SCHEMA_VERSION = 1
_SHARES = tuple(field.name for field in fields(Threshold))
_AN_ABSTENTION = f"a list of objects with {', '.join(_SHARES)}, each from 0 to 1, by rising confidence"


@dataclass(frozen=True)
class Deployment:
    """The keys of potstill.json that answering a text needs.

    Attributes:
        labels: Label names, in the order of the model's outputs; none where an answer is a score.
        pair: Whether it reads pairs of texts.
        max_length: Longest input in tokens, special tokens included.
        long_text: What is done with a longer text: `cut` or `window`.
        step: Tokens between the starts of two windows; None is the encoder's own choice.
        deploy: Engine and precision to run it with; None where none was chosen.
        task: One of `potstill.tasks.TASKS`.
        temperature: What logits are divided by before they become probabilities; 1 where potstill.json has none.
        abstention: Confidences below which answers may be withheld, lowest first, with what dev says of each; none
            where potstill.json has none.
        tuned: What the task's answers need that was chosen on dev, as `Task.tuned`.
    """

    labels: tuple[str, ...]
    pair: bool
    max_length: int
    long_text: LongText
    step: int | None
    deploy: tuple[EngineName, Precision] | None
    task: str = "classification"
    temperature: float = 1.0
    abstention: tuple[Threshold, ...] = ()
    tuned: Mapping[str, Any] = field(default_factory=dict)

    def made_task(self) -> Task:
        """The task, as it was fitted to the model."""
        made = make_task(self.task, self.labels, pair=self.pair)
        return made.restored(self.tuned) if self.tuned else made


def read_deployment(folder: Path) -> Deployment:
    """Read and check a model folder's potstill.json.

    Raises:
        ModelError: There is none, or a key of it has no value that can be used.
        StorageError: It is not JSON.
    """
    path = folder / DEPLOYMENT
    for name in ("student", "model"):
        if (folder / name / DEPLOYMENT).is_file() and not path.is_file():
            raise ModelError(f"{folder} is a run, not its {name}", fix=f"give {folder / name}")
    if not path.is_file():
        raise ModelError(
            f"{folder} has no {DEPLOYMENT}" if folder.is_dir() else f"{folder} is no folder",
            expected="a folder that `potstill distill` or `potstill finetune` wrote",
            fix="give the student/ or model/ folder of a run, as in runs/NAME/student",
        )
    values = read_json(path)
    if not isinstance(values, dict):
        raise ModelError(f"{path} holds {type(values).__name__}", expected="an object")

    def get(key: str, right: Callable[[Any], bool], expected: str) -> Any:
        value = values.get(key)
        if not right(value):
            raise ModelError(f"{path}: {key} is {value!r}", expected=expected)
        return value

    get(
        "schema_version",
        lambda value: type(value) is int and value == _SCHEMA_VERSION,
        f"{_SCHEMA_VERSION}; a newer Potstill may read it",
    )
    task = get("task", lambda value: isinstance(value, str) and value in TASKS, " or ".join(map(repr, TASKS)))
    if make_task(task).names_outputs:
        labels = get("labels", _are_names, "a list of two or more different names")
    else:
        labels = get("labels", lambda value: value == [], "an empty list: an answer is a score")
    try:
        tuned = make_task(task, labels).restored(values).tuned
    except ModelError as error:
        raise ModelError(f"{path}: {error}") from None
    pair = get("pair", lambda value: isinstance(value, bool), "true or false")
    length = get("max_length", _is_count, "a number of tokens")
    _check_positions(folder, length)
    long_text = get("long_text", lambda value: value in ("cut", "window"), "'cut' or 'window'")
    step = get("step", lambda value: value is None or _is_count(value), "a number of tokens, or null")
    deploy = get("deploy", _is_engine, "null, or engine and precision: one of " + ", ".join(map(" ".join, FILES)))
    chosen = None if deploy is None else (deploy["engine"], deploy["precision"])
    temperature = get("temperature", lambda value: value is None or _is_positive(value), "a number above 0")
    rows = get("abstention", lambda value: value is None or _is_abstention(value), _AN_ABSTENTION)
    return Deployment(
        tuple(labels),
        pair,
        length,
        cast(LongText, long_text),
        step,
        chosen,
        task,
        1.0 if temperature is None else float(temperature),
        tuple(Threshold(**row) for row in rows or ()),
        tuned,
    )


def is_masked_lm(folder: Path) -> bool:
    """Whether a folder holds a masked LM, by what its config.json says: it then fills blanks."""
    path = folder / "config.json"
    values = read_json(path) if path.is_file() else None
    named = values.get("architectures") if isinstance(values, dict) else None
    return isinstance(named, list) and any(str(name).endswith("ForMaskedLM") for name in named)


def _check_positions(folder: Path, length: int) -> None:
    """A length above the model's position table would fail in the middle of an answer."""
    path = folder / "config.json"
    positions = read_json(path).get("max_position_embeddings") if path.is_file() else None
    if isinstance(positions, int) and length > positions:
        raise ModelError(
            f"{folder / DEPLOYMENT}: max_length is {length}", expected=f"{positions} or less, the model's positions"
        )


def _are_names(value: Any) -> bool:
    named = isinstance(value, list) and all(isinstance(name, str) and name for name in value)
    return named and len(value) >= 2 and len(set(value)) == len(value)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _is_engine(value: Any) -> bool:
    if value is None:
        return True
    return isinstance(value, Mapping) and [value.get("engine"), value.get("precision")] in [
        list(pair) for pair in FILES
    ]


def _is_positive(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf


def _is_abstention(value: Any) -> bool:
    def is_one(row: Any) -> bool:
        shares = list(row.values()) if isinstance(row, dict) and row.keys() == set(_SHARES) else [None]
        return all(isinstance(x, int | float) and not isinstance(x, bool) and 0 <= x <= 1 for x in shares)

    if not isinstance(value, list) or not all(map(is_one, value)):
        return False
    found = [row["confidence"] for row in value]
    return found == sorted(set(found))
