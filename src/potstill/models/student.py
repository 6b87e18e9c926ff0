"""The student's shape, and the ways it can start: chosen layers, at random, from another model, or shrunk.

The result is always a plain `transformers` model. Knows no loss and no data (shrinking: `potstill.models.shrink`).
"""

import copy
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers import AutoModel, AutoModelForSequenceClassification, PretrainedConfig, PreTrainedModel

from potstill.errors import ModelError
from potstill.models.anatomy import ANATOMIES, encoder_parts

__all__ = ["Shape", "check_start", "encoder_shapes", "layers_student", "random_student", "student_config"]


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
    def parse(cls, text: str, *, teacher_heads: int = 12, ffn_ratio: float = 4.0) -> "Shape":
        """Read a shape word.

        FFN defaults to 4 times the width (1200 for 312, as published), or `ffn_ratio` times; heads to the teacher's
        count where it divides the width, else to the largest smaller count that does (12 for 312, as published).

        Raises:
            ModelError: Not of this form, a zero, or a width that the heads do not divide.
        """
        match = re.fullmatch(r"(\d+)x(\d+)(?:x(\d+)(?:x(\d+))?)?", text.strip().lower())
        if match is None:
            raise ModelError(f"the shape {text!r}", expected="LxH or LxHxFFNxHEADS, such as 4x312 or 4x312x1200x12")
        layers, hidden, ffn, heads = (int(group) if group else 0 for group in match.groups())
        if not layers or not hidden or (match[3] and not ffn) or (match[4] and not heads):
            raise ModelError(f"the shape {text!r}", expected="numbers above zero")
        ffn = ffn or (1200 if hidden == 312 and ffn_ratio == 4.0 else round(ffn_ratio * hidden))
        if not heads and hidden == 312 and teacher_heads > 12 and hidden % teacher_heads:
            heads = 12
        heads = heads or next(count for count in range(min(teacher_heads, hidden), 0, -1) if hidden % count == 0)
        if hidden % heads:
            fitting = [count for count in range(1, 65) if hidden % count == 0]
            raise ModelError(
                f"the shape {text!r}: width {hidden} is not divisible by {heads} heads",
                fix=f"choose heads from {fitting}",
            )
        return cls(layers, hidden, ffn, heads)

    @classmethod
    def under(cls, text: str, teacher: PretrainedConfig) -> "Shape":
        """Read a shape word for a student of this teacher's architecture.

        As `parse`; the FFN of architectures where one half gates the other (ModernBERT) is by default as wide, in
        proportion, as the teacher's.
        """
        anatomy = ANATOMIES.get(teacher.model_type)
        gated = anatomy is not None and anatomy.gated
        ratio = teacher.intermediate_size / teacher.hidden_size if gated else 4.0
        return cls.parse(text, teacher_heads=int(teacher.num_attention_heads), ffn_ratio=ratio)

    @classmethod
    def of(cls, config: PretrainedConfig) -> "Shape":
        """The shape of an existing model."""
        ffn = getattr(config, "intermediate_size", None) or getattr(config, "hidden_dim", 4 * config.hidden_size)
        return cls(config.num_hidden_layers, config.hidden_size, ffn, config.num_attention_heads)

    def __str__(self) -> str:
        return f"{self.layers}x{self.hidden}x{self.ffn}x{self.heads}"


def student_config(teacher: PretrainedConfig, shape: Shape, layers: Sequence[int] | None = None) -> PretrainedConfig:
    """The teacher's config at another size: same architecture, tokenizer, positions and labels.

    ELECTRA's embeddings are as wide as the student where its width is not the teacher's; ALBERT's stay as narrow as
    they are.

    Args:
        teacher: The teacher's.
        shape: The student's.
        layers: The teacher's layers (1-based) that the student's stand for: local attention and shared weights
            (ModernBERT, ALBERT) go by them. None: evenly spread.
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
    count = Shape.of(teacher).layers
    chosen = layers or [max(1, layer * count // shape.layers) for layer in range(1, shape.layers + 1)]
    for name, value in _following(teacher, shape, chosen).items():
        if hasattr(config, name):
            setattr(config, name, value)
    return config


def _following(teacher: PretrainedConfig, shape: Shape, layers: Sequence[int]) -> dict[str, Any]:
    """What follows from a size, in the architectures whose config says it separately."""
    made: dict[str, Any] = {name: shape.hidden // shape.heads for name in ("attention_head_size", "head_dim")}
    made["pooler_hidden_size"] = shape.hidden
    if shape.hidden != teacher.hidden_size and teacher.model_type != "albert":
        made["embedding_size"] = shape.hidden
    if kinds := getattr(teacher, "layer_types", None):
        made["layer_types"] = [kinds[layer - 1] for layer in layers]
    if groups := getattr(teacher, "num_hidden_groups", None):
        named = [_group(layer - 1, Shape.of(teacher).layers, groups) for layer in layers]
        made["num_hidden_groups"] = next(n for n in range(1, len(layers) + 1) if _agrees(named, n))
    return made


def _group(layer: int, layers: int, groups: int) -> int:
    """Which group of weights a layer (from 0) of an ALBERT has: `transformers`' own formula."""
    return int(layer / (layers / groups))


def _agrees(named: Sequence[int], groups: int) -> bool:
    """Whether with so many groups no two layers share weights that do not in `named`; one a layer always does."""
    members: dict[int, set[int]] = {}
    for layer, name in enumerate(named):
        members.setdefault(_group(layer, len(named), groups), set()).add(name)
    return all(len(found) == 1 for found in members.values())


def check_start(teacher: PretrainedConfig, shape: Shape, way: str, layers: Sequence[int]) -> None:
    """Check that a student of the teacher's architecture can start in a way, before anything is made.

    Args:
        teacher: The teacher's config.
        shape: The student's.
        way: `shrunk`, `layers` or `random`; another is not checked here.
        layers: The teacher's layers (1-based) that it is made from.

    Raises:
        ModelError: It cannot; says what can be done instead.
    """
    kind = teacher.model_type
    anatomy = ANATOMIES.get(kind)
    other = "name another small model of the same vocabulary as student.start"
    if anatomy is not None and not anatomy.cuttable and way in ("shrunk", "layers", "random"):
        raise ModelError(f"a student with the architecture of {kind!r}, which is a teacher only", fix=other)
    if anatomy is None and way in ("shrunk", "layers"):
        raise ModelError(
            f"student.start = {way} from a model of type {kind!r}, whose parts are not known",
            expected=f"one of {', '.join(sorted(name for name, row in ANATOMIES.items() if row.cuttable))}",
            fix=f'set student.start to "random", or {other}',
        )
    if anatomy is None:
        return
    if anatomy.rotary:
        _check_rotary(teacher, shape, way)
    convolved = anatomy.convolution is not None and getattr(teacher, "conv_kernel_size", 0) > 0
    if convolved and way == "shrunk":
        raise ModelError(
            f"a student shrunk from a {kind!r} with a convolution", fix='set student.start to "layers" or "random"'
        )
    if way == "layers" and (anatomy.pre_norm or convolved) and (layers[:1] != (1,) or 1 in layers[1:]):
        raise ModelError(
            f"student.start = layers with the layers {[layer - 1 for layer in layers]} of a {kind!r}",
            expected="layer 0 first: it is built unlike the others",
            fix='set student.layers to "every-other" or "bottom", or to a list that begins with 0',
        )


def _check_rotary(teacher: PretrainedConfig, shape: Shape, way: str) -> None:
    """Heads of rotary models hold pairs of dimensions, each of which turns at a frequency of its own."""
    full = Shape.of(teacher)
    wide, narrow = full.hidden // full.heads, shape.hidden // shape.heads
    if narrow % 2:
        raise ModelError(
            f"the shape {shape}: heads {narrow} wide in a {teacher.model_type!r}",
            expected="an even width: rotary positions turn pairs of dimensions",
            fix=f"choose a width of {shape.heads} heads such as {shape.layers}x{shape.heads * (narrow + 1)}",
        )
    if way == "shrunk" and wide % narrow and narrow % wide:
        fitting = [width for width in range(2, wide + 1, 2) if wide % width == 0]
        nearest = min(fitting, key=lambda width: abs(width - narrow))
        raise ModelError(
            f"the shape {shape}: heads {narrow} wide shrunk from rotary heads {wide} wide",
            expected=f"{', '.join(map(str, fitting))}: other widths turn at frequencies that the teacher lacks",
            fix=f"choose {shape.layers}x{shape.heads * nearest}x{shape.ffn}x{shape.heads}, or set student.start to "
            '"random"',
        )


def encoder_shapes(config: PretrainedConfig) -> dict[str, list[int]]:
    """The shape of each parameter of an encoder without a head; nothing is held in memory."""
    with torch.device("meta"):
        model = AutoModel.from_config(config)
    return {name: list(parameter.shape) for name, parameter in model.named_parameters()}


def random_student(
    teacher: PretrainedConfig,
    shape: Shape,
    *,
    seed: int,
    kind: Any = AutoModelForSequenceClassification,
    layers: Sequence[int] | None = None,
) -> PreTrainedModel:
    """A student at random, N(0, 0.02): the paper's way. float32, eval mode.

    Args:
        teacher: Whose architecture, positions and vocabulary it has.
        shape: Its own.
        seed: Of its weights.
        kind: An Auto class of `transformers`.
        layers: As in `student_config`.
    """
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        config = student_config(teacher, shape, layers)
        config._attn_implementation = "eager"
        model: PreTrainedModel = kind.from_config(config, dtype=torch.float32)
    model.eval()
    return model


def layers_student(teacher: PreTrainedModel, layers: tuple[int, ...]) -> PreTrainedModel:
    """The teacher with only the layers named (1-based), everything else as it was (Sajjad et al., arXiv 2004.03844).

    Raises:
        ModelError: A layer that the teacher does not have, none, or an architecture that does not allow it.
    """
    source = encoder_parts(teacher)
    count = len(source.layers)
    if not layers or not all(1 <= layer <= count for layer in layers):
        raise ModelError(f"the layers {list(layers)}", expected=f"numbers from 1 to {count}, one or more")
    full = Shape.of(teacher.config)
    shape = Shape(len(layers), full.hidden, full.ffn, full.heads)
    check_start(teacher.config, shape, "layers", layers)
    student = random_student(teacher.config, shape, seed=0, layers=layers)
    target = encoder_parts(student)
    for own, layer in zip(target.layers, layers, strict=True):
        own.layer.load_state_dict(source.layers[layer - 1].layer.state_dict())
    within = _layer_prefixes(teacher)
    rest = {name: value for name, value in teacher.state_dict().items() if not name.startswith(within)}
    missing, unexpected = student.load_state_dict(rest, strict=False)
    if unexpected or any(not name.startswith(_layer_prefixes(student)) for name in missing):
        raise ModelError(f"weights that do not fit: {[*missing, *unexpected][:3]}")
    return student


def _layer_prefixes(model: PreTrainedModel) -> tuple[str, ...]:
    modules = {part.layer for part in encoder_parts(model).layers}
    return tuple(f"{name}." for name, module in model.named_modules() if module in modules)
