"""The teacher's side of a phase: one model or several, each on its own encodings of the texts."""

from collections.abc import Sequence

import numpy as np
from safetensors.numpy import load_file
from transformers import PreTrainedModel

from potstill.data.alignment import Alignment
from potstill.data.encoding import Encodings
from potstill.data.examples import Examples
from potstill.pipeline.job import Job, teacher_name
from potstill.pipeline.results import length_of
from potstill.pipeline.run import Context
from potstill.pipeline.teach import task_encoder
from potstill.recipes.guidance import Guide, LiveGuide
from potstill.recipes.joined import EnsembleGuide, JoinedGuide
from potstill.training import LossTerm

__all__ = ["guide_of", "texts_name"]


def texts_name(augmented: bool) -> str:
    """What the texts of a phase are called among a teacher's answers."""
    return "augmented" if augmented else "plain"


def guide_of(
    context: Context,
    job: Job,
    teacher: PreTrainedModel,
    terms: Sequence[LossTerm],
    encodings: Encodings,
    texts: Examples,
    *,
    above: str | None,
    logits: np.ndarray | None,
    teacher_ids: np.ndarray | None,
    augmented: bool,
) -> Guide:
    """Who teaches in a phase.

    Args:
        context: Of the stage.
        job: The run's.
        teacher: The model above, eval mode, no gradients.
        terms: What is learned.
        encodings: The student's, of `texts`; with spans where `above` is given or there are several teachers.
        texts: Of the phase.
        above: The stage of `teacher`, where it reads the texts in its own way; None where it reads as the student does.
        logits: The first teacher's, learned from in place of those of `teacher`, in the windows of `teacher`.
        teacher_ids: As for `LiveGuide`.
        augmented: Which of the further teachers' answers the texts are.
    """
    if above is None:
        first: Guide = LiveGuide(teacher, terms, encodings, logits=logits, teacher_ids=teacher_ids)
    else:
        alignment = _alignment(context, job, above, encodings, texts)
        missing, total = alignment.unread(context.report)
        if missing and any(term.layers for term in terms):
            context.report.note(
                f"{missing:,} of the student's {total:,} tokens are not read by the teacher: they take no part in "
                "losses on hidden states"
            )
        first = JoinedGuide(LiveGuide(teacher, terms, alignment.teacher, logits=logits), terms, alignment)
    if not job.more or not any(term.reads == "logits" for term in terms):
        return first
    others = []
    for number in range(2, 2 + len(job.more)):
        stage = teacher_name(number)
        answers = load_file(context.done[f"{stage}-logits"] / "logits.safetensors")[texts_name(augmented)]
        others.append(_alignment(context, job, stage, encodings, texts).answers(answers))
    return EnsembleGuide(first, others, job.teacher_shares, terms)


def _alignment(context: Context, job: Job, stage: str, encodings: Encodings, texts: Examples) -> Alignment:
    """The student's encodings, joined to those of the model that a stage left."""
    encoder = task_encoder(job, context.done[stage] / "model", length_of(context, stage))
    return Alignment(encodings, encoder.encode(texts.texts, texts.pairs, with_spans=True))
