"""General distillation: plain text, the teacher *before* fine-tuning, states only (TinyBERT's first pass)."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
from safetensors.torch import save_file
from tokenizers import Tokenizer
from transformers import PreTrainedModel

from potstill.data.batching import Batches
from potstill.data.encoding import Encodings, TextEncoder
from potstill.data.masking import MaskRule, MaskVocabulary
from potstill.data.packing import pack_texts
from potstill.data.schema import evaluation_keys, texts_without
from potstill.errors import DataError
from potstill.models.dropout import set_dropout
from potstill.models.loading import longest_input, read_config
from potstill.models.masked_lm import load_masked_lm, masked_lm_over
from potstill.models.packed import read_only
from potstill.models.student import Shape
from potstill.models.teacher import load_classifier
from potstill.pipeline.budget import Budget
from potstill.pipeline.distil_stages import distilling_projections
from potstill.pipeline.inputs import plain_texts
from potstill.pipeline.job import Job
from potstill.pipeline.results import model_of, read_split, task_of
from potstill.pipeline.run import Context
from potstill.pipeline.teach import save_model
from potstill.pipeline.training import phase_facts, run_training
from potstill.pipeline.vocabulary import teacher_ids
from potstill.recipes import Phase, build_terms
from potstill.recipes.distilling import Distilling
from potstill.recipes.guidance import LiveGuide
from potstill.recipes.masked import MaskedDistilling
from potstill.storage import write_json
from potstill.training import LossTerm, Schedule

__all__ = ["general_stage"]


def general_stage(context: Context, job: Job, budget: Budget) -> None:
    """Distil the student from the un-fine-tuned teacher on plain text, packed into windows of one length.

    Texts that stand in dev or test are left out.
    """
    phase, folder = _phase(job), context.done["start"] / "model"
    student = model_of(context, context.done["start"])
    set_dropout(student, on=phase.dropout)
    encodings = _packed(context, job, folder)
    ids = np.arange(len(encodings), dtype=np.int64)
    batches = Batches(encodings, np.full(len(encodings), -1), ids, phase.batch_size, job.settings.run.seed)
    make = _masked_program if phase.objective == "masked" else _states_program
    program = make(context, job, phase, student, batches)
    try:
        trained = run_training(
            context,
            job.conditions,
            program,
            stage="general",
            phase="general",
            planned=(phase.epochs or 1) * -(-len(encodings) // phase.batch_size),
            schedule=lambda steps: Schedule(steps, phase.learning_rate, warmup=phase.warmup, decay=phase.decay),
            budget=budget,
            weight_decay=job.recipe.weight_decay,
            clip=job.recipe.clip,
        )
    finally:
        program.close()
    save_model(student, context.folder / "model", folder)
    tensors = {name: tensor.float().contiguous() for name, tensor in program.projections.state_dict().items()}
    if tensors:
        save_file(tensors, context.folder / "projections.safetensors")
    if (context.done["start"] / "basis.safetensors").is_file():  # where an assistant teaches, the basis leads to it
        shutil.copyfile(context.done["start"] / "basis.safetensors", context.folder / "basis.safetensors")
    named = [(term.name, term.weight, term.temperature) for term in program.declared]
    facts = phase_facts(trained, len(encodings), phase.batch_size, named)
    write_json(context.folder / "training.json", {"general": facts})


def _phase(job: Job) -> Phase:
    """The recipe's general distillation, with what the settings say."""
    settings, own = job.settings.general, job.recipe.general
    assert own is not None
    return replace(
        own,
        epochs=settings.epochs or own.epochs,
        batch_size=settings.batch_size or own.batch_size,
        learning_rate=settings.learning_rate or own.learning_rate,
    )


def _terms(job: Job, phase: Phase, student: PreTrainedModel) -> tuple[LossTerm, ...]:
    return build_terms(
        phase,
        student=Shape.of(student.config).layers,
        teacher=Shape.of(job.config).layers,
        mapping=job.settings.distill.mapping,
        layers=job.layers,
        equal_heads=student.config.num_attention_heads == job.config.num_attention_heads,
    )


def _states_program(context: Context, job: Job, phase: Phase, student: PreTrainedModel, batches: Batches) -> Distilling:
    """States alone are learned: whatever head the teacher has, and for which labels, plays no part."""
    task = task_of(context)
    teacher = load_classifier(job.teacher.paths[0], task.labels, problem_type=task.problem_type, new_head=True)
    teacher = read_only(teacher, job.settings.distill.precision)
    projections = distilling_projections(job, [phase], student, [teacher], context.done["start"])
    terms = _terms(job, phase, student)
    guide = LiveGuide(teacher, terms, batches.encodings, teacher_ids=teacher_ids(context, student))
    return Distilling(student, guide, terms, projections, batches)


def _masked_program(
    context: Context, job: Job, phase: Phase, student: PreTrainedModel, batches: Batches
) -> MaskedDistilling:
    """A masked LM over the student's own encoder; its head is thrown away in the end."""
    terms = _terms(job, phase, student)
    teacher = None
    if any(term.reads != "masked" for term in terms):
        teacher = read_only(load_masked_lm(job.teacher.paths[0]), job.settings.distill.precision)
    vocabulary = MaskVocabulary.of(Tokenizer.from_file(str(context.done["start"] / "model" / "tokenizer.json")))
    return MaskedDistilling(
        masked_lm_over(student, teacher, seed=job.settings.run.seed),
        teacher,
        terms,
        distilling_projections(job, [phase], student, [teacher or student], context.done["start"]),
        batches,
        MaskRule(),
        vocabulary,
        teacher_ids(context, student),
    )


def _packed(context: Context, job: Job, folder: Path) -> Encodings:
    """The texts in windows of `general.max_length` tokens, kept in the stage's scratch."""
    settings, made = job.settings.general, context.scratch / "packed"
    length = min(settings.max_length, longest_input(read_config(folder)))
    kept = evaluation_keys(*(read_split(context.done["data"], name) for name in ("dev", "test")))
    texts = texts_without(plain_texts(job.texts, context.report), kept)
    made.mkdir(exist_ok=True)
    packed = pack_texts(texts, TextEncoder.from_folder(folder, max_length=length), made, max_tokens=settings.max_tokens)
    if len(packed) == 0:
        raise DataError("general.texts hold no text once those of dev and test are out", expected="plain text")
    return packed
