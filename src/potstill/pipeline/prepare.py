"""The data stage: sources read, checked and split."""

from typing import Any

from potstill.config import DataSettings
from potstill.data.labels import GoldRule
from potstill.data.schema import Columns, SplitRule, Splits, load_splits
from potstill.data.sources import Source
from potstill.data.tables import Table, read_table
from potstill.pipeline.inputs import unlabelled_table
from potstill.pipeline.run import Context
from potstill.pipeline.task_job import TaskJob
from potstill.storage import write_json
from potstill.tasks import balanced_weights, make_task

__all__ = ["blank_columns", "source_rows", "split_data", "write_splits"]


def split_data(context: Context, job: TaskJob) -> None:
    """Read the sources, check rows and labels, cut missing splits, take out overlaps; write each split."""
    settings = job.settings.data
    columns = [name for name in (job.columns.text, job.columns.pair) if name is not None]

    def table(source: Source) -> Table:
        form, wanted = settings.format or source.format, [*columns, job.columns.label]
        blank = blank_columns(settings, job.columns)
        return read_table(
            source.paths, format=form, columns=wanted, blank=blank, header=settings.header, report=context.report
        )

    tables = {role: table(source) for role, source in job.data.items()}
    splits = load_splits(
        tables["train"],
        columns=job.columns,
        dev=tables.get("dev"),
        test=tables.get("test"),
        unlabelled=unlabelled_table(job.unlabelled, job.columns, header=settings.header, report=context.report)
        if job.unlabelled
        else None,
        labels=_gold_rule(settings),
        rule=SplitRule(settings.dev_share, settings.test_share, settings.bad_rows, settings.rows),
        report=context.report,
    )
    write_splits(context, job, splits)


def write_splits(context: Context, job: TaskJob, splits: Splits, **more: Any) -> None:
    """Each split as an Arrow file, and what was found out in facts.json; `more` goes there too."""
    for name in ("train", "dev", "test", "unlabelled"):
        examples = getattr(splits, name)
        if examples is not None:
            examples.write(context.folder / f"{name}.arrow")
    facts = {**splits.facts, "sources": source_rows(job)}
    weights: tuple[float, ...] = ()
    if job.settings.data.class_weights == "balanced":
        weights = balanced_weights(splits.train.labels, len(splits.labels))
        said = ", ".join(f"{label} {weight:.3g}" for label, weight in zip(splits.labels, weights, strict=True))
        context.report.note(f"class weights: {said}")
    task = {
        "task": job.settings.data.task,
        "labels": list(splits.labels),
        "pair": job.columns.pair is not None,
        "class_weights": list(weights),
    }
    made = {**task, "facts": facts, "notes": splits.notes, **more}
    write_json(context.folder / "facts.json", made)


def _gold_rule(settings: DataSettings) -> GoldRule:
    return make_task(settings.task).gold_rule(
        threshold=settings.label_threshold, margin=settings.label_margin or 0.0, separator=settings.label_separator
    )


def blank_columns(settings: DataSettings, columns: Columns) -> tuple[str, ...]:
    """The columns in which a blank cell is an answer."""
    return (columns.label,) if _gold_rule(settings).reads_blank else ()


def source_rows(job: TaskJob) -> list[dict[str, Any]]:
    """Every data source of a run, as its report names it."""
    return [
        {"role": role, "source": s.name, "sha256": s.sha256, "licence": s.licence, "origin": s.origin}
        for role, s in job.sources
    ]
