"""Loading a model that answers texts, or can be taught to, with its answers in the data's order. Knows no loss."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from transformers import AutoModelForSequenceClassification, PretrainedConfig, PreTrainedModel

from potstill.data.labels import match_labels
from potstill.errors import ModelError
from potstill.models.heads import ProblemType
from potstill.models.loading import load_model, read_config

_HEAD = ("pre_classifier", "classifier")
_SCORE = "LABEL_0"  # what `transformers` itself calls the one output of a regression

__all__ = ["has_classifier", "load_classifier"]


def has_classifier(folder: Path) -> bool:
    """Whether the checkpoint holds the weights of a head on texts (not only a config that speaks of one)."""
    with torch.random.fork_rng():
        return not _load(folder, read_config(folder), torch.float32)[1]


def _load(
    folder: Path, config: PretrainedConfig, dtype: torch.dtype, *, new_head: bool = False
) -> tuple[PreTrainedModel, list[str]]:
    return load_model(AutoModelForSequenceClassification, folder, config, dtype, new_head=new_head)


def load_classifier(
    folder: Path,
    labels: Sequence[str],
    *,
    problem_type: ProblemType = "single_label_classification",
    new_head: bool = False,
    answers: tuple[float | np.ndarray, float] = (0.0, 1.0),
    seed: int = 0,
    dtype: torch.dtype = torch.float32,
    assume_order: bool = False,
) -> PreTrainedModel:
    """A classifier whose outputs stand in the order of `labels`, or a model of one score. Eval mode.

    Args:
        folder: A model's folder.
        labels: The data's label names; for `regression` none: there is one output.
        problem_type: What `transformers` calls the head; written into the model's config.
        new_head: Put a fresh head on the encoder (drawn with `seed`), to be trained; False: the head must be there, and
            its outputs are reordered by name.
        answers: What a fresh head's answers begin around, one number or one for each output, and in what unit: its
            last bias, and a factor of its weights.
        seed: Of the fresh head.
        dtype: What the weights are held in.
        assume_order: As in `potstill.data.labels.match_labels`.

    Raises:
        ModelError: No encoder, or no head where one must be there; for `regression`, one of several outputs.
        DataError: Labels that do not match; both lists are shown.
    """
    config = read_config(folder)
    names = tuple(labels) if problem_type != "regression" else (_SCORE,)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        if new_head:
            config.num_labels = len(names)
            model, _ = _load(folder, config, dtype, new_head=True)
            _draw_head(model, seed, answers)
        else:
            model, missing = _load(folder, config, dtype)
            if missing:
                raise ModelError(
                    f"{folder} has no classification head ({missing[0]} is missing)",
                    fix="set teacher.trained to false: it is then fine-tuned first",
                )
            own = _label_names(config, folder)
            if problem_type == "regression":
                _check_one_output(own, folder)
            else:
                _reorder(model, torch.from_numpy(match_labels(labels, own, assume_order=assume_order)))
    model.config.id2label = dict(enumerate(names))
    model.config.label2id = {name: index for index, name in enumerate(names)}
    model.config.problem_type = problem_type
    return model


def _check_one_output(own: Sequence[str], folder: Path) -> None:
    if len(own) != 1:
        raise ModelError(
            f"{folder} has a head of {len(own)} outputs ({', '.join(own[:4])})",
            expected="one, a score",
            fix="set teacher.trained to false: a fresh head is then fine-tuned first",
        )


def _label_names(config: PretrainedConfig, folder: Path) -> list[str]:
    named = {int(index): name for index, name in (config.id2label or {}).items()}
    if sorted(named) != list(range(len(named))):
        raise ModelError(f"{folder} numbers its labels {sorted(named)[:12]}", expected="0, 1, 2 … in its id2label")
    return [named[index] for index in range(len(named))]


@torch.no_grad()
def _draw_head(model: PreTrainedModel, seed: int, answers: tuple[float | np.ndarray, float]) -> None:
    """Linear layers of the head from N(0, initializer_range), biases 0: whatever stood there, and by `seed` alone.

    The last of them is then moved to where `answers` begin.
    """
    generator = torch.Generator().manual_seed(seed)
    deviation = float(getattr(model.config, "initializer_range", 0.02))
    for part in _HEAD:
        for module in getattr(model, part, torch.nn.Identity()).modules():
            if isinstance(module, torch.nn.Linear):
                drawn = torch.randn(module.weight.shape, generator=generator) * deviation
                module.weight.copy_(drawn)
                module.bias.zero_()
    last = _last_layer(model)
    last.weight.mul_(answers[1])
    last.bias.add_(torch.as_tensor(answers[0], dtype=last.bias.dtype))


def _last_layer(model: PreTrainedModel) -> torch.nn.Linear:
    head = model.get_submodule("classifier")
    last = head if isinstance(head, torch.nn.Linear) else head.get_submodule("out_proj")
    assert isinstance(last, torch.nn.Linear)
    return last


@torch.no_grad()
def _reorder(model: PreTrainedModel, order: torch.Tensor) -> None:
    """Put the rows of the last linear layer in the data's order."""
    last = _last_layer(model)
    last.weight.copy_(last.weight[order])
    last.bias.copy_(last.bias[order])
