"""The stages that distil: assistants, the student's start, its phases, and the teacher's logits for them.

Each function is a stage's work: it reads what earlier stages left and writes `model/` and `training.json`.
"""

import contextlib
import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.numpy import load_file as load_arrays
from safetensors.numpy import save_file as save_arrays
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import PreTrainedModel

from potstill.data.batching import Batches
from potstill.data.encoding import Encodings, TextEncoder
from potstill.data.examples import Examples, is_labelled, without_labels
from potstill.data.new_texts import is_new
from potstill.errors import ModelError
from potstill.models.checkpointing import set_checkpointing
from potstill.models.dropout import set_dropout
from potstill.models.forward import forward_inputs, run_logits
from potstill.models.loading import longest_input
from potstill.models.precision import held
from potstill.models.shrink import shrink
from potstill.models.student import Shape, layers_student, random_student
from potstill.pipeline.assistants import TEACHER_LOGITS, assistant_phases, kept_layers
from potstill.pipeline.budget import LONGEST, Budget
from potstill.pipeline.caching import heard
from potstill.pipeline.job import Job
from potstill.pipeline.joining import aligned, joined_guide, texts_name
from potstill.pipeline.results import length_of, model_of, read_split, split_of, task_of, training_scores
from potstill.pipeline.run import Context
from potstill.pipeline.teach import (
    choose_length,
    dev_score,
    encode_examples,
    save_model,
    task_encoder,
    with_head,
)
from potstill.pipeline.training import phase_facts, run_training
from potstill.pipeline.vocabulary import pruned, teacher_ids
from potstill.recipes import Phase, build_terms, in_units, layer_pairs, with_loss
from potstill.recipes.distilling import Distilling, projections_for
from potstill.recipes.fitting import fit_projections
from potstill.recipes.guidance import Guide, LogitsGuide
from potstill.storage import atomic_folder, read_manifest, write_json
from potstill.training import LossTerm, Schedule

__all__ = [
    "assistant_stage",
    "distilling_projections",
    "other_logits_stage",
    "start_stage",
    "student_stage",
    "teacher_logits_stage",
]

CALIBRATION_TOKENS = 10_000
HARD_COST = 0.6
"""Time of a step of the hard-label baseline as a share of a distillation step that runs a teacher or reads states."""


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


def _shrunk(
    context: Context, job: Job, teacher: PreTrainedModel, shape: Shape, layers: Sequence[int], encodings: Encodings
) -> tuple[PreTrainedModel, Tensor]:
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


def _save_start(context: Context, model: PreTrainedModel, basis: Tensor | None, tokenizer_from: Path) -> None:
    save_model(model, context.folder / "model", tokenizer_from)
    if basis is not None:
        save_file({"basis": basis.contiguous()}, context.folder / "basis.safetensors")


def start_stage(context: Context, job: Job, above: str) -> None:
    """The student before any step: shrunk from the model above it, from its layers, at random, or another model."""
    model, basis, tokenizer = _started(context, job, context.done[above])
    model, tokenizer = pruned(context, model, tokenizer)
    _save_start(context, model, basis, tokenizer)
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
            model, _ = _shrunk(context, job, model, job.shape, layers, _calibration_texts(context, job, source))
        return model, None, source
    teacher, own = model_of(context, folder), folder / "model"
    if job.way == "random":
        return random_student(teacher.config, job.shape, seed=seed), None, own
    layers = _source_layers(job, Shape.of(teacher.config))
    if job.way == "layers":
        return layers_student(teacher, layers), None, own
    held(teacher, job.settings.distill.precision)
    model, basis = _shrunk(context, job, teacher, job.shape, layers, _calibration_texts(context, job, own))
    return model, basis, own


def _calibration_texts(context: Context, job: Job, folder: Path) -> Encodings:
    """The training texts, as the model in `folder` reads them."""
    train = split_of(context, "train")
    return task_encoder(job, folder, length_of(context)).encode(train.texts, train.pairs)


def _training_texts(context: Context, *, augmented: bool) -> Examples:
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
    model = held(model_of(context, context.done["teacher"]), job.settings.distill.precision)
    texts = _training_texts(context, augmented=True)
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
    save_arrays({"logits": logits}, context.folder / "logits.safetensors")


def other_logits_stage(context: Context, job: Job, stage: str) -> None:
    """A further teacher's logits for the texts of every phase that learns answers: what it is run for, once."""
    encoder = task_encoder(job, context.done[stage] / "model", length_of(context, stage))
    model = held(model_of(context, context.done[stage]), job.settings.distill.precision)
    arrays = {}
    for augmented in sorted({phase.augmented for phase in job.recipe.phases}):
        texts = _training_texts(context, augmented=augmented)
        arrays[texts_name(augmented)] = run_logits(
            model, encoder.encode(texts.texts, texts.pairs), report=context.report
        )
    save_arrays(arrays, context.folder / "logits.safetensors")


def _planned_steps(phase: Phase, batches: Batches, accumulate: int) -> int:
    windows = len(batches.encodings)
    per_epoch = -(-windows // phase.batch_size)
    if batches.max_tokens is not None:  # batches then hold fewer texts, and a step does
        per_epoch = -(-len(batches.of_epoch(0)) // accumulate)
    if phase.epochs is not None:
        return phase.epochs * per_epoch
    examples = phase.batch_size if batches.max_tokens is None else windows / per_epoch
    return max(1, int(phase.examples / examples))


def _run_phase(
    context: Context,
    job: Job,
    budget: Budget,
    phase: Phase,
    *,
    stage: str,
    student: PreTrainedModel,
    teacher: PreTrainedModel | None,
    above: str,
    projections: nn.ModuleDict,
    encoder: TextEncoder,
    logits: np.ndarray | None,
    portion: float,
    layers: Sequence[int] | None,
    fits: bool,
) -> dict[str, Any]:
    settings, task = job.settings, task_of(context)
    configs = [model.config for model in (student, teacher or student)]
    counts = [Shape.of(config).layers for config in configs]
    terms = build_terms(
        phase,
        student=counts[0],
        teacher=counts[1],
        mapping=settings.distill.mapping,
        temperature=job.temperature,
        layers=layers,
        equal_heads=configs[0].num_attention_heads == configs[1].num_attention_heads,
    )
    terms = in_units(with_loss(terms, task), task.scale(split_of(context, "train").labels)[1])
    texts = _training_texts(context, augmented=phase.augmented)
    if all(term.reads == "labels" for term in terms):
        texts = texts.select(np.flatnonzero(is_labelled(texts.labels)))
    joined = stage == "student" and job.side.joined
    encodings, labels, ids = encode_examples(encoder, texts, with_spans=joined or bool(job.more))
    dev = split_of(context, "dev")
    parts = settings.distill.accumulate
    size = phase.batch_size // parts
    batches = Batches(encodings, labels, ids, size, settings.run.seed, settings.distill.batch_tokens)
    planned = _planned_steps(phase, batches, parts)
    with contextlib.ExitStack() as stack:
        spent, runs_teacher = 0.0, False
        if teacher is None:
            guide: Guide = LogitsGuide(training_scores(context)[encodings.example])
        else:
            alignment = aligned(context, job, above, encodings, texts) if joined else None
            source = stack.enter_context(
                heard(
                    context,
                    job,
                    budget,
                    teacher,
                    terms,
                    encodings if alignment is None else alignment.teacher,
                    stage=stage,
                    phase=phase.name,
                    above=above,
                    epochs=phase.epochs or phase.examples / len(encodings),
                    portion=portion,
                    logits=logits if phase.augmented and any(term.reads == "logits" for term in terms) else None,
                    teacher_ids=teacher_ids(context, student) if alignment is None else None,
                )
            )
            spent, runs_teacher = source.seconds, not source.cached
            guide = joined_guide(
                context,
                job,
                source.guide,
                terms,
                encodings,
                texts,
                alignment=alignment,
                augmented=phase.augmented,
            )
        program = Distilling(student, guide, terms, projections, batches)
        stack.callback(program.close)
        if fits:
            fit_projections(program)
        trained = run_training(
            context,
            job.conditions,
            program,
            accumulate=parts,
            stage=stage,
            phase=phase.name,
            planned=planned,
            schedule=lambda steps: Schedule(
                steps,
                phase.rate(student.config.hidden_size),
                warmup=phase.warmup,
                decay=phase.decay,
                accumulate=parts,
                average=phase.average,
            ),
            budget=budget,
            evaluate=dev_score(task, student, encoder.encode(dev.texts, dev.pairs), dev.labels),
            weight_decay=job.recipe.weight_decay,
            clip=job.recipe.clip,
            followers=0.0
            if stage != "student" or not settings.evaluate.hard_labels or not job.labelled
            else HARD_COST
            if any(term.layers for term in terms) or runs_teacher
            else 1.0,
            stretch=LONGEST,
            portion=portion,
            spent=spent,
        )
    named = [(term.name, term.weight, term.temperature) for term in terms]
    return phase_facts(trained, len(encodings), phase.batch_size, named)


def distilling_projections(
    job: Job, phases: Sequence[Phase], student: PreTrainedModel, teacher: PreTrainedModel, start: Path
) -> nn.ModuleDict:
    """Projections for all phases: at the shrunk start's basis, from general distillation, or at random."""
    named = [LossTerm(term.name, term.fn, reads=term.reads) for phase in phases for term in phase.terms if term.weight]
    named = named if job.recipe.projection != "none" else []
    with torch.random.fork_rng():
        torch.manual_seed(job.settings.run.seed)
        widths = (student.config.hidden_size, teacher.config.hidden_size)
        made = projections_for(named, *widths, shared=job.recipe.projection == "shared")
    # What was cut or learned towards a model of another width is of no use here (above an assistant, general
    # distillation has the teacher); and general distillation may have trained a projection that no term here asks for.
    if (start / "basis.safetensors").is_file():
        basis = load_file(start / "basis.safetensors")["basis"]
        for linear in made.values():
            assert isinstance(linear, nn.Linear)
            if linear.weight.shape == basis.shape:
                linear.weight.data.copy_(basis)
                if linear.bias is not None:
                    linear.bias.data.zero_()
    if (start / "projections.safetensors").is_file():
        learned, wanted = load_file(start / "projections.safetensors"), made.state_dict()
        fits = {n: tensor for n, tensor in learned.items() if n in wanted and tensor.shape == wanted[n].shape}
        made.load_state_dict(wanted | fits)
    return made


def student_stage(
    context: Context,
    job: Job,
    budget: Budget,
    *,
    stage: str,
    start: str,
    above: str,
    phases: Sequence[Phase],
    layers: Sequence[int] | None,
) -> None:
    """Distil: run the phases in order from the start, under the model above, or the scores that take its place.

    `layers` (1-based) of the model above teach the student's; None means those of the mapping.
    """
    student = model_of(context, context.done[start])
    teacher, projections = None, nn.ModuleDict()
    if job.scores is None:
        teacher = held(model_of(context, context.done[above]), job.settings.distill.precision)
        teacher.requires_grad_(requires_grad=False)
        projections = distilling_projections(job, phases, student, teacher, context.done[start])
    encoder = task_encoder(job, context.done[start] / "model", length_of(context, start))
    logits = None
    if TEACHER_LOGITS in context.done:
        logits = load_arrays(context.done[TEACHER_LOGITS] / "logits.safetensors")["logits"]
    facts: dict[str, Any] = {}
    for phase in phases:
        set_dropout(student, on=phase.dropout)
        set_checkpointing(student, on=job.settings.distill.gradient_checkpointing)
        facts[phase.name] = _run_phase(
            context,
            job,
            budget,
            phase,
            stage=f"{stage}",
            student=student,
            teacher=teacher,
            above=above,
            projections=projections,
            encoder=encoder,
            logits=logits,
            fits=not facts and stage == "student" and job.way == "model" and start == "start",
            portion=(phase.epochs or 1) / sum(each.epochs or 1 for each in phases),
            layers=layers,
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
    teacher = held(model_of(context, context.done[above]), job.settings.distill.precision)
    encoder = task_encoder(job, context.done[above] / "model", length_of(context))
    train = split_of(context, "train")
    start, layers = context.scratch / "start", kept_layers(shape, Shape.of(teacher.config))
    if read_manifest(start) is None:
        model, basis = _shrunk(context, job, teacher, shape, layers, encoder.encode(train.texts, train.pairs))
        with atomic_folder(start, {"stage": stage}) as work:
            _save_start(dataclasses.replace(context, folder=work), model, basis, context.done[above] / "model")
    del teacher
    phases = assistant_phases(job.recipe)
    inner = dataclasses.replace(context, done={**context.done, "start": start})
    student_stage(inner, job, budget, stage=stage, start="start", above=above, phases=phases, layers=layers)
