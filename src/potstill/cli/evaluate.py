"""`potstill evaluate`: a finished model judged on a labelled file."""

import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from potstill.cli.answering import check_kind, load_predictor
from potstill.cli.flags import (
    SOURCE,
    Engine,
    Format,
    Header,
    Label,
    LabelMargin,
    LabelSeparator,
    LabelThreshold,
    Pair,
    Precision,
    Silent,
    Text,
)
from potstill.cli.output import answer_file, results, write_json
from potstill.cli.summary import label_lines, metric_lines

if TYPE_CHECKING:
    from potstill.data.rows import BadRow
    from potstill.evaluation.labelled import Judged
    from potstill.inference import Predictor

__all__ = ["evaluate"]

_NAMED = 50
"""Rows set aside that are named; the rest are counted."""


def evaluate(  # one parameter is one flag
    folder: Annotated[
        Path,
        typer.Argument(metavar="DIR", help="A model's folder: student/ or model/ of a run, or another's."),
    ],
    data: Annotated[str, typer.Option("--data", metavar="SOURCE", help=f"Labelled rows to judge by: {SOURCE}.")],
    text: Text = None,
    pair: Pair = None,
    label: Label = None,
    label_threshold: LabelThreshold = None,
    label_margin: LabelMargin = 0.0,
    label_separator: LabelSeparator = ",",
    format_: Format = None,
    header: Header = True,
    engine: Engine = None,
    precision: Precision = None,
    by: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Also judge the rows of each value of this column apart.")
    ] = None,
    classes: Annotated[bool, typer.Option("--classes", help="Also judge each label apart.")] = False,
    predictions: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write gold answer and answer of each row there, as JSON Lines.")
    ] = None,
    quiet: Silent = False,
    as_json: Annotated[bool, typer.Option("--json", help="Answer with JSON on standard output.")] = False,
) -> None:
    """Judge a model on a labelled file.

    The task's metrics with 95 % intervals, by the engine that the model is deployed with or another one. Rows that
    cannot be used are named on standard error and left out; labels that the model does not have are refused. With
    --by, values of fewer than 10 rows are judged together. The JSON holds task, n, metrics, windowed and truncated
    (texts read in several windows, and texts not read to their end), by under --by and classes under --classes.

    \b
    Example:
      potstill evaluate runs/sst2/student --data dev.tsv --text sentence --label label
      potstill evaluate runs/sst2/student --data test.csv --engine onnxruntime --precision int8 --json
      potstill evaluate runs/sst2/model --data test.csv --by source --classes --predictions answers.jsonl
    """
    from potstill.cli.display import display
    from potstill.data.parts import Columns
    from potstill.data.sources import resolve_data
    from potstill.evaluation.labelled import judge, read_labelled

    with results() as out, display(sys.stderr, quiet=quiet) as report:
        report.stage("evaluate", str(folder))
        predictor = _load(folder, engine, precision, pair)
        source = resolve_data(data, split="test", report=report)
        rule = predictor.task.gold_rule(threshold=label_threshold, margin=label_margin, separator=label_separator)
        labelled = read_labelled(
            source.paths,
            Columns.chosen(source.columns, text=text, pair=pair, label=label),
            rule,
            format=format_ or source.format,
            header=header,
            report=report,
        )
        _name(labelled.part.set_aside, labelled.part.left_out)
        if by is not None:
            labelled.values(by)  # a column that is not there is told before the work
        judged = judge(predictor, labelled, report=report)
        answer = {"schema_version": 1, **judged.facts()}
        if by is not None:
            answer["by"] = judged.by_value(by)
        if classes and (found := judged.by_label()) is not None:
            answer["classes"] = found
        if predictions is not None:
            _write(judged.answers(), predictions)
        if as_json:
            write_json(out, answer)
        else:
            out.writelines(f"{line}\n" for line in _lines(answer, judged, predictor))


def _load(folder: Path, engine: Engine, precision: Precision, pair: str | None) -> "Predictor":
    from potstill.inference import plain_deployment
    from potstill.inference.deployment import DEPLOYMENT

    plain = (folder / "config.json").is_file() and not (folder / DEPLOYMENT).is_file()
    known = plain_deployment(folder, pair=pair is not None) if plain else None
    predictor = load_predictor(folder, engine, precision, deployment=known)
    check_kind(predictor.pair, pair)
    return predictor


def _name(bad: "tuple[BadRow, ...]", left_out: int) -> None:
    """Rows that are not judged, on standard error whether quiet or not: the figures are not of them."""
    for row in bad[:_NAMED]:
        sys.stderr.write(f"{row.file} row {row.row}: {row.reason}\n")
    if len(bad) > _NAMED:
        sys.stderr.write(f"... and {len(bad) - _NAMED:,} more\n")
    if bad:
        sys.stderr.write(f"rows set aside: {len(bad):,}\n")
    if left_out:
        sys.stderr.write(f"rows left out, near the threshold: {left_out:,}\n")


def _write(answers: Iterable[Mapping[str, Any]], path: Path) -> None:
    with answer_file(path) as lines:
        lines.writelines(json.dumps(answer, ensure_ascii=False) + "\n" for answer in answers)


def _lines(answer: Mapping[str, Any], judged: "Judged", predictor: "Predictor") -> list[str]:
    """The judgement as a person reads it."""
    from potstill.report.wording import metric_name, score

    engine, task = predictor.engine, judged.task
    floor, constant = task.floor(judged.gold)
    lines = metric_lines(answer["metrics"], f"{engine.name} {engine.precision}", answer["n"])
    lines.append(f"{constant}: {metric_name(task.primary_metric)} {score(floor, task.primary_metric)}")
    if answer["windowed"] or answer["truncated"]:
        lines.append(f"read in several windows: {answer['windowed']:,}; not read to the end: {answer['truncated']:,}")
    if "classes" in answer:
        lines += ["", *label_lines(answer["classes"])]
    if "by" in answer:
        for group in answer["by"]["groups"]:
            head = f"{answer['by']['column']} = {group['value'] or '(nothing)'}"
            lines += ["", *metric_lines(group["metrics"], head, group["n"])]
        if (rare := answer["by"]["rare"]) is not None:
            lines += ["", *metric_lines(rare["metrics"], f"{rare['values']:,} rare values", rare["n"])]
    return lines
