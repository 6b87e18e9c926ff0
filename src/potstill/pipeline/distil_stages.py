"""The stages that train a model: teacher, assistants, the student's start and phases, the baselines that train.

Each function is a stage's work: it reads what earlier stages left and writes `model/` and `training.json`.
"""

import dataclasses
import shutil
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.numpy import load_file as load_arrays
from safetensors.numpy import save_file as save_arrays
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import PreTrainedModel

from potstill.data.encoding import Encodings, TextEncoder
from potstill.data.examples import UNLABELLED, Examples
from potstill.models.precision import held
from potstill.models.shrink import shrink
from potstill.models.student import Shape, layers_student, random_student
from potstill.models.teacher import has_classifier, load_classifier, longest_input
from potstill.pipeline.budget import LONGEST, Budget
from potstill.pipeline.job import Job
from potstill.pipeline.prepare import read_split, task_facts
from potstill.pipeline.run import Context
from potstill.pipeline.teach import (
    choose_length,
    dev_accuracy,
    encode_examples,
    fine_tune,
    phase_facts,
    run_training,
    save_model,
    task_encoder,
)
from potstill.recipes import Phase, build_terms, layer_pairs
from potstill.recipes.programs import Batches, Distilling, forward_inputs, projections_for, run_logits
from potstill.storage import atomic_folder, read_json, read_manifest, write_json
from potstill.tasks import Classification
from potstill.training import LossTerm, Schedule

__all__ = [
    "assistant_stage",
    "classification",
    "distilling_projections",
    "hard_labels_stage",
    "set_dropout",
    "small_baseline_stage",
    "start_stage",
    "student_stage",
    "teacher_logits_stage",
    "teacher_stage",
]

CALIBRATION_TOKENS = 10_000
HARD_COST = 0.6
"""Time of a step of the hard-label baseline, which runs no teacher, as a share of a distillation step."""
BERT_GRID = tuple(product((16, 32), (5e-5, 3e-5, 2e-5), (2, 3, 4)))
"""Batch size, learning rate, epochs: Devlin et al., A.3."""


def _labels(context: Context) -> tuple[str, ...]:
    return tuple(task_facts(context.done["data"])["labels"])


def _split(context: Context, name: str) -> Examples:
    examples = read_split(context.done["data"], name)
    assert examples is not None
    return examples


def _length(context: Context) -> int:
    return int(read_json(context.done["teacher"] / "task.json")["max_length"])


def teacher_stage(context: Context, job: Job, budget: Budget) -> None:
    """Take a fine-tuned classifier as it is, or fine-tune an encoder; write its length and model."""
    labels, folder, settings = _labels(context), job.teacher.paths[0], job.settings.teacher
    trained = has_classifier(folder) if settings.trained == "auto" else settings.trained
    train, dev = _split(context, "train"), _split(context, "dev")
    limit = longest_input(job.config)
    if (job.settings.data.max_length or 0) > limit:
        context.report.warn(f"data.max_length = {job.settings.data.max_length}: the teacher reads {limit} tokens")
    encoder = TextEncoder.from_folder(folder, max_length=limit)
    length = choose_length(job, encoder, train, limit)
    write_json(context.folder / "task.json", {"max_length": length, "trained_here": not trained})
    if trained:
        model = load_classifier(folder, labels, assume_order=settings.same_label_order)
        facts: dict[str, Any] = {}
    else:
        model, facts = _fine_tuned_teacher(context, job, budget, task_encoder(job, folder, length), train, dev)
    save_model(model, context.folder / "model", folder)
    write_json(context.folder / "training.json", {"fine-tuning": facts} if facts else {})


def _fine_tuned_teacher(
    context: Context, job: Job, budget: Budget, encoder: TextEncoder, train: Examples, dev: Examples
) -> tuple[PreTrainedModel, dict[str, Any]]:
    labels, settings = _labels(context), job.settings.teacher
    own = {"warmup": settings.warmup, "weight_decay": settings.weight_decay}
    grid = BERT_GRID if settings.grid else ((settings.batch_size, settings.learning_rate, settings.epochs),)
    best = context.scratch / "best"
    for number, (batch_size, rate, epochs) in enumerate(grid):
        part = dataclasses.replace(context, scratch=context.scratch / f"cell-{number}")
        if (part.scratch / "done.json").is_file():
            continue
        part.scratch.mkdir(exist_ok=True)
        model = load_classifier(job.teacher.paths[0], labels, new_head=True, seed=job.settings.run.seed)
        hyper = {**own, "batch_size": batch_size, "learning_rate": rate}
        facts = fine_tune(
            part,
            job,
            model,
            encoder,
            train,
            dev,
            stage="teacher",
            epochs=epochs,
            budget=budget,
            hyper=hyper,
            portion=1.0 / len(grid),
        )
        encodings = encoder.encode(dev.texts, dev.pairs)
        score = dev_accuracy(model, encodings, dev.labels)()
        if len(grid) > 1:
            context.report.note(f"batch {batch_size}, rate {rate:g}, {epochs} epochs: {score:.4f} on dev")
        if not best.is_dir() or score > read_json(best / "facts.json")["score"]:
            with atomic_folder(best, {"cell": number}) as work:
                save_model(model, work / "model", job.teacher.paths[0])
                write_json(work / "facts.json", {"score": score, "facts": facts})
        # The checkpoints go, the mark stays: a resumed grid goes on with the next cell.
        shutil.rmtree(part.scratch)
        write_json(part.scratch / "done.json", {"score": score})
    return load_classifier(best / "model", labels), read_json(best / "facts.json")["facts"]


def _calibration(model: PreTrainedModel, encodings: Encodings, seed: int) -> list[dict[str, Tensor]]:
    """A few thousand texts in batches of one length each, about `CALIBRATION_TOKENS` tokens."""
    order = np.random.default_rng(seed).permutation(len(encodings))
    chosen = order[: max(1, int(np.searchsorted(np.cumsum(encodings.lengths[order]), CALIBRATION_TOKENS)))]
    batches = []
    for length in np.unique(encodings.lengths[chosen]):
        rows = chosen[encodings.lengths[chosen] == length]
        batches += [forward_inputs(model, encodings.batch(part)) for part in np.array_split(rows, -(-len(rows) // 256))]
    return batches


def _source_layers(job: Job, shape: Shape, teacher: Shape) -> tuple[int, ...]:
    """Teacher layers (1-based) that a model is cut from: those that teach it, so that the losses go on from there."""
    if job.layers is not None and shape == job.shape:
        return job.layers
    return tuple(layer for _, layer in layer_pairs(shape.layers, teacher.layers, job.settings.distill.mapping))


def _shrunk(
    context: Context, job: Job, teacher: PreTrainedModel, shape: Shape, encodings: Encodings
) -> tuple[PreTrainedModel, Tensor]:
    source = Shape.of(teacher.config)
    made = shrink(
        teacher,
        shape,
        _source_layers(job, shape, source),
        _calibration(teacher, encodings, job.settings.run.seed),
        report=context.report,
    )
    context.report.note(f"{shape} from {source}: its basis carries {100 * made.variance:.1f} % of the hidden energy")
    return made.model, made.basis


def _save_start(context: Context, model: PreTrainedModel, basis: Tensor | None, tokenizer_from: Path) -> None:
    save_model(model, context.folder / "model", tokenizer_from)
    if basis is not None:
        save_file({"basis": basis.contiguous()}, context.folder / "basis.safetensors")


def _teacher_model(context: Context, folder: Path) -> PreTrainedModel:
    return load_classifier(folder / "model", _labels(context))


def start_stage(context: Context, job: Job, above: str) -> None:
    """The student before any step: shrunk from the model above it, from its layers, at random, or another model."""
    folder, labels, seed = context.done[above], _labels(context), job.settings.run.seed
    if job.way == "model":
        assert job.start is not None
        source = job.start.paths[0]
        fresh = not has_classifier(source)
        _save_start(context, load_classifier(source, labels, new_head=fresh, seed=seed), None, source)
        return
    teacher = _teacher_model(context, folder)
    basis = None
    if job.way == "random":
        model = random_student(teacher.config, job.shape, seed=seed)
    elif job.way == "layers":
        model = layers_student(teacher, _source_layers(job, job.shape, Shape.of(teacher.config)))
    else:
        encoder = task_encoder(job, folder / "model", _length(context))
        train = _split(context, "train")
        held(teacher, job.settings.distill.precision)
        model, basis = _shrunk(context, job, teacher, job.shape, encoder.encode(train.texts, train.pairs))
    _save_start(context, model, basis, folder / "model")


def _training_texts(context: Context, *, augmented: bool) -> Examples:
    """Training texts, with augmented and unlabelled ones where the phase reads them."""
    train = Examples.read(context.done["augment"] / "train.arrow") if augmented else _split(context, "train")
    extra = read_split(context.done["data"], "unlabelled")
    if extra is None:
        return train
    pairs = None if train.pairs is None else [*train.pairs, *(extra.pairs or [])]
    unlabelled = np.full(len(extra), UNLABELLED, dtype=np.int64)
    ids = np.concatenate([train.example_id, extra.example_id])
    return Examples(ids, [*train.texts, *extra.texts], pairs, np.concatenate([train.labels, unlabelled]))


def teacher_logits_stage(context: Context, job: Job) -> None:
    """The teacher's logits for every training text, once: where an assistant stands between, its own are not enough."""
    encoder = task_encoder(job, context.done["teacher"] / "model", _length(context))
    model = held(_teacher_model(context, context.done["teacher"]), job.settings.distill.precision)
    texts = _training_texts(context, augmented=True)
    logits = run_logits(model, encoder.encode(texts.texts, texts.pairs), report=context.report)
    save_arrays({"logits": logits}, context.folder / "logits.safetensors")


def _planned_steps(phase: Phase, windows: int) -> int:
    per_epoch = -(-windows // phase.batch_size)
    if phase.epochs is not None:
        return phase.epochs * per_epoch
    return max(1, phase.examples // phase.batch_size)


def _run_phase(
    context: Context,
    job: Job,
    budget: Budget,
    phase: Phase,
    *,
    stage: str,
    student: PreTrainedModel,
    teacher: PreTrainedModel,
    projections: nn.ModuleDict,
    encoder: TextEncoder,
    logits: np.ndarray | None,
    portion: float,
) -> dict[str, Any]:
    settings = job.settings
    layers = [Shape.of(model.config).layers for model in (student, teacher)]
    terms = build_terms(
        phase,
        student=layers[0],
        teacher=layers[1],
        mapping=settings.distill.mapping,
        temperature=settings.distill.temperature,
        layers=job.layers if stage == "student" else None,
    )
    encodings, labels, ids = encode_examples(encoder, _training_texts(context, augmented=phase.augmented))
    dev = _split(context, "dev")
    program = Distilling(
        student,
        teacher,
        terms,
        projections,
        Batches(encodings, labels, ids, phase.batch_size, settings.run.seed),
        logits if phase.augmented else None,
    )
    try:
        result, schedule = run_training(
            context,
            job,
            program,
            stage=stage,
            phase=phase.name,
            planned=_planned_steps(phase, len(encodings)),
            schedule=lambda steps: Schedule(
                steps,
                phase.rate(student.config.hidden_size),
                warmup=phase.warmup,
                decay=phase.decay,
                average=phase.average,
            ),
            budget=budget,
            evaluate=dev_accuracy(student, encoder.encode(dev.texts, dev.pairs), dev.labels),
            weight_decay=job.recipe.weight_decay,
            clip=job.recipe.clip,
            followers=HARD_COST if stage == "student" and settings.evaluate.hard_labels else 0.0,
            stretch=LONGEST,
            portion=portion,
        )
    finally:
        program.close()
    named = [(term.name, term.weight, term.temperature) for term in terms]
    return phase_facts(result, schedule, len(encodings), phase.batch_size, named)


def distilling_projections(
    job: Job, phases: Sequence[Phase], student: PreTrainedModel, teacher: PreTrainedModel, start: Path
) -> nn.ModuleDict:
    """Projections for all phases: at the shrunk start's basis, from general distillation, or at random."""
    named = [LossTerm(term.name, term.fn) for phase in phases for term in phase.terms if term.weight]
    with torch.random.fork_rng():
        torch.manual_seed(job.settings.run.seed)
        widths = (student.config.hidden_size, teacher.config.hidden_size)
        made = projections_for(named, *widths, shared=job.recipe.shared_projection)
    if (start / "projections.safetensors").is_file():
        # General distillation may have trained a projection that no term here asks for.
        learned, wanted = load_file(start / "projections.safetensors"), made.state_dict()
        made.load_state_dict(wanted | {name: tensor for name, tensor in learned.items() if name in wanted})
    elif (start / "basis.safetensors").is_file():
        basis = load_file(start / "basis.safetensors")["basis"]
        for linear in made.values():
            assert isinstance(linear, nn.Linear)
            linear.weight.data.copy_(basis)
            if linear.bias is not None:
                linear.bias.data.zero_()
    return made


def set_dropout(model: PreTrainedModel, *, on: bool) -> None:
    """Leave the model's dropout as its config says, or take it off."""
    if not on:
        for module in model.modules():
            if isinstance(module, nn.Dropout):
                module.p = 0.0


def student_stage(
    context: Context, job: Job, budget: Budget, *, stage: str, start: str, above: str, phases: Sequence[Phase]
) -> None:
    """Distil: run the phases in order from the start, under the model above."""
    precision = job.settings.distill.precision
    student = _teacher_model(context, context.done[start])
    teacher = held(_teacher_model(context, context.done[above]), precision)
    teacher.requires_grad_(requires_grad=False)
    encoder = task_encoder(job, context.done[start] / "model", _length(context))
    projections = distilling_projections(job, phases, student, teacher, context.done[start])
    logits = None
    if "teacher-logits" in context.done:
        logits = load_arrays(context.done["teacher-logits"] / "logits.safetensors")["logits"]
    facts = {}
    for phase in phases:
        set_dropout(student, on=phase.dropout)
        facts[phase.name] = _run_phase(
            context,
            job,
            budget,
            phase,
            stage=f"{stage}",
            student=student,
            teacher=teacher,
            projections=projections,
            encoder=encoder,
            logits=logits,
            portion=(phase.epochs or 1) / sum(each.epochs or 1 for each in phases),
        )
    save_model(student, context.folder / "model", context.done[start] / "model")
    if len(projections):
        save_file(
            {n: t.float().contiguous() for n, t in projections.state_dict().items()},
            context.folder / "projections.safetensors",
        )
    write_json(context.folder / "training.json", facts)


def assistant_stage(context: Context, job: Job, budget: Budget, *, stage: str, shape: Shape, above: str) -> None:
    """A model between teacher and student: shrunk from the one above, and distilled like a student."""
    teacher = held(_teacher_model(context, context.done[above]), job.settings.distill.precision)
    encoder = task_encoder(job, context.done[above] / "model", _length(context))
    train = _split(context, "train")
    start = context.scratch / "start"
    if read_manifest(start) is None:
        model, basis = _shrunk(context, job, teacher, shape, encoder.encode(train.texts, train.pairs))
        with atomic_folder(start, {"stage": stage}) as work:
            _save_start(dataclasses.replace(context, folder=work), model, basis, context.done[above] / "model")
    del teacher
    inner = dataclasses.replace(context, done={**context.done, "start": start})
    student_stage(inner, job, budget, stage=stage, start="start", above=above, phases=job.recipe.phases)


def hard_labels_stage(context: Context, job: Job, budget: Budget, *, start: str, student: str) -> None:
    """The same start, data and steps as the student's, with labels alone."""
    taught = read_json(context.done[student] / "training.json")
    last = list(taught.values())[-1]
    phase = job.recipe.phases[-1]
    model = _teacher_model(context, context.done[start])
    set_dropout(model, on=phase.dropout)
    encoder = task_encoder(job, context.done[start] / "model", _length(context))
    examples, dev = Examples.read(context.done["augment"] / "train.arrow"), _split(context, "dev")
    steps = sum(facts["steps"] for facts in taught.values())
    hyper = {
        "batch_size": last["batch_size"],
        "learning_rate": phase.rate(model.config.hidden_size),
        "warmup": phase.warmup,
        "weight_decay": job.recipe.weight_decay,
        "average": phase.average,
    }
    unlimited = Budget(None, 0.0, budget.used, {})
    facts = fine_tune(
        context, job, model, encoder, examples, dev, stage="hard-labels", steps=steps, budget=unlimited, hyper=hyper
    )
    save_model(model, context.folder / "model", context.done[start] / "model")
    write_json(context.folder / "training.json", {"hard-labels": facts})


def small_baseline_stage(context: Context, job: Job, budget: Budget) -> None:
    """A small pre-trained model, fine-tuned as the teacher was (Turc et al., arXiv 1908.08962)."""
    assert job.baseline is not None
    folder, settings = job.baseline.paths[0], job.settings.teacher
    model = load_classifier(folder, _labels(context), new_head=True, seed=job.settings.run.seed)
    encoder = task_encoder(job, folder, _length(context))
    hyper = {
        "batch_size": settings.batch_size,
        "learning_rate": settings.learning_rate,
        "warmup": settings.warmup,
        "weight_decay": settings.weight_decay,
    }
    train, dev = _split(context, "train"), _split(context, "dev")
    facts = fine_tune(
        context,
        job,
        model,
        encoder,
        train,
        dev,
        stage="small-baseline",
        epochs=settings.epochs,
        budget=budget,
        hyper=hyper,
    )
    save_model(model, context.folder / "model", folder)
    write_json(context.folder / "training.json", {"fine-tuning": facts})


def classification(context: Context) -> Classification:
    """The task of a run, from its data stage."""
    facts = task_facts(context.done["data"])
    return Classification(tuple(facts["labels"]), pair=_split(context, "dev").pairs is not None)
