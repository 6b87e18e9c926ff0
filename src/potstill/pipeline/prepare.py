"""The data stages: splits, augmentation."""

from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from potstill.data.augment import ByPieces, Proposer, augment
from potstill.data.neighbours import StaticNeighbours
from potstill.data.schema import LabelRule, SplitRule, Splits, evaluation_keys, examples_without, load_splits
from potstill.data.sources import Source
from potstill.data.stopwords import STOP_WORDS, read_stop_words
from potstill.data.tables import Table, read_table
from potstill.models.vocabulary import whole_words, word_rows
from potstill.pipeline.inputs import unlabelled_table
from potstill.pipeline.job import Job
from potstill.pipeline.results import read_split
from potstill.pipeline.run import Context
from potstill.storage import write_json

__all__ = ["augmented", "source_rows", "split_data", "write_splits"]


def split_data(context: Context, job: Job) -> None:
    """Read the sources, check rows and labels, cut missing splits, take out overlaps; write each split."""
    settings = job.settings.data
    columns = [name for name in (job.columns.text, job.columns.pair) if name is not None]

    def table(source: Source) -> Table:
        form, wanted = settings.format or source.format, [*columns, job.columns.label]
        return read_table(source.paths, format=form, columns=wanted, header=settings.header, report=context.report)

    tables = {role: table(source) for role, source in job.data.items()}
    rule = LabelRule(settings.label_threshold, settings.label_margin or 0.0)
    splits = load_splits(
        tables["train"],
        columns=job.columns,
        dev=tables.get("dev"),
        test=tables.get("test"),
        unlabelled=unlabelled_table(job.unlabelled, job.columns, header=settings.header, report=context.report)
        if job.unlabelled
        else None,
        labels=rule,
        rule=SplitRule(settings.dev_share, settings.test_share, settings.bad_rows),
        report=context.report,
    )
    write_splits(context, job, splits)


def write_splits(context: Context, job: Job, splits: Splits, **more: Any) -> None:
    """Each split as an Arrow file, and what was found out in facts.json; `more` goes there too."""
    for name in ("train", "dev", "test", "unlabelled"):
        examples = getattr(splits, name)
        if examples is not None:
            examples.write(context.folder / f"{name}.arrow")
    facts = {**splits.facts, "sources": source_rows(job)}
    made = {"labels": list(splits.labels), "facts": facts, "notes": splits.notes, **more}
    write_json(context.folder / "facts.json", made)


def source_rows(job: Job) -> list[dict[str, Any]]:
    """Every data source of a run, as its report names it."""
    roles = [*job.data.items(), *(("unlabelled", s) for s in job.unlabelled), *(("text", s) for s in job.texts)]
    roles += [("scores", job.scores.source)] if job.scores else []
    return [
        {"role": role, "source": s.name, "sha256": s.sha256, "licence": s.licence, "origin": s.origin}
        for role, s in roles
    ]


def augmented(context: Context, job: Job) -> None:
    """Write the training texts with their copies; where nothing can propose words, the texts alone."""
    settings = job.settings.augment
    train = read_split(context.done["data"], "train")
    assert train is not None
    copies = job.copies
    method, proposer = _proposer(job)
    if proposer is not None and copies:
        stop = read_stop_words(Path(settings.stop_words)) if settings.stop_words else STOP_WORDS
        made = augment(
            train,
            proposer,
            seed=job.settings.run.seed,
            copies=copies,
            probability=settings.probability,
            stop_words=stop,
            max_candidates=settings.candidates,
            report=context.report,
        )
        # A rewritten text may happen to be one of those that judge.
        made = examples_without(made, evaluation_keys(*(read_split(context.done["data"], n) for n in ("dev", "test"))))
    else:
        made = train
    made.write(context.folder / "train.arrow")
    facts = {"method": method, "copies": copies if proposer is not None else 0, "made": len(made) - len(train)}
    write_json(context.folder / "facts.json", facts)
    context.report.note(f"{facts['made']:,} texts made by {method} from {len(train):,}")


def _proposer(job: Job) -> tuple[str, Proposer | None]:
    from potstill.models.masked_lm import MaskedLMProposer, has_masked_lm_head

    settings, model = job.settings.augment, job.teacher.paths[0]
    tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
    has_head = settings.method in ("auto", "masked-lm") and has_masked_lm_head(model)
    method = settings.method
    if method == "auto":
        method = "masked-lm" if has_head else "glove" if settings.vectors else "embeddings"
    if method == "none":
        return method, None
    if method == "glove":
        return method, StaticNeighbours.from_glove(Path(str(settings.vectors)), k=settings.candidates)
    words, rows = word_rows(model, tokenizer)
    static = StaticNeighbours.from_vectors(words, np.asarray(rows, dtype=np.float32), k=settings.candidates)
    if method == "embeddings":
        return method, static
    if settings.vectors is not None:
        static = StaticNeighbours.from_glove(Path(settings.vectors), k=settings.candidates)
    contextual = MaskedLMProposer.load(model, candidates=settings.candidates)
    return method, ByPieces(contextual, static, whole_words(tokenizer))
