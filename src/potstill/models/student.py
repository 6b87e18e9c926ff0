"""The student's shape, and the ways it can start: chosen layers, at random, from another model, or shrunk.

The result is always a plain `transformers` model. Knows no loss and no data (shrinking: `potstill.models.shrink`).
"""

import copy
import re
from dataclasses import dataclass
from typing import Any

import torch
from transformers import AutoModelForSequenceClassification, PretrainedConfig, PreTrainedModel

from potstill.errors import ModelError
from potstill.models.anatomy import encoder_parts

__all__ = ["Shape", "layers_student", "random_student", "student_config"]


@dataclass(frozen=True)
class Shape:
    """A student's size, written `LxH[xFFNxHEADS]`, as `4x312` or `4x312x1200x12`.

    Attributes:
        layers, hidden, ffn, heads: As in a `transformers` config: num_hidden_layers, hidden_size, intermediate_size,
            num_attention_heads.
    """

    layers: int
    hidden: int
    ffn: int
    heads: int

    @classmethod
    def parse(cls, text: str, *, teacher_heads: int = 12) -> "Shape":
        """Read a shape word.

        FFN defaults to 4 times the width (1200 for 312, as published); heads to the teacher's count where it divides
        the width, else to the largest smaller count that does.

        Raises:
            ModelError: Not of this form, a zero, or a width that the heads do not divide.
        """
        match = re.fullmatch(r"(\d+)x(\d+)(?:x(\d+)(?:x(\d+))?)?", text.strip().lower())
        if match is None:
            raise ModelError(f"the shape {text!r}", expected="LxH or LxHxFFNxHEADS, such as 4x312 or 4x312x1200x12")
        layers, hidden, ffn, heads = (int(group) if group else 0 for group in match.groups())
        if not layers or not hidden or (match[3] and not ffn) or (match[4] and not heads):
            raise ModelError(f"the shape {text!r}", expected="numbers above zero")
        ffn = ffn or (1200 if hidden == 312 else 4 * hidden)
        heads = heads or next(count for count in range(min(teacher_heads, hidden), 0, -1) if hidden % count == 0)
        if hidden % heads:
            fitting = [count for count in range(1, 65) if hidden % count == 0]
            raise ModelError(
                f"the shape {text!r}: width {hidden} is not divisible by {heads} heads",
                fix=f"choose heads from {fitting}",
            )
        return cls(layers, hidden, ffn, heads)

    @classmethod
    def of(cls, config: PretrainedConfig) -> "Shape":
        """The shape of an existing model."""
        ffn = getattr(config, "intermediate_size", None) or config.hidden_dim
        return cls(config.num_hidden_layers, config.hidden_size, ffn, config.num_attention_heads)

    def __str__(self) -> str:
        return f"{self.layers}x{self.hidden}x{self.ffn}x{self.heads}"


def student_config(teacher: PretrainedConfig, shape: Shape) -> PretrainedConfig:
    """The teacher's config at another size: same architecture, tokenizer, positions and labels.

    ELECTRA's embeddings are as wide as the student where its width is not the teacher's.
    """
    config = copy.deepcopy(teacher)
    names: dict[str, str] = (
        {"layers": "n_layers", "hidden": "dim", "ffn": "hidden_dim", "heads": "n_heads"}
        if config.model_type == "distilbert"
        else {
            "layers": "num_hidden_layers",
            "hidden": "hidden_size",
            "ffn": "intermediate_size",
            "heads": "num_attention_heads",
        }
    )
    for ours, theirs in names.items():
        setattr(config, theirs, getattr(shape, ours))
    if hasattr(config, "embedding_size") and shape.hidden != teacher.hidden_size:
        config.embedding_size = shape.hidden
    return config


def random_student(
    teacher: PretrainedConfig, shape: Shape, *, seed: int, kind: Any = AutoModelForSequenceClassification
) -> PreTrainedModel:
    """A student at random, N(0, 0.02): the paper's way. float32, eval mode.

    Args:
        teacher: Whose architecture, positions and vocabulary it has.
        shape: Its own.
        seed: Of its weights.
        kind: An Auto class of `transformers`.
    """
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        config = student_config(teacher, shape)
        config._attn_implementation = "eager"
        model: PreTrainedModel = kind.from_config(config, dtype=torch.float32)
    model.eval()
    return model


def layers_student(teacher: PreTrainedModel, layers: tuple[int, ...]) -> PreTrainedModel:
    """The teacher with only the layers named (1-based), everything else as it was (Sajjad et al., arXiv 2004.03844).

    Raises:
        ModelError: A layer that the teacher does not have, or none.
    """
    count = len(encoder_parts(teacher).layers)
    if not layers or not all(1 <= layer <= count for layer in layers):
        raise ModelError(f"the layers {list(layers)}", expected=f"numbers from 1 to {count}, one or more")
    shape = Shape.of(teacher.config)
    student = random_student(teacher.config, Shape(len(layers), shape.hidden, shape.ffn, shape.heads), seed=0)
    source, target = encoder_parts(teacher), encoder_parts(student)
    chosen = [source.layers[layer - 1].layer for layer in layers]
    for own, theirs in zip(target.layers, chosen, strict=True):
        own.layer.load_state_dict(theirs.state_dict())
    prefixes = tuple(
        f"{name}." for name, module in student.named_modules() if module in [p.layer for p in target.layers]
    )
    rest = {name: value for name, value in teacher.state_dict().items() if not name.startswith(_layer_prefix(teacher))}
    missing, unexpected = student.load_state_dict(rest, strict=False)
    if unexpected or any(not name.startswith(prefixes) for name in missing):
        raise ModelError(f"weights that do not fit: {[*missing, *unexpected][:3]}")
    return student


def _layer_prefix(model: PreTrainedModel) -> str:
    first = encoder_parts(model).layers[0].layer
    name: str = next(name for name, module in model.named_modules() if module is first)
    return name.removesuffix("0")
