"""What every training stage shares: encoding, length, fine-tuning, saved models."""

import shutil
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from transformers import PreTrainedModel

from potstill.config import DistillSettings
from potstill.data.batching import Batches
from potstill.data.encoding import Encodings, TextEncoder
from potstill.data.examples import Examples
from potstill.errors import DataError, ModelError
from potstill.models.checkpointing import set_checkpointing
from potstill.models.dropout import set_dropout
from potstill.models.forward import run_logits
from potstill.models.loading import longest_input, read_config
from potstill.models.teacher import has_classifier, load_classifier
from potstill.pipeline.budget import Budget
from potstill.pipeline.results import split_of, task_of
from potstill.pipeline.run import Context
from potstill.pipeline.task_job import TaskJob
from potstill.pipeline.training import phase_facts, run_training
from potstill.recipes.fine_tuning import FineTuning
from potstill.tasks import Task
from potstill.training import Schedule

__all__ = [
    "choose_length",
    "copy_tokenizer",
    "dev_score",
    "encode_examples",
    "fine_tune",
    "save_model",
    "task_encoder",
    "with_head",
]

TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.txt", "merges.txt")


def copy_tokenizer(source: Path, folder: Path) -> None:
    """Copy the tokenizer's files from one model folder to another."""
    for name in TOKENIZER_FILES:
        if (source / name).is_file():
            shutil.copyfile(source / name, folder / name)


def save_model(model: PreTrainedModel, folder: Path, tokenizer_from: Path) -> None:
    """A plain `transformers` folder, float32 safetensors, with the tokenizer beside it."""
    model.save_pretrained(folder)
    for path in folder.glob("*.safetensors"):
        path.chmod(0o644)  # they are written for the owner alone
    copy_tokenizer(tokenizer_from, folder)


def with_head(context: Context, job: TaskJob, folder: Path) -> PreTrainedModel:
    """The model in `folder` with a head for the task: its own where that fits, else a fresh one."""
    task = task_of(context)
    load = partial(load_classifier, folder, task.labels, problem_type=task.problem_type)
    if has_classifier(folder):
        try:
            return load()
        except (DataError, ModelError) as error:
            context.report.note(f"{error.got}: its head is for another task, and a fresh one takes its place")
    answers = task.scale(split_of(context, "train").labels)
    return load(new_head=True, answers=answers, seed=job.settings.run.seed)


def choose_length(job: TaskJob, encoder: TextEncoder, examples: Examples, longest: int) -> int:
    """`data.max_length`, or the shortest of 64, 128, 256, 512 … that holds 95 % of the training texts."""
    if job.settings.data.max_length is not None:
        return min(job.settings.data.max_length, longest)
    rows = np.arange(len(examples))[:: max(1, len(examples) // 5000)]
    sample = examples.select(rows)
    lengths = encoder.encode(sample.texts, sample.pairs).lengths
    wanted = float(np.quantile(lengths, 0.95))
    return min(longest, next((size for size in (64, 128, 256, 512, 1024, 2048, 4096) if size >= wanted), longest))


def task_encoder(job: TaskJob, folder: Path, length: int) -> TextEncoder:
    """The encoder of a model's folder under the task's settings for long texts."""
    settings = job.settings.data
    return TextEncoder.from_folder(
        folder,
        max_length=min(length, longest_input(read_config(folder))),
        long_text=settings.long_text,
        step=settings.step,
    )


def encode_examples(
    encoder: TextEncoder, examples: Examples, *, with_spans: bool = False
) -> tuple[Encodings, np.ndarray, np.ndarray]:
    """Windows, with the gold answer and the example id of each window's text."""
    encodings = encoder.encode(examples.texts, examples.pairs, with_spans=with_spans)
    return encodings, examples.labels[encodings.example], examples.example_id[encodings.example]


def dev_score(task: Task, model: PreTrainedModel, encodings: Encodings, gold: np.ndarray) -> Callable[[], float]:
    """The task's primary metric of the model in training on the dev texts, for curves; the task is fitted to it."""

    def score() -> float:
        logits = task.merge(run_logits(model, encodings), encodings.example)
        return task.score(gold, task.fitted(gold, logits).predictions(logits))

    return score


def fine_tune(
    context: Context,
    job: TaskJob,
    model: PreTrainedModel,
    encoder: TextEncoder,
    examples: Examples,
    dev: Examples,
    *,
    stage: str,
    budget: Budget,
    hyper: Mapping[str, float],
    epochs: float = 1.0,
    steps: int | None = None,
    portion: float = 1.0,
    dropout: bool = True,
    memory: DistillSettings | None = None,
) -> dict[str, Any]:
    """Train a model on gold answers (BERT §4, A.3); it is changed in place. Returns facts for training.json.

    `steps`, where given, takes the place of `epochs`; `portion` is as in `Budget.allot`; `dropout`: whether it
    is on; `memory`: whose accumulation, bound of tokens and gradient checkpointing hold, None for none of them.
    """
    settings, task = job.settings, task_of(context)
    set_dropout(model, on=dropout)
    parts, most = (1, None) if memory is None else (memory.accumulate, memory.batch_tokens)
    set_checkpointing(model, on=memory is not None and memory.gradient_checkpointing)
    encodings, labels, ids = encode_examples(encoder, examples)
    batches = Batches(encodings, labels, ids, int(hyper["batch_size"]) // parts, settings.run.seed, most)
    dev_encodings = encoder.encode(dev.texts, dev.pairs)
    if steps is None:
        steps = max(1, round(epochs * -(-len(encodings) // int(hyper["batch_size"]))))
    trained = run_training(
        context,
        job.conditions,
        FineTuning(model, batches, task.loss, unit=task.scale(examples.labels)[1]),
        accumulate=parts,
        stage=stage,
        phase="fine-tuning",
        planned=steps,
        schedule=lambda n: Schedule(
            n, hyper["learning_rate"], warmup=hyper["warmup"], average=hyper.get("average", 0.0), accumulate=parts
        ),
        budget=budget,
        evaluate=dev_score(task, model, dev_encodings, dev.labels),
        weight_decay=hyper["weight_decay"],
        portion=portion,
    )
    return phase_facts(trained, len(encodings), int(hyper["batch_size"]), [("hard", 1.0, 1.0)])
