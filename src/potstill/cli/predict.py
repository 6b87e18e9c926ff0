"""`potstill predict`: rows in, a line of JSON for each out, a batch at a time, so that memory stays flat."""

import io
import json
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO, cast

import typer

from potstill.cli.answering import check_kind, load_predictor
from potstill.cli.flags import Engine, Format, Header, Precision
from potstill.cli.output import answer_file, results
from potstill.errors import InputError, SettingsError

if TYPE_CHECKING:
    from potstill.inference import Prediction, Predictor
    from potstill.inference.fillings import Filler, Fillings
    from potstill.inference.predictor import Row

__all__ = ["predict"]

_SHOWN = 50


def predict(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="The folder of a student, a fine-tuned model or a masked LM.")
    ],
    text: Annotated[list[str] | None, typer.Argument(metavar="TEXT", help="Texts; none: lines of the input.")] = None,
    input_: Annotated[Path | None, typer.Option("--input", metavar="FILE", help="A file of rows.")] = None,
    text_column: Annotated[
        str | None, typer.Option("--text", metavar="COLUMN", help="Its column of texts.  [default: text]")
    ] = None,
    pair_column: Annotated[
        str | None, typer.Option("--pair", metavar="COLUMN", help="Its column of second texts, for tasks on pairs.")
    ] = None,
    format_: Format = None,
    header: Header = True,
    output: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the answers there, whole or not at all.")
    ] = None,
    engine: Engine = None,
    precision: Precision = None,
    fillings: Annotated[
        int | None,
        typer.Option(metavar="N", help="How many fillings of a text's blanks a masked LM gives.  [default: 5]"),
    ] = None,
    abstain_below: Annotated[
        float | None, typer.Option(metavar="P", help="Give no label where its probability is below P.")
    ] = None,
    wanted_precision: Annotated[
        float | None,
        typer.Option(metavar="P", help="Give as many labels as leave a share P of them right, by what dev showed."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Answer with one JSON document, not with lines.")] = False,
) -> None:
    """Answer texts: labels, scores or filled blanks.

    Reads lines of standard input, the texts given, or the rows of a file (CSV, TSV, JSON Lines, Parquet, ...). Each
    answer is a line of JSON: {"id": row number from 1, "label": ..., "probabilities": {...}}, {"id": ..., "labels":
    [...], "probabilities": {...}}, or {"id": ..., "score": ...}. A masked LM, of any folder, fills blanks ("[MASK]"),
    several of them jointly: {"id": ..., "fillings": [{"fill", "text", "probability", "order", "independent"}, ...],
    "apart": ...}, the last what filling blank by blank would have chosen. A row that cannot be answered is named on
    standard error and has no line (go by the ids); the rest go on. The exit code is 2 where no row could be answered. A
    text that begins with a dash stands after "--".

    With --abstain-below or --wanted-precision, an answer that the model is not sure enough of is {"id": ..., "label":
    null, "abstained": true, "probabilities": {...}}.

    \b
    Example:
      potstill predict runs/sst2/student "a gripping, funny film"
      potstill predict runs/sst2/student < lines.txt > answers.jsonl
      potstill predict runs/sst2/student --input reviews.csv --text review --output answers.jsonl
      potstill predict runs/masked-lm/model "the capital of [MASK] is [MASK] ."
    """
    if input_ is None and (text_column or pair_column or format_ or not header):
        raise SettingsError(
            "--text, --pair, --format and --no-header describe a file", fix="give the file: --input FILE"
        )
    if input_ is not None and text:
        raise SettingsError("both texts and --input", fix="give one of them")
    if text and len(text) == 1 and _names_a_file(text[0]):
        raise SettingsError(f"{text[0]} is a file, and would be read as a text", fix=f"write --input {text[0]}")
    with results() as out, ExitStack() as stack:
        predictor = _load(folder, engine, precision, abstain_below, wanted_precision, fillings)
        check_kind(predictor.pair, pair_column)
        lines = out if output is None else stack.enter_context(answer_file(output))
        counts = _Counts()
        if input_ is not None:
            columns = [text_column or "text", *([pair_column] if pair_column else [])]
            rows = _file_rows(input_, format_, columns, counts, header=header)
        else:
            rows = enumerate(text, 1) if text else _stdin_rows(counts)
        typed = input_ is None and not text and sys.stdin.isatty()
        _answer(predictor, rows, lines, counts, whole=as_json and output is None, at_once=typed)
        stack.close()
        if as_json and output is not None:
            out.write(
                json.dumps({"schema_version": 1, "path": str(output), **counts.facts()}, ensure_ascii=False) + "\n"
            )
    counts.close()


def _names_a_file(text: str) -> bool:
    try:
        return Path(text).is_file()
    except (OSError, ValueError):  # too long for a name, or with a NUL in it
        return False


class _Counts:
    """How many rows were answered; those that were not are named as they come."""

    def __init__(self) -> None:
        self.answered = self.failed = self.truncated = self.abstained = 0
        self.first: list[dict[str, Any]] = []

    def fail(self, row: int, reason: str) -> None:
        self.failed += 1
        if self.failed <= _SHOWN:
            self.first.append({"row": row, "reason": reason})
        sys.stderr.write(f"row {row}: {reason}\n")

    def facts(self) -> dict[str, Any]:
        return {
            "answered": self.answered,
            "truncated": self.truncated,
            "abstained": self.abstained,
            "failed": sorted(self.first, key=lambda one: one["row"]),
            "failed_total": self.failed,
        }

    def close(self) -> None:
        if self.truncated:
            sys.stderr.write(f"texts longer than the model reads, and cut: {self.truncated:,}\n")
        if self.abstained:
            sys.stderr.write(f"labels withheld: {self.abstained:,} of {self.answered:,}\n")
        if self.failed:
            sys.stderr.write(f"{self.answered:,} rows answered, {self.failed:,} not\n")
        if self.failed and not self.answered:
            raise typer.Exit(InputError.exit_code)


def _file_rows(
    path: Path, form: str | None, columns: Sequence[str], counts: _Counts, *, header: bool
) -> Iterator[tuple[int, "Row"]]:
    from potstill.data.rows import BadRow, iter_rows

    for row in iter_rows(path, format=form, columns=columns, header=header):
        if isinstance(row, BadRow):
            counts.fail(row.row, row.reason)
        else:
            texts = [str(row.values[name]) for name in columns]
            yield row.row, texts[0] if len(texts) == 1 else (texts[0], texts[1])


def _stdin_rows(counts: _Counts) -> Iterator[tuple[int, "Row"]]:
    from potstill.data.lines import line_records

    stream = cast(io.BufferedReader, sys.stdin.buffer)
    pieces = iter(lambda: stream.read1(1 << 18), b"")
    for number, line in enumerate(line_records(pieces), 1):
        if isinstance(line, str):
            counts.fail(number, line)
            continue
        try:
            row = line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            counts.fail(number, f"not UTF-8 at byte {error.start}")
            continue
        if "\0" in row:
            counts.fail(number, "holds a NUL character")
        else:
            yield number, row


def _load(
    folder: Path,
    engine: Engine,
    precision: Precision,
    abstain_below: float | None,
    wanted_precision: float | None,
    fillings: int | None,
) -> "Predictor | Filler":
    from potstill.inference import is_masked_lm

    if is_masked_lm(folder):
        if abstain_below is not None or wanted_precision is not None:
            named = "--wanted-precision" if abstain_below is None else "--abstain-below"
            raise SettingsError(f"{named} with a masked LM, which gives no label", fix=f"leave {named} out")
        return _filler(folder, engine, precision, fillings)
    if fillings is not None:
        raise SettingsError(f"--fillings, but {folder} is no masked LM", fix="leave --fillings out")
    return load_predictor(folder, engine, precision, abstain_below=abstain_below, wanted_precision=wanted_precision)


def _filler(folder: Path, engine: Engine, precision: Precision, fillings: int | None) -> "Filler":
    from potstill.inference.fillings import Filler

    if engine not in (None, "torch") or precision == "int8":
        raise SettingsError(
            f"a masked LM by {' '.join(filter(None, (engine, precision)))}",
            expected="torch, in float32 or bfloat16",
            fix="leave --engine and --precision out",
        )
    return Filler.load(folder, precision=precision or "float32", top=5 if fillings is None else fillings)


def _answers(
    predictor: "Predictor | Filler", rows: Iterable[tuple[int, "Row"]], *, at_once: bool
) -> Iterator[tuple[int, "Prediction | Fillings"]]:
    """An answer for each row, in order; `at_once` does not wait for more rows to answer together."""
    if at_once:
        for number, row in rows:
            stream: Iterator[Prediction | Fillings] = predictor.predict_stream([row])
            yield number, next(stream)
        return
    waiting: deque[int] = deque()

    def feed() -> Iterator["Row"]:
        for number, row in rows:
            waiting.append(number)
            yield row

    for answer in predictor.predict_stream(feed()):
        yield waiting.popleft(), answer


def _answer(
    predictor: "Predictor | Filler",
    rows: Iterable[tuple[int, "Row"]],
    lines: TextIO,
    counts: _Counts,
    *,
    whole: bool,
    at_once: bool,
) -> None:
    """Write an answer for each row: lines of JSON, or one document where `whole`."""
    if whole:
        lines.write('{"schema_version": 1, "answers": [')
    for number, answer in _answers(predictor, rows, at_once=at_once):
        if answer.reason is not None:
            counts.fail(number, answer.reason)
            continue
        line = json.dumps({"id": number, **answer.answer()}, ensure_ascii=False)
        lines.write(f"{',' if counts.answered else ''}\n{line}" if whole else f"{line}\n")
        counts.answered += 1
        counts.truncated += answer.truncated
        counts.abstained += answer.abstained
        if at_once:
            lines.flush()
    if whole:
        rest = json.dumps(counts.facts(), ensure_ascii=False)
        lines.write(f"\n], {rest[1:]}\n")
