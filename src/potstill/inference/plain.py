"""A fine-tuned model as `transformers` alone knows it: what its config.json says, in the place of potstill.json."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from potstill.errors import ModelError
from potstill.inference.deployment import Deployment
from potstill.storage import read_json
from potstill.tasks import TASKS, make_task

__all__ = ["plain_deployment"]

_DEFAULT_LABELS = {"0": "LABEL_0", "1": "LABEL_1"}
"""What `transformers` leaves out of config.json."""


def plain_deployment(folder: Path, *, pair: bool) -> Deployment:
    """What a model's folder without potstill.json is deployed as: cut at its longest input, run by torch.

    The task is that whose head has config.json's `problem_type`; where it names none, a score for one output and a
    label for several, as in `transformers`.

    Args:
        folder: Holds config.json.
        pair: Whether it reads pairs of texts, which config.json does not say.

    Raises:
        ModelError: No config.json, an architecture that Potstill does not know, or a head for no task of its own.
    """
    from potstill.models.loading import longest_input, read_config  # with torch, which runs it in the end

    config: Mapping[str, Any] = read_json(folder / "config.json")
    named = config.get("id2label") or _DEFAULT_LABELS
    names = tuple(str(named[index]) for index in sorted(named, key=int))
    kind = _task(config.get("problem_type") or ("regression" if len(names) == 1 else "single_label_classification"))
    labels = names if make_task(kind, names, pair=pair).outputs == len(names) > 1 else ()
    return Deployment(labels, pair, longest_input(read_config(folder)), "cut", None, None, kind)


def _task(problem_type: str) -> str:
    for kind in TASKS:
        if make_task(kind).problem_type == problem_type:
            return kind
    known = ", ".join(make_task(kind).problem_type for kind in TASKS)
    raise ModelError(f"a head for {problem_type!r}", expected=f"one of {known}", fix="correct it in config.json")
