"""Sources of a run, checked before any work: models that can be loaded, texts that can be read; and its threads."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pyarrow as pa
from transformers import PretrainedConfig

from potstill.config import DataSettings, RunSettings
from potstill.data.columns import require_columns
from potstill.data.encoding import TextEncoder
from potstill.data.parts import Columns
from potstill.data.sources import Source, resolve_data
from potstill.data.tables import Table, read_table, read_texts
from potstill.errors import DataError, ModelError
from potstill.models.loading import check_encoder, longest_input, read_config
from potstill.progress import Reporter

__all__ = [
    "check_texts",
    "check_windows",
    "checked_model",
    "concat_tables",
    "labelled_data",
    "model_facts",
    "plain_texts",
    "threads",
    "unlabelled_table",
    "weight_bytes",
]


def threads(run: RunSettings) -> int:
    """Threads of a run: as set, else one for each core that the process may use."""
    if run.threads is not None:
        return run.threads
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def labelled_data(settings: DataSettings, report: Reporter) -> tuple[dict[str, Source], Columns]:
    """The labelled sources by role (train, dev, test), and where text, pair and label stand in them.

    Raises:
        SourceError: One that cannot be had.
        SettingsError: One column in two parts.
        DataError: One file in two roles: it would be judged by what it was taught.
    """
    data = {"train": resolve_data(settings.train, report=report)}
    for role in ("dev", "test"):
        if (name := getattr(settings, role)) is not None:
            data[role] = resolve_data(name, split="test" if role == "test" else "train", report=report)
    for (role, source), (other, same) in combinations(data.items(), 2):
        if source.sha256 == same.sha256:
            raise DataError(
                f"data.{role} ({source.name}) and data.{other} ({same.name}) are the same file",
                expected="different rows",
                fix=f"leave data.{other} out to have it cut from train",
            )
    declared = data["train"].columns
    return data, Columns.chosen(declared, text=settings.text, pair=settings.pair, label=settings.label)


def check_windows(data: DataSettings, model: Source, config: PretrainedConfig, longest: int | None = None) -> None:
    """Raise `ModelError` unless the model can read texts as `data` says: a length with room, a step within it."""
    length = min(longest or data.max_length or longest_input(config), longest_input(config))
    TextEncoder.from_folder(model.paths[0], max_length=length, long_text=data.long_text, step=data.step)


def plain_texts(sources: Sequence[Source], report: Reporter) -> Iterator[str]:
    """The texts of plain sources, one by one, each source read as it declares."""
    for source in sources:
        yield from read_texts(source.paths, format=source.format, column=source.columns.get("text"), report=report)


def unlabelled_table(sources: Sequence[Source], columns: Columns, *, header: bool, report: Reporter) -> Table:
    """Unlabelled texts of all sources, each read as it declares, under the training data's column names.

    Of a file without the text's column, the column that its source declares is taken, or the only one there is.
    """
    text, pair = columns.text, columns.pair
    read: list[Table] = []
    for source in sources:
        table = read_table(source.paths, format=source.format, header=header, report=report)
        named = source.columns.get("text", table.columns[0] if len(table.columns) == 1 else text)
        own = text if text in table.columns or pair is not None else named
        wanted = [own] if pair is None else [own, pair]
        require_columns(wanted, table.columns, source.name)
        rows = table.rows.select(wanted).rename_columns([text, *wanted[1:]])
        read.append(replace(table, rows=rows))
    return concat_tables(read)


def concat_tables(tables: Sequence[Table]) -> Table:
    """Tables of the same columns, one after the other."""
    offsets = np.cumsum([0, *(len(table.sources) for table in tables[:-1])])
    return Table(
        pa.concat_tables([table.rows for table in tables]),
        np.concatenate([table.row_numbers for table in tables]),
        np.concatenate([table.file_numbers + offset for table, offset in zip(tables, offsets, strict=True)]),
        tuple(row for table in tables for row in table.bad),
        tuple(name for table in tables for name in table.sources),
    )


def checked_model(source: Source) -> PretrainedConfig:
    """The config of a model that is an encoder with a tokenizer that can be read."""
    config = read_config(source.paths[0])
    encoder = TextEncoder.from_folder(source.paths[0], max_length=longest_input(config))
    if encoder.tokenizer.get_vocab_size() > config.vocab_size:
        raise ModelError(
            f"{source.name}: a tokenizer of {encoder.tokenizer.get_vocab_size():,} pieces",
            expected=f"at most the {config.vocab_size:,} of the model's vocab_size",
            fix="give the tokenizer that belongs to the model",
        )
    check_encoder(source.paths[0])
    return config


def weight_bytes(source: Source) -> int:
    """Bytes of a model's weights on disk."""
    return sum(path.stat().st_size for path in source.paths[0].glob("*.safetensors"))


def check_texts(sources: Sequence[Source], key: str, report: Reporter) -> None:
    """Raise `DataError` unless each source, named by the setting `key`, can be read and holds a text."""
    for source in sources:
        try:
            first = next(plain_texts([source], report), None)
        except DataError as error:
            fix = "put plain texts into a column called text, or into a .txt file"
            raise DataError(f"{key}: {error.got}", expected=error.expected, fix=fix) from error
        if first is None:
            raise DataError(f"{source.name} holds no text", expected="plain text", fix=f"leave it out of {key}")


def model_facts(source: Source) -> dict[str, Any]:
    """What a report says of where a model came from."""
    return {"source": source.name, "origin": source.origin, "licence": source.licence, "sha256": source.sha256}
