"""The stages that measure: scores of every model, baselines that need no training loop, exports, latency."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch

from potstill import __version__
from potstill.data.encoding import Encodings
from potstill.data.examples import Examples
from potstill.engines import ENGINE_OF_FORMAT, Engine, FormatName
from potstill.engines import Precision as EnginePrecision
from potstill.engines import load as load_engine
from potstill.evaluation.baselines import TFIDF
from potstill.evaluation.evaluate import predict_logits
from potstill.evaluation.latency import measure_latency, measure_tokenisation
from potstill.evaluation.latency_inputs import latency_inputs, length_facts
from potstill.models.loading import longest_input, read_config
from potstill.models.precision import training_dtype
from potstill.pipeline.inputs import model_facts, threads
from potstill.pipeline.job import Job
from potstill.pipeline.results import length_of, read_split, task_of
from potstill.pipeline.run import Context
from potstill.pipeline.task_job import TaskJob
from potstill.pipeline.teach import task_encoder
from potstill.storage import digest_folder, read_json, write_arrays, write_json
from potstill.tasks import Task

__all__ = [
    "export_stage",
    "fitted_task",
    "latency_stage",
    "score_stage",
    "teacher_check_stage",
    "tfidf_stage",
    "write_potstill_json",
]

SPLITS = ("dev", "test")
LENGTHS = (16, 128)


def _splits(context: Context) -> dict[str, Examples]:
    found = {name: read_split(context.done["data"], name) for name in SPLITS}
    return {name: examples for name, examples in found.items() if examples is not None}


def _encodings(context: Context, job: TaskJob, folder: Path, examples: Examples, stage: str) -> Encodings:
    """As the model of a stage reads them; `folder` is where it stands."""
    return task_encoder(job, folder, length_of(context, stage)).encode(examples.texts, examples.pairs)


def score_stage(context: Context, job: TaskJob, models: dict[str, str], counted: str = "student") -> None:
    """Logits of each model on dev and test, in torch float32; the one time that test is looked at.

    Args:
        context: Of the stage.
        job: The run's.
        models: Role (teacher, teacher-2, student, hard_labels, small_pretrained) → name of the stage whose model it is.
        counted: The role whose texts that were cut, or read in windows, are counted.
    """
    arrays: dict[str, np.ndarray] = {}
    counts: dict[str, dict[str, int]] = {"truncated": {}, "windowed": {}}
    for role, stage in models.items():
        folder = context.done[stage] / "model"
        engine = _engine(folder, "torch", "float32", job)
        for split, examples in _splits(context).items():
            context.report.stage("score", f"{role.replace('_', ' ')} on {split}")
            encodings = _encodings(context, job, folder, examples, stage)
            arrays[f"{role}/{split}"] = predict_logits(
                engine, encodings, merge=task_of(context).merge, report=context.report
            )
            if role == counted:
                counts["truncated"][split], counts["windowed"][split] = encodings.truncated, encodings.windowed
    train = read_split(context.done["data"], "train")
    assert train is not None
    stage = models[counted]
    encodings = _encodings(context, job, context.done[stage] / "model", train, stage)
    counts["truncated"]["train"], counts["windowed"]["train"] = encodings.truncated, encodings.windowed
    write_arrays(context.folder / "logits.safetensors", arrays)
    write_json(context.folder / "counts.json", counts)


def tfidf_stage(context: Context, job: Job) -> None:
    """TF-IDF with a linear model, and the best constant (such as the majority class): predictions on dev and test."""
    train, splits = read_split(context.done["data"], "train"), _splits(context)
    assert train is not None
    task = task_of(context)
    constant = task.constant(train.labels)
    arrays = {
        f"constant/{name}": np.full((len(examples), *np.shape(constant)), constant) for name, examples in splits.items()
    }
    facts: dict[str, Any] = {}
    if job.settings.evaluate.tfidf and task.kind in TFIDF:
        _, fit = TFIDF[task.kind]
        result = fit(train, splits["dev"], list(splits.values()), task, context.report)
        for name, predictions in zip(splits, result["predictions"], strict=True):
            arrays[f"tfidf/{name}"] = predictions
        facts = {"parameters": result["parameters"], "description": result["description"], "seconds": result["seconds"]}
    write_arrays(context.folder / "predictions.safetensors", arrays)
    write_json(context.folder / "facts.json", facts)


def _formats(job: Job) -> list[tuple[FormatName, EnginePrecision]]:
    named = (name.split("-") for name in job.settings.export.formats)
    return [(cast(FormatName, form), cast(EnginePrecision, precision)) for form, precision in named]


def _engine(folder: Path, form: str, precision: str, job: TaskJob) -> Engine:
    """The engine of an export; `form` is torch, onnx or openvino."""
    engine = ENGINE_OF_FORMAT[cast(FormatName, form)]
    return load_engine(folder, engine, cast(EnginePrecision, precision), threads=threads(job.settings.run))


def _made_from(job: Job) -> dict[str, Any]:
    """What taught the student, as potstill.json names it."""
    if job.scores is not None:
        return {"teacher": model_facts(job.scores.source), "base": model_facts(job.teacher)}
    more = {"more": [model_facts(other) for other in job.more]} if job.more else {}
    return {"teacher": model_facts(job.teacher), **more}


def fitted_task(context: Context, job: TaskJob, folder: Path, length: int) -> Task:
    """The run's task with what the model in `folder` needs that is chosen on dev, in torch float32; see `Task.fitted`.

    Args:
        context: Of a stage after the data's.
        job: The run's.
        folder: The model's.
        length: Its longest input in tokens.
    """
    task, dev = task_of(context), _splits(context)["dev"]
    encodings = task_encoder(job, folder, length).encode(dev.texts, dev.pairs)
    engine = _engine(folder, "torch", "float32", job)
    return task.fitted(dev.labels, predict_logits(engine, encodings, merge=task.merge, report=context.report))


def write_potstill_json(job: TaskJob, folder: Path, length: int, source: dict[str, Any], task: Task) -> None:
    """What `transformers` has no place for, beside the model: see contracts in docs/architecture.md.

    Args:
        job: The run's.
        folder: The model's.
        length: Its longest input in tokens.
        source: What it was made from.
        task: The run's, fitted to the model.
    """
    settings = job.settings.data
    write_json(
        folder / "potstill.json",
        {
            "schema_version": 1,
            "task": task.kind,
            "labels": list(task.labels),
            **task.tuned,
            "pair": task.pair,
            "max_length": min(length, longest_input(read_config(folder))),
            "long_text": settings.long_text,
            "step": settings.step,
            "source": {**source, "potstill": __version__},
            "digests": {"model": digest_folder(folder)},
        },
    )


def export_stage(context: Context, job: Job) -> None:
    """The deployable folder: the student and its exports, each with parity to torch and its logits on dev and test.

    Which of them are accepted is decided when the report is assembled.
    """
    from potstill.export import export_student, parity

    folder = context.folder / "student"
    shutil.copytree(context.done["student"] / "model", folder)
    splits, task, length = _splits(context), task_of(context), length_of(context, "student")
    fitted = fitted_task(context, job, folder, length)
    write_potstill_json(job, folder, length, _made_from(job), fitted)
    encodings = {name: _encodings(context, job, folder, examples, "student") for name, examples in splits.items()}
    reference = _engine(folder, "torch", "float32", job)
    train = read_split(context.done["data"], "train")
    assert train is not None
    rows = np.random.default_rng(job.settings.run.seed).permutation(len(train))[:300]
    calibration = _encodings(context, job, folder, train.select(rows), "student")
    made = export_student(folder, _formats(job), calibration=calibration, report=context.report)
    arrays: dict[str, np.ndarray] = {}
    rows_out: list[dict[str, Any]] = []
    for export in made:
        context.report.stage("export", f"scoring {export.format} {export.precision}")
        engine = _engine(folder, export.format, export.precision, job)
        name = f"{export.format}-{export.precision}"
        for split in splits:
            arrays[f"{name}/{split}"] = predict_logits(
                engine, encodings[split], merge=task.merge, report=context.report
            )
        rows_out.append(
            {
                "format": export.format,
                "precision": export.precision,
                "path": str(export.path.relative_to(folder)),
                "bytes": export.bytes,
                "max_abs_diff": parity(reference, engine, encodings["dev"]),
            }
        )
    write_arrays(context.folder / "logits.safetensors", arrays)
    write_json(context.folder / "exports.json", {"exports": rows_out})


def latency_stage(context: Context, job: Job) -> None:
    """Latency of student and teacher in every engine, by turns in one run, on the dev texts and on made lengths.

    The teacher is exported the same way, into scratch: what a speed-up owes to the engine can then be told from what it
    owes to the student. Where scores teach, the student is measured alone.
    """
    student, dev = context.done["export"] / "student", _splits(context)["dev"]
    present = [
        (row["format"], row["precision"]) for row in read_json(context.done["export"] / "exports.json")["exports"]
    ]
    folders = {"student": student}
    if job.scores is None:
        folders = {"teacher": _exported_teacher(context, job, present), **folders}
    longest = min(longest_input(read_config(folder)) for folder in folders.values())
    lengths = [length for length in LENGTHS if length <= longest]
    engines: dict[str, Engine] = {}
    inputs: dict[str, Any] = {}
    for role, folder in folders.items():
        prepared = latency_inputs(
            _encodings(context, job, folder, dev, role), lengths=lengths, seed=job.settings.run.seed
        )
        for form, precision in [("torch", "float32"), *present]:
            name = f"{role}/{form}-{precision}"
            engines[name] = _engine(folder, form, precision, job)
            inputs[name] = prepared
    context.report.stage("latency", f"{len(engines)} engines by turns")
    measured = measure_latency(engines, inputs, report=context.report)
    encoder = task_encoder(job, student, length_of(context, "student"))
    write_json(
        context.folder / "latency.json",
        {
            "ms": measured.ms,
            "repeats": measured.repeats,
            "tokenisation_ms": measure_tokenisation(encoder.encode, dev.texts, dev.pairs),
            "lengths": {"dev": length_facts(_encodings(context, job, student, dev, "student"))},
            "threads": threads(job.settings.run),
        },
    )


def _exported_teacher(context: Context, job: Job, formats: Sequence[tuple[FormatName, EnginePrecision]]) -> Path:
    from potstill.export import export_student

    teacher = context.scratch / "teacher"
    # A run that was killed may have left half a copy.
    shutil.copytree(context.done["teacher"] / "model", teacher, dirs_exist_ok=True)
    train = read_split(context.done["data"], "train")
    assert train is not None
    rows = np.random.default_rng(job.settings.run.seed).permutation(len(train))[:300]
    calibration = _encodings(context, job, teacher, train.select(rows), "teacher")
    export_student(teacher, formats, calibration=calibration, report=context.report)
    return teacher


def teacher_check_stage(context: Context, job: Job, stage: str = "teacher") -> None:
    """A teacher's dev scores, with their intervals, computed as it is held when it teaches: dev.json."""
    folder = context.done[stage] / "model"
    dev = _splits(context)["dev"]
    fast = training_dtype(job.settings.distill.precision) == torch.bfloat16
    engine = _engine(folder, "torch", "bfloat16" if fast else "float32", job)
    task, resamples = task_of(context), job.settings.evaluate.resamples
    encodings = _encodings(context, job, folder, dev, stage)
    logits = predict_logits(engine, encodings, merge=task.merge, report=context.report)
    predictions = task.fitted(dev.labels, logits).predictions(logits)
    metrics = task.metrics(dev.labels, predictions, resamples=resamples)
    write_json(context.folder / "dev.json", {name: metric.as_dict() for name, metric in metrics.items()})
