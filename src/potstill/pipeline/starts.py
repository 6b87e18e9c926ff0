"""How models are made before any step: the student's start, and what assistants are cut from."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from safetensors.torch import save_file
from torch import Tensor
from transformers import PreTrainedModel

from potstill.data.encoding import Encodings, TextEncoder
from potstill.models.forward import forward_inputs
from potstill.models.loading import longest_input
from potstill.models.precision import held
from potstill.models.shrink import shrink
from potstill.models.student import Shape, layers_student, random_student
from potstill.pipeline.job import Job
from potstill.pipeline.results import length_of, model_of, split_of
from potstill.pipeline.run import Context
from potstill.pipeline.teach import choose_length, save_model, task_encoder, with_head
from potstill.pipeline.vocabulary import pruned
from potstill.recipes import layer_pairs
from potstill.storage import write_json

__all__ = ["save_start", "shrunk_from", "start_stage"]

CALIBRATION_TOKENS = 10_000


def _calibration(model: PreTrainedModel, encodings: Encodings, seed: int) -> list[dict[str, Tensor]]:
    """A few thousand texts in batches of one length each, about `CALIBRATION_TOKENS` tokens."""
    order = np.random.default_rng(seed).permutation(len(encodings))
    chosen = order[: max(1, int(np.searchsorted(np.cumsum(encodings.lengths[order]), CALIBRATION_TOKENS)))]
    batches = []
    for length in np.unique(encodings.lengths[chosen]):
        rows = chosen[encodings.lengths[chosen] == length]
        batches += [forward_inputs(model, encodings.batch(part)) for part in np.array_split(rows, -(-len(rows) // 256))]
    return batches


def _source_layers(job: Job, teacher: Shape) -> tuple[int, ...]:
    """Layers (1-based) of the model above that the student is cut from: as named, else those that then teach it."""
    if job.start_layers is not None:
        return job.start_layers
    return tuple(layer for _, layer in layer_pairs(job.shape.layers, teacher.layers, job.settings.distill.mapping))


def shrunk_from(
    context: Context, job: Job, teacher: PreTrainedModel, shape: Shape, layers: Sequence[int], encodings: Encodings
) -> tuple[PreTrainedModel, Tensor]:
    """A model cut from `layers` (1-based) of another to a shape, with its data; and its basis, (H_teacher, H)."""
    source = Shape.of(teacher.config)
    made = shrink(
        teacher,
        shape,
        layers,
        _calibration(teacher, encodings, job.settings.run.seed),
        report=context.report,
    )
    context.report.note(f"{shape} from {source}: its basis carries {100 * made.variance:.1f} % of the hidden energy")
    return made.model, made.basis


def save_start(context: Context, model: PreTrainedModel, basis: Tensor | None, tokenizer_from: Path) -> None:
    """Write `model/`, with the tokenizer in `tokenizer_from`, and `basis.safetensors` where there is a basis."""
    save_model(model, context.folder / "model", tokenizer_from)
    if basis is not None:
        save_file({"basis": basis.contiguous()}, context.folder / "basis.safetensors")


def start_stage(context: Context, job: Job, above: str) -> None:
    """The student before any step: shrunk from the model above it, from its layers, at random, or another model."""
    model, basis, tokenizer = _started(context, job, context.done[above])
    model, tokenizer = pruned(context, model, tokenizer)
    save_start(context, model, basis, tokenizer)
    if job.side.joined:
        write_json(context.folder / "task.json", {"max_length": _own_length(context, job, tokenizer)})


def _own_length(context: Context, job: Job, tokenizer: Path) -> int:
    """Longest input of a student that does not read as its teacher does."""
    limit = longest_input(job.side.config)
    if job.side.max_length is not None:
        return min(job.side.max_length, limit)
    return choose_length(job, TextEncoder.from_folder(tokenizer, max_length=limit), split_of(context, "train"), limit)


def _started(context: Context, job: Job, folder: Path) -> tuple[PreTrainedModel, Tensor | None, Path]:
    """The model, the basis where it was shrunk, and the folder of its tokenizer."""
    seed = job.settings.run.seed
    if job.way == "model":
        assert job.start is not None
        source = job.start.paths[0]
        model = with_head(context, job, source)
        if job.side.cut:  # its basis leads to that model's states, not to the teacher's
            held(model, job.settings.distill.precision)
            layers = _source_layers(job, Shape.of(model.config))
            model, _ = shrunk_from(context, job, model, job.shape, layers, _calibration_texts(context, job, source))
        return model, None, source
    teacher, own = model_of(context, folder), folder / "model"
    if job.way == "random":
        return random_student(teacher.config, job.shape, seed=seed), None, own
    layers = _source_layers(job, Shape.of(teacher.config))
    if job.way == "layers":
        return layers_student(teacher, layers), None, own
    held(teacher, job.settings.distill.precision)
    model, basis = shrunk_from(context, job, teacher, job.shape, layers, _calibration_texts(context, job, own))
    return model, basis, own


def _calibration_texts(context: Context, job: Job, folder: Path) -> Encodings:
    """The training texts, as the model in `folder` reads them."""
    train = split_of(context, "train")
    return task_encoder(job, folder, length_of(context)).encode(train.texts, train.pairs)
