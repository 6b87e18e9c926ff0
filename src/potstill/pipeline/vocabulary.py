"""The stage that cuts the student's vocabulary, and what later stages need of it."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file
from tokenizers import Tokenizer
from transformers import PreTrainedModel

from potstill.compression import prune_vocabulary
from potstill.data.examples import Examples
from potstill.data.pruning import count_pieces, fit_of, kept_pieces, pruned_tokenizer
from potstill.pipeline.job import Job
from potstill.pipeline.results import read_split, split_of
from potstill.pipeline.run import Context
from potstill.storage import read_json, write_arrays, write_json

__all__ = ["STAGE", "pruned", "teacher_ids", "vocabulary_facts", "vocabulary_stage"]

STAGE = "vocabulary"


def _texts(*splits: Examples | None) -> list[str]:
    found: list[str] = []
    for part in splits:
        if part is not None:
            found += [*part.texts, *(part.pairs or ())]
    return found


def vocabulary_stage(context: Context, job: Job) -> None:
    """The pieces that training texts use (augmented and unlabelled ones too), the most frequent where a number is set.

    Leaves the tokenizer over them, kept.safetensors (the old id of each piece), and how dev is read with it.
    """
    source, wanted = job.side.folder, job.settings.student.vocabulary
    before = _tokenizer(source)
    train = Examples.read(context.done["augment"] / "train.arrow")
    texts = _texts(train, read_split(context.done["data"], "unlabelled"))
    counts = count_pieces(before, texts, context.report)
    kept = kept_pieces(before, counts, most=wanted if isinstance(wanted, int) else None)
    after = pruned_tokenizer(before, kept)
    after.save(str(context.folder / "tokenizer.json"))
    _write_config(source, context.folder, kept)
    write_arrays(context.folder / "kept.safetensors", {"kept": kept})
    dev = _texts(split_of(context, "dev"))
    fit = fit_of(after, dev, before)
    facts: dict[str, Any] = {
        "pieces": len(kept),
        "before": before.get_vocab_size(),
        "same": fit.same / fit.texts,
        "unknown": fit.unknown / fit.tokens,
        "longer": fit.tokens / max(1, int(count_pieces(before, dev).sum())),
    }
    write_json(context.folder / "facts.json", facts)
    if isinstance(wanted, int) and len(kept) < wanted and np.isin(np.flatnonzero(counts), kept).all():
        context.report.note(f"student.vocabulary = {wanted:,}: the training texts use no more than {len(kept):,}")
    context.report.note(
        f"{facts['pieces']:,} of {facts['before']:,} pieces kept: {100 * facts['same']:.1f} % of the dev texts are "
        f"read as before, {100 * facts['unknown']:.2f} % of their tokens are unknown"
    )


def _tokenizer(folder: Path) -> Tokenizer:
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def _write_config(source: Path, folder: Path, kept: np.ndarray) -> None:
    """tokenizer_config.json and the like, with the ids that stand in them changed; vocabulary files are left out."""
    place = {str(number): str(index) for index, number in enumerate(kept.tolist())}
    for name in ("tokenizer_config.json", "special_tokens_map.json"):
        if (source / name).is_file():
            config = read_json(source / name)
            added = config.get("added_tokens_decoder")
            if isinstance(added, dict):
                config["added_tokens_decoder"] = {place[key]: value for key, value in added.items() if key in place}
            (folder / name).write_text(json.dumps(config, ensure_ascii=False, indent=2), encoding="utf-8")


def _kept(context: Context) -> np.ndarray | None:
    if STAGE not in context.done:
        return None
    kept: np.ndarray = load_file(context.done[STAGE] / "kept.safetensors")["kept"]
    return kept


def pruned(context: Context, model: PreTrainedModel, tokenizer: Path) -> tuple[PreTrainedModel, Path]:
    """The model over the run's vocabulary, and the folder of its tokenizer; both as they are where none was cut."""
    kept = _kept(context)
    return (model, tokenizer) if kept is None else (prune_vocabulary(model, kept), context.done[STAGE])


def teacher_ids(context: Context, model: PreTrainedModel) -> np.ndarray | None:
    """The ids, in the teacher's vocabulary, of the pieces of `model`'s; None where they are the same.

    A model above the student (an assistant) has the teacher's own vocabulary.
    """
    kept = _kept(context)
    return kept if kept is not None and model.config.vocab_size == len(kept) else None


def vocabulary_facts(done: Mapping[str, Path]) -> dict[str, Any] | None:
    """What the report says of a cut vocabulary; None where it is whole."""
    return read_json(done[STAGE] / "facts.json") if STAGE in done else None
