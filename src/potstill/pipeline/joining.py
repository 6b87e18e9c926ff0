"""The teacher's side of a phase where the student reads otherwise than its teacher, or has several teachers."""

import contextlib
from collections.abc import Sequence
from dataclasses import replace

from safetensors.numpy import load_file
from transformers import PreTrainedModel

from potstill.data.alignment import Alignment
from potstill.data.encoding import Encodings
from potstill.data.examples import Examples
from potstill.pipeline.budget import Budget
from potstill.pipeline.caching import Heard, heard
from potstill.pipeline.job import Job, teacher_name
from potstill.pipeline.results import length_of
from potstill.pipeline.run import Context
from potstill.pipeline.teach import task_encoder
from potstill.recipes.guidance import Guide
from potstill.recipes.joined import EnsembleGuide, JoinedGuide
from potstill.training import LossTerm

__all__ = ["aligned", "further_guides", "joined_guide", "texts_name"]


def texts_name(augmented: bool) -> str:
    """What the texts of a phase are called among a teacher's answers."""
    return "augmented" if augmented else "plain"


def aligned(context: Context, job: Job, stage: str, encodings: Encodings, texts: Examples) -> Alignment:
    """The student's encodings of some texts, joined to those of the model that a stage left."""
    encoder = task_encoder(job, context.done[stage] / "model", length_of(context, stage))
    return Alignment(encodings, encoder.encode(texts.texts, texts.pairs, with_spans=True))


def joined_guide(
    context: Context,
    job: Job,
    first: Guide,
    terms: Sequence[LossTerm],
    encodings: Encodings,
    texts: Examples,
    *,
    alignment: Alignment | None,
    augmented: bool,
    states: Sequence[Guide] = (),
) -> Guide:
    """Who teaches in a phase: the first teacher, laid out on the student's tokens, and what the others answer.

    Args:
        context: Of the stage.
        job: The run's.
        first: To the student's windows; to the teacher's own, where `alignment` joins them.
        terms: What is learned.
        encodings: The student's, of `texts`; with spans where there are several teachers.
        texts: Of the phase.
        alignment: Of the student's encodings and the first teacher's; None where they are the same.
        augmented: Which of the further teachers' answers the texts are.
        states: Of `further_guides`.
    """
    if alignment is not None:
        _tell_unread(context, alignment, terms, "the teacher")
        first = JoinedGuide(first, [term for term in terms if term.teacher == 1], alignment)
    answers_read = any(term.reads == "logits" for term in terms)
    if not job.more or not (answers_read or states):
        return first
    others = []
    for number in range(2, 2 + len(job.more)) if answers_read else ():
        stage = teacher_name(number)
        answers = load_file(context.done[f"{stage}-logits"] / "logits.safetensors")[texts_name(augmented)]
        others.append(aligned(context, job, stage, encodings, texts).answers(answers))
    return EnsembleGuide(first, others, job.teacher_shares, terms, states)


def _tell_unread(context: Context, alignment: Alignment, terms: Sequence[LossTerm], name: str) -> None:
    missing, total = alignment.unread(context.report)
    if missing and any(term.layers for term in terms):
        context.report.note(
            f"{missing:,} of the student's {total:,} tokens are not read by {name}: they take no part in losses on "
            "hidden states"
        )


def further_guides(
    stack: contextlib.ExitStack,
    context: Context,
    job: Job,
    budget: Budget,
    models: Sequence[PreTrainedModel],
    terms: Sequence[LossTerm],
    encodings: Encodings,
    texts: Examples,
    *,
    stage: str,
    phase: str,
    epochs: float,
    portion: float,
) -> list[Heard]:
    """The sides of further teachers whose states are learned, laid out on the student's tokens.

    Args:
        stack: Holds their caches.
        context: Of the stage.
        job: The run.
        budget: Of the run.
        models: Teachers 2, 3, ….
        terms: What is learned, of all teachers.
        encodings: The student's, of `texts`, with spans.
        texts: Of the phase.
        stage: Its name.
        phase: Its name.
        epochs: As of `heard`.
        portion: The same.
    """
    found = list[Heard]()
    if all(term.teacher == 1 for term in terms):
        return found
    for number, model in enumerate(models, 2):
        own, name = [term for term in terms if term.teacher == number], teacher_name(number)
        alignment = aligned(context, job, name, encodings, texts)
        _tell_unread(context, alignment, own, name)
        source = stack.enter_context(
            heard(
                context,
                job,
                budget,
                model,
                own,
                alignment.teacher,
                stage=stage,
                phase=f"{phase}-{number}",
                above=name,
                epochs=epochs,
                portion=portion,
            )
        )
        found.append(replace(source, guide=JoinedGuide(source.guide, own, alignment)))
    return found
