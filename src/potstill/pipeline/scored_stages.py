"""The stages of a run whose teacher is a file of scores: its data, and the model that the student is made from."""

import numpy as np

from potstill.data.encoding import TextEncoder
from potstill.data.schema import LabelRule, SplitRule
from potstill.metrics import majority_share
from potstill.models.loading import longest_input
from potstill.pipeline.findings import Findings
from potstill.pipeline.job import Job
from potstill.pipeline.prepare import write_splits
from potstill.pipeline.results import split_of
from potstill.pipeline.run import Context
from potstill.pipeline.scored import aligned, read_scored, scored_splits
from potstill.pipeline.teach import choose_length, save_model, with_head
from potstill.storage import write_arrays, write_json

__all__ = ["base_stage", "scored_data"]


def scored_data(context: Context, job: Job) -> None:
    """The splits, and scores.safetensors: the scores of each, float32 (n, C), NaN where there is none."""
    assert job.scores is not None
    settings = job.settings.data
    made = read_scored(job.settings, job.data, job.unlabelled, job.scores.source, job.columns, context.report)
    rule = LabelRule(settings.label_threshold, settings.label_margin or 0.0)
    cuts = SplitRule(settings.dev_share, settings.test_share, settings.bad_rows, settings.rows)
    splits = scored_splits(made, rule, cuts, context.report)
    parts = {name: getattr(splits, name) for name in ("train", "dev", "test", "unlabelled")}
    arrays = {name: aligned(made, part.example_id) for name, part in parts.items() if part is not None}
    write_splits(context, job, splits, scores=made.findings.as_dict())
    write_arrays(context.folder / "scores.safetensors", arrays)
    for line in made.findings.lines(job.scores.source.name):
        context.report.note(line)
    bare = int(np.count_nonzero(np.isnan(arrays["train"][:, 0])))
    if bare:
        context.report.note(f"{bare:,} rows of train have no score: their gold labels stand as the teacher's answers")
    _compare(context, made.findings, arrays["dev"], splits.dev.labels)


def _compare(context: Context, found: Findings, scores: np.ndarray, labels: np.ndarray) -> None:
    """How often the scores are right where dev tells; warned of where that is no better than the commonest label."""
    own = ~np.isnan(scores[:, 0])
    if not found.gold.get("dev", found.gold["train"]) or not own.any():
        return
    share = float((scores[own].argmax(axis=1) == labels[own]).mean())
    common = majority_share(labels)
    said = f"the scores: {100 * share:.1f} % right on {int(own.sum()):,} rows of dev, majority {100 * common:.1f} %"
    if share > common:
        context.report.note(said)
    else:
        context.report.warn(f"{said}: are they joined to the right rows, and named after the right labels?")


def base_stage(context: Context, job: Job) -> None:
    """The model that the student is made from, with a head for the labels, fresh where it has none; and the length."""
    folder, limit = job.teacher.paths[0], longest_input(job.config)
    if (job.settings.data.max_length or 0) > limit:
        context.report.warn(
            f"data.max_length = {job.settings.data.max_length}: {job.teacher.name} reads {limit} tokens"
        )
    encoder = TextEncoder.from_folder(folder, max_length=limit)
    length = choose_length(job, encoder, split_of(context, "train"), limit)
    write_json(context.folder / "task.json", {"max_length": length})
    save_model(with_head(context, job, folder), context.folder / "model", folder)
