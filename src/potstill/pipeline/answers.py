"""The texts that a student is distilled on, and what teachers answer to them: stages that run before the student's.

Each stage's function reads what earlier stages left and writes `logits.safetensors`.
"""

import numpy as np

from potstill.data.examples import Examples, without_labels
from potstill.data.new_texts import is_new
from potstill.errors import ModelError
from potstill.models.forward import run_logits
from potstill.models.packed import read_only
from potstill.pipeline.job import Job
from potstill.pipeline.joining import texts_name
from potstill.pipeline.results import length_of, model_of, read_split, split_of, task_of
from potstill.pipeline.run import Context
from potstill.pipeline.teach import task_encoder
from potstill.storage import write_arrays

__all__ = ["other_logits_stage", "teacher_logits_stage", "training_texts"]


def training_texts(context: Context, *, augmented: bool) -> Examples:
    """Training texts, with augmented and unlabelled ones where the phase reads them."""
    train = Examples.read(context.done["augment"] / "train.arrow") if augmented else split_of(context, "train")
    extra = read_split(context.done["data"], "unlabelled")
    if extra is None:
        return train
    pairs = None if train.pairs is None else [*train.pairs, *(extra.pairs or [])]
    unlabelled = without_labels(train.labels, len(extra))
    ids = np.concatenate([train.example_id, extra.example_id])
    return Examples(ids, [*train.texts, *extra.texts], pairs, np.concatenate([train.labels, unlabelled]))


def teacher_logits_stage(context: Context, job: Job) -> None:
    """The teacher's logits for every text that was given, once: with assistants, all below it learn them.

    Of texts that were made there are too many: their rows are NaN, and the model above a student answers them. Not so
    with several teachers, whose answers are averaged: an assistant's would be an average already.
    """
    encoder = task_encoder(job, context.done["teacher"] / "model", length_of(context))
    model = read_only(model_of(context, context.done["teacher"]), job.settings.distill.precision)
    texts = training_texts(context, augmented=True)
    encodings = encoder.encode(texts.texts, texts.pairs)
    given = np.flatnonzero(~is_new(texts.example_id[encodings.example]) | bool(job.more))
    logits = np.full((len(encodings), task_of(context).outputs), np.nan, dtype=np.float32)
    logits[given] = run_logits(model, encodings.select(given), report=context.report)
    if not np.isfinite(logits[given]).all():
        raise ModelError(
            f"the teacher's answers to {int((~np.isfinite(logits[given])).any(axis=1).sum()):,} texts are not finite",
            expected="numbers",
            fix='look at its weights, or set distill.precision = "float32"',
        )
    write_arrays(context.folder / "logits.safetensors", {"logits": logits})


def other_logits_stage(context: Context, job: Job, stage: str) -> None:
    """A further teacher's logits for the texts of every phase that learns answers: what it is run for, once."""
    encoder = task_encoder(job, context.done[stage] / "model", length_of(context, stage))
    model = read_only(model_of(context, context.done[stage]), job.settings.distill.precision)
    arrays = {}
    for augmented in sorted({phase.augmented for phase in job.recipe.phases}):
        texts = training_texts(context, augmented=augmented)
        arrays[texts_name(augmented)] = run_logits(
            model, encoder.encode(texts.texts, texts.pairs), report=context.report
        )
    write_arrays(context.folder / "logits.safetensors", arrays)
