"""The stages that distil: assistants, and the student's phases.

Each function is a stage's work: it reads what earlier stages left and writes `model/` and `training.json`.
"""

import contextlib
import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from safetensors.numpy import load_file as load_arrays
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import PreTrainedModel

from potstill.data.batching import Batches
from potstill.data.encoding import TextEncoder
from potstill.data.examples import is_labelled
from potstill.models.checkpointing import set_checkpointing
from potstill.models.dropout import set_dropout
from potstill.models.packed import read_only
from potstill.models.precision import held
from potstill.models.student import Shape
from potstill.pipeline.answers import training_texts
from potstill.pipeline.assistants import TEACHER_LOGITS, assistant_phases, kept_layers
from potstill.pipeline.budget import LONGEST, Budget
from potstill.pipeline.caching import heard
from potstill.pipeline.job import Job, teacher_name
from potstill.pipeline.joining import aligned, further_guides, joined_guide
from potstill.pipeline.results import length_of, model_of, split_of, task_of, training_scores
from potstill.pipeline.run import Context
from potstill.pipeline.starts import save_start, shrunk_from
from potstill.pipeline.teach import dev_score, encode_examples, save_model, task_encoder
from potstill.pipeline.training import phase_facts, run_training
from potstill.pipeline.vocabulary import teacher_ids
from potstill.recipes import Phase, build_terms, in_units, of_several_teachers, with_loss
from potstill.recipes.distilling import Distilling, projections_for
from potstill.recipes.fitting import fit_projections
from potstill.recipes.guidance import Guide, LogitsGuide
from potstill.storage import atomic_folder, read_manifest, write_json
from potstill.training import LossTerm, Schedule

__all__ = ["assistant_stage", "distilling_projections", "student_stage"]

HARD_COST = 0.6
"""Time of a step of the hard-label baseline as a share of a distillation step that runs a teacher or reads states."""


def _planned_steps(phase: Phase, batches: Batches, accumulate: int) -> int:
    windows = len(batches.encodings)
    per_epoch = -(-windows // phase.batch_size)
    if batches.max_tokens is not None:  # batches then hold fewer texts, and a step does
        per_epoch = -(-len(batches.of_epoch(0)) // accumulate)
    if phase.epochs is not None:
        return phase.epochs * per_epoch
    examples = phase.batch_size if batches.max_tokens is None else windows / per_epoch
    return max(1, int(phase.examples / examples))


def _terms(
    context: Context,
    job: Job,
    phase: Phase,
    student: PreTrainedModel,
    teachers: Sequence[PreTrainedModel],
    layers: Sequence[int] | None,
) -> tuple[LossTerm, ...]:
    """The phase's terms in the units of the task; those on hidden states once for each teacher whose states are read.

    Args:
        context: Of the stage.
        job: The run.
        phase: Its terms.
        student: The student.
        teachers: The model above it first; without any, scores teach.
        layers: As of `student_stage`; further teachers have those of the mapping.
    """
    built = [
        build_terms(
            phase,
            student=Shape.of(student.config).layers,
            teacher=Shape.of(teacher.config).layers,
            mapping=job.settings.distill.mapping,
            temperature=job.temperature,
            layers=layers if number == 0 else None,
            equal_heads=student.config.num_attention_heads == teacher.config.num_attention_heads,
        )
        for number, teacher in enumerate(teachers or [student])
    ]
    task = task_of(context)
    terms = with_loss(of_several_teachers(built, job.teacher_shares), task)
    return in_units(terms, task.scale(split_of(context, "train").labels)[1])


def _run_phase(
    context: Context,
    job: Job,
    budget: Budget,
    phase: Phase,
    *,
    stage: str,
    student: PreTrainedModel,
    teachers: Sequence[PreTrainedModel],
    above: str,
    projections: nn.ModuleDict,
    encoder: TextEncoder,
    logits: np.ndarray | None,
    portion: float,
    layers: Sequence[int] | None,
    fits: Literal["all", "further", "none"],
) -> dict[str, Any]:
    settings, task = job.settings, task_of(context)
    terms = _terms(context, job, phase, student, teachers, layers)
    texts = training_texts(context, augmented=phase.augmented)
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
        epochs = phase.epochs or phase.examples / len(encodings)
        each = portion / max(1, len(teachers))  # of the time, for one teacher's cache
        if not teachers:
            guide: Guide = LogitsGuide(training_scores(context)[encodings.example])
        else:
            alignment = aligned(context, job, above, encodings, texts) if joined else None
            source = stack.enter_context(
                heard(
                    context,
                    job,
                    budget,
                    teachers[0],
                    [term for term in terms if term.teacher == 1],
                    encodings if alignment is None else alignment.teacher,
                    stage=stage,
                    phase=phase.name,
                    above=above,
                    epochs=epochs,
                    portion=each,
                    logits=logits if phase.augmented and any(term.reads == "logits" for term in terms) else None,
                    teacher_ids=teacher_ids(context, student) if alignment is None else None,
                )
            )
            further = further_guides(
                stack,
                context,
                job,
                budget,
                teachers[1:],
                terms,
                encodings,
                texts,
                stage=stage,
                phase=phase.name,
                epochs=epochs,
                portion=each,
            )
            spent = source.seconds + sum(other.seconds for other in further)
            runs_teacher = not all(other.cached for other in (source, *further))
            guide = joined_guide(
                context,
                job,
                source.guide,
                terms,
                encodings,
                texts,
                alignment=alignment,
                augmented=phase.augmented,
                states=[other.guide for other in further],
            )
        program = Distilling(student, guide, terms, projections, batches)
        stack.callback(program.close)
        if fits == "all" or (fits == "further" and len(teachers) > 1):
            fit_projections(program, first=fits == "all")
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
    job: Job, phases: Sequence[Phase], student: PreTrainedModel, teachers: Sequence[PreTrainedModel], start: Path
) -> nn.ModuleDict:
    """Projections for all phases: at the shrunk start's basis, from general distillation, or at random."""
    named = [LossTerm(term.name, term.fn, reads=term.reads) for phase in phases for term in phase.terms if term.weight]
    named = list(of_several_teachers([named] * len(teachers))) if job.recipe.projection != "none" else []
    with torch.random.fork_rng():
        torch.manual_seed(job.settings.run.seed)
        widths = (int(model.config.hidden_size) for model in (student, *teachers))
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
    teachers, projections = list[PreTrainedModel](), nn.ModuleDict()
    if job.scores is None:
        further = len(job.heard_further) if stage == "student" else 0
        for name in (above, *map(teacher_name, range(2, 2 + further))):
            teachers.append(read_only(model_of(context, context.done[name]), job.settings.distill.precision))
        projections = distilling_projections(job, phases, student, teachers, context.done[start])
    encoder = task_encoder(job, context.done[start] / "model", length_of(context, start))
    logits = None
    if TEACHER_LOGITS in context.done:
        logits = load_arrays(context.done[TEACHER_LOGITS] / "logits.safetensors")["logits"]
    facts: dict[str, Any] = {}
    fits_first = stage == "student" and job.way == "model" and start == "start"
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
            teachers=teachers,
            above=above,
            projections=projections,
            encoder=encoder,
            logits=logits,
            fits="none" if facts else "all" if fits_first else "further",
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
        model, basis = shrunk_from(context, job, teacher, shape, layers, encoder.encode(train.texts, train.pairs))
        with atomic_folder(start, {"stage": stage}) as work:
            save_start(dataclasses.replace(context, folder=work), model, basis, context.done[above] / "model")
    del teacher
    phases = assistant_phases(job.recipe)
    inner = dataclasses.replace(context, done={**context.done, "start": start})
    student_stage(inner, job, budget, stage=stage, start="start", above=above, phases=phases, layers=layers)
