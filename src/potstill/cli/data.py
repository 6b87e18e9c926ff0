"""`potstill data`: labelled files looked at before a run."""

import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from potstill.cli.flags import (
    SOURCE,
    Format,
    Header,
    Label,
    LabelMargin,
    LabelSeparator,
    LabelThreshold,
    Pair,
    Silent,
    Task,
    Text,
)
from potstill.cli.output import results, write_json

if TYPE_CHECKING:
    from potstill.data.encoding import TextEncoder
    from potstill.progress import Reporter

__all__ = ["data"]

_REFUSED = 1
_NAMED = 5
_LABELS = 20

data = typer.Typer(
    add_completion=False, rich_markup_mode=None, no_args_is_help=True, help="Look at labelled files before a run."
)


@data.callback()
def _group() -> None:
    """Look at labelled files before a run.

    \b
    Example:
      potstill data check train.tsv dev.tsv test.tsv --text sentence --label label
    """


@data.command()
def check(  # one parameter is one flag
    files: Annotated[
        list[str], typer.Argument(metavar="FILE", help=f"Files, the one to learn from first; each {SOURCE}.")
    ],
    text: Text = None,
    pair: Pair = None,
    label: Label = None,
    task: Task = None,
    label_threshold: LabelThreshold = None,
    label_margin: LabelMargin = 0.0,
    label_separator: LabelSeparator = ",",
    format_: Format = None,
    header: Header = True,
    model: Annotated[
        str | None, typer.Option(metavar="SOURCE", help="Count tokens as this model reads them, and what it would cut.")
    ] = None,
    quiet: Silent = False,
    as_json: Annotated[bool, typer.Option("--json", help="Answer with JSON on standard output.")] = False,
) -> None:
    """Check labelled files.

    Rows, columns, labels or scores, lengths, texts that stand more than once or with more than one label, texts that
    two of the files share, and rows that cannot be used, by file and row. The files are read as a run reads them, in
    memory that does not grow with them. The exit code is 1 where a run would refuse them, the first as train.

    \b
    Example:
      potstill data check train.tsv dev.tsv test.tsv --text sentence --label label
      potstill data check train.csv --model bert-base-uncased --json
      potstill data check sts-train.tsv --no-header --task regression --label 5 --text 6 --pair 7
    """
    from potstill.cli.display import display
    from potstill.data.checking import check_files
    from potstill.data.parts import Columns
    from potstill.data.sources import resolve_data
    from potstill.tasks import make_task

    made = make_task(task or "classification")
    rule = made.gold_rule(threshold=label_threshold, margin=label_margin, separator=label_separator)
    with results() as out, display(sys.stderr, quiet=quiet) as report:
        sources = [resolve_data(name, report=report) for name in files]
        encoder = None if model is None else _encoder(model, report)
        found = check_files(
            sources,
            Columns.chosen(sources[0].columns, text=text, pair=pair, label=label),
            rule,
            needs_label=label is not None,
            format=format_,
            header=header,
            encoder=encoder,
            report=report,
        )
        longest = None if encoder is None else encoder.max_length
        answer = {"schema_version": 1, "task": made.kind, **found, "model": model, "longest_input": longest}
        if as_json:
            write_json(out, answer)
        else:
            out.writelines(f"{line}\n" for line in _lines(answer))
    if answer["refused"]:
        raise typer.Exit(_REFUSED)


def _encoder(model: str, report: "Reporter") -> "TextEncoder":
    """As the model reads: up to the length that its potstill.json names, else as far as it has positions."""
    from potstill.data.encoding import TextEncoder
    from potstill.data.sources import resolve_model
    from potstill.inference.deployment import DEPLOYMENT, read_deployment
    from potstill.models.loading import longest_input, read_config

    folder = resolve_model(model, report=report).paths[0]
    deployed = (folder / DEPLOYMENT).is_file()
    longest = read_deployment(folder).max_length if deployed else longest_input(read_config(folder))
    return TextEncoder.from_folder(folder, max_length=longest)


def _lines(answer: Mapping[str, Any]) -> Iterator[str]:
    """The check as a person reads it."""
    for one in answer["files"]:
        yield f"{one['file']}: {one['rows']:,} rows, {one['usable']:,} usable"
        for name, said in [("columns", ", ".join(one["columns"])), *_answers(one), *_lengths(one), *_flaws(one)]:
            yield f"  {name:<11} {said}"
        yield ""
    for overlap in answer["overlaps"]:
        one, other = overlap["between"]
        ours, theirs = overlap["rows"]
        places = ", ".join(f"row {first:,} and row {second:,}" for first, second in overlap["examples"])
        more = ", ..." if overlap["texts"] > len(overlap["examples"]) else ""
        found = f"{overlap['texts']:,} texts, in {ours:,} rows of {one} and {theirs:,} of {other}"
        yield f"shared: {found} ({places}{more})"
    yield from (f"refused: {reason}" for reason in answer["refused"])
    if not answer["refused"]:
        yield "a run would take these files"


def _answers(one: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    labels, scores = one["labels"], one["scores"]
    if labels is not None:
        shown = [f"{name} {count:,} ({count / one['usable']:.1%})" for name, count in list(labels.items())[:_LABELS]]
        yield "labels", ", ".join(shown) + (f", and {len(labels) - _LABELS:,} more" if len(labels) > _LABELS else "")
    if one["without_label"]:
        yield "no label", f"{one['without_label']:,} rows"
    if scores is not None:
        yield "scores", f"{scores['low']:g} to {scores['high']:g}, mean {scores['mean']:.4g}"
    if labels is None and scores is None:
        yield "labels", "none"


def _lengths(one: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for side, lengths in one["characters"].items():
        if lengths is not None:
            yield "characters", f"{side}: {_range(lengths)}"
    if (tokens := one["tokens"]) is not None:
        cut = [f"{count:,} longer than {length}" for length, count in tokens["cut"].items() if count]
        none = f"none longer than {min(map(int, tokens['cut']))}"
        yield "tokens", f"{_range(tokens)}; {', '.join(cut) or none}"


def _flaws(one: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if one["repeated_texts"]:
        yield "repeated", f"{one['repeated_texts']:,} rows beyond the first of their text"
    if one["conflicting_texts"]:
        texts, rows = one["conflicting_texts"], one["conflicting_rows"]
        yield "conflicting", f"{texts:,} texts with more than one label or score, in {rows:,} rows"
    if one["left_out_near_threshold"]:
        yield "left out", f"{one['left_out_near_threshold']:,} rows near the threshold"
    if one["set_aside_total"]:
        named = ", ".join(f"{bad['file']} row {bad['row']} ({bad['reason']})" for bad in one["set_aside"][:_NAMED])
        yield "set aside", f"{one['set_aside_total']:,}: {named}{', ...' if one['set_aside_total'] > _NAMED else ''}"


def _range(lengths: Mapping[str, Any]) -> str:
    shortest, median, most, longest = (lengths[key] for key in ("shortest", "median", "most", "longest"))
    return f"{shortest:,} to {longest:,}, median {median:,}, 95 % up to {most:,}"
