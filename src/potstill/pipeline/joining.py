"""The teacher's side of a phase where the student reads otherwise than its teacher, or has several teachers."""

from collections.abc import Sequence

from safetensors.numpy import load_file

from potstill.data.alignment import Alignment
from potstill.data.encoding import Encodings
from potstill.data.examples import Examples
from potstill.pipeline.job import Job, teacher_name
from potstill.pipeline.results import length_of
from potstill.pipeline.run import Context
from potstill.pipeline.teach import task_encoder
from potstill.recipes.guidance import Guide
from potstill.recipes.joined import EnsembleGuide, JoinedGuide
from potstill.training import LossTerm

__all__ = ["aligned", "joined_guide", "texts_name"]


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
    """
    if alignment is not None:
        missing, total = alignment.unread(context.report)
        if missing and any(term.layers for term in terms):
            context.report.note(
                f"{missing:,} of the student's {total:,} tokens are not read by the teacher: they take no part in "
                "losses on hidden states"
            )
        first = JoinedGuide(first, terms, alignment)
    if not job.more or not any(term.reads == "logits" for term in terms):
        return first
    others = []
    for number in range(2, 2 + len(job.more)):
        stage = teacher_name(number)
        answers = load_file(context.done[f"{stage}-logits"] / "logits.safetensors")[texts_name(augmented)]
        others.append(aligned(context, job, stage, encodings, texts).answers(answers))
    return EnsembleGuide(first, others, job.teacher_shares, terms)
