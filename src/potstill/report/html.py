"""A report as one HTML page that needs no network.

Puts rows (`tables.py`), pictures (`figures.py`) and sentences (`conclusion.py`) into `templates/`. The template engine
escapes everything that comes from outside; behind it stands a content security policy that allows only the page's own
style and script, by their hashes, so that even a text that slipped through could neither run nor load anything.
"""

import base64
import hashlib
import json
import math
import re
from collections import Counter
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any

import jinja2
from markupsafe import Markup

from potstill.report import figures, tables, wording
from potstill.report.checks import validate
from potstill.report.conclusion import cautions, headline
from potstill.report.schema import CurvePoint, Report
from potstill.report.trust import trust_parts

__all__ = ["asset", "environment", "policy", "render_html"]


def render_html(report: Mapping[str, Any]) -> str:
    """The page for a report.

    Args:
        report: A report.json value. Its texts may hold anything; `conclusion` is made anew.

    Raises:
        DataError: It is no valid report.
    """
    parsed = validate(wording.clean(report))
    style, script = asset("style.css"), asset("script.js")
    return (
        environment()
        .get_template("template.html")
        .render(
            report=parsed,
            policy=policy(style, script),
            style=Markup(style),
            script=Markup(script),
            headline=_joined(headline(parsed)),
            cautions=[_joined(caution) for caution in cautions(parsed)],
            **_models(parsed),
            **_speed(parsed),
            **_training(parsed),
            **trust_parts(parsed),
            **_errors(parsed),
            **_facts(parsed),
        )
    )


@cache
def asset(name: str) -> str:
    """A file of `templates/`."""
    return resources.files(__package__).joinpath("templates", name).read_text(encoding="utf-8")


def policy(style: str, script: str) -> str:
    """The content security policy of a page that has this style and this script, and no other."""
    hashes = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in (style, script)]
    return (
        f"default-src 'none'; style-src 'sha256-{hashes[0]}'; script-src 'sha256-{hashes[1]}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )


@cache
def environment() -> jinja2.Environment:
    """Templates, with the words and pictures that pages are made of."""
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(asset),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    words = ("count", "size", "times", "share", "duration", "milliseconds", "score", "setting")
    environment.filters |= {name: _unbroken(getattr(wording, name)) for name in words}
    environment.filters |= {
        "metric": wording.metric_name,
        "answer": wording.answer,
        "unbroken": lambda text: str(text).replace(" ", "\u00a0"),
    }
    environment.globals |= {
        "export_name": wording.export_name,
        "number": _unbroken(wording.number),
        "score_range": _unbroken(wording.score_range),
        "share_range": _unbroken(wording.share_range),
        "shortened": wording.shortened,
        "heat": _heat,
        "bar": figures.bar,
        "dot": figures.dot,
        "split_bar": figures.split_bar,
    }
    return environment


def _unbroken(function: Any) -> Any:
    """The same words with unbreakable spaces, so that a figure stays beside its unit."""

    def wrapped(*arguments: Any) -> str:
        return str(function(*arguments)).replace(" ", "\u00a0")

    return wrapped


def _joined(sentence: str) -> str:
    """A sentence whose figures stay beside their units."""
    return re.sub(r"(?<=\d) (?=%|times\b|[BM]\b|points\b)", "\u00a0", sentence)


def _heat(number: int, total: int) -> int:
    """The shade, 0 to 10, of a cell that holds `number` of its row's `total`; anything above nothing is seen."""
    return math.ceil(10 * number / total) if total else 0


def _models(report: Report) -> dict[str, Any]:
    rows = tables.candidates(report)
    constants = [wording.baseline_name(name) for name in wording.CONSTANTS]
    shown = [row for row in rows if row.title not in constants]
    return {
        "candidates": rows,
        "metric_names": tables.metric_names(report),
        "scale": _scale(shown),
        "two_scale": _scale(rows[:2]),
        "teacher_line": report.teacher.score.value if report.teacher.score else None,
    }


def _scale(rows: list[tables.Candidate]) -> tuple[float, float]:
    return min(row.score.low for row in rows), max(row.score.high for row in rows)


def _speed(report: Report) -> dict[str, Any]:
    pairs = tables.engine_pairs(report)
    columns, rows = tables.lengths(report)
    times = {
        batch: [t.p95 for pair in found for t in (pair.teacher, pair.student) if t] for batch, found in pairs.items()
    }
    speedups = [value for export in report.exports for value in (export.speedup or {}).values()]
    return {
        "pairs": pairs,
        "slowest": {batch: max(found) for batch, found in times.items()},
        "fastest_ratio": max(speedups, default=1.0),
        "batches": sorted({batch for export in report.exports for batch in export.speedup or {}}, key=int),
        "timed_batches": sorted(pairs, key=int),
        "length_columns": columns,
        "length_rows": rows,
    }


def _training(report: Report) -> dict[str, Any]:
    stages = []
    for name, points in report.curves.items():
        terms, dev = _terms(points), _dev(points)
        if not terms and not dev:
            continue
        charts = []
        if terms:
            title = f"Loss terms of stage {name}"
            charts.append(("loss", terms, figures.line_chart(terms, title=title, x_label="step", from_zero=True)))
        if dev:
            metric = wording.metric_name(report.task.primary_metric)
            percent = report.task.primary_metric not in wording.DECIMALS
            chart = figures.line_chart(
                dev,
                title=f"Dev {metric} in stage {name}",
                x_label="step",
                percent=percent,
                reference=_reference(report, name),
            )
            charts.append((f"dev {metric}", dev, chart))
        stages.append((name, points[-1], charts))
    total = report.seconds.get("total")
    timed = {name: value for name, value in report.seconds.items() if name != "total"}
    return {"stages": stages, "timed": timed, "total": total or sum(timed.values())}


def _terms(points: list[CurvePoint]) -> list[figures.Series]:
    names = dict.fromkeys(name for point in points for name in point.terms)
    found = []
    for style, name in enumerate(names):
        with_term = [point for point in points if name in point.terms]
        found.append(figures.Series(name, [p.step for p in with_term], [p.terms[name] for p in with_term], style))
    return found


def _dev(points: list[CurvePoint]) -> list[figures.Series]:
    known = [(point.step, point.dev) for point in points if point.dev is not None]
    return [figures.Series("dev", [step for step, _ in known], [dev for _, dev in known], 0)] if known else []


def _reference(report: Report, stage: str) -> figures.Reference | None:
    score = (report.teacher.dev or {}).get(report.task.primary_metric)
    return figures.Reference("teacher", score.value) if score and stage != "teacher" else None


def _errors(report: Report) -> dict[str, Any]:
    models = [("Teacher", report.teacher), ("Student", report.student)]
    few = len(report.task.labels) <= tables.MATRIX_LABELS
    cases = tables.cases(report)
    return {
        "matrices": [(title, model.confusion) for title, model in models if few and model and model.confusion],
        "confusions": tables.confusions(report) if len(report.task.labels) > 3 else [],
        "recalls": tables.recalls(report) if len(report.task.labels) > 3 else [],
        "cases": cases,
        "case_counts": Counter(right for right, _ in cases),
        "shared_examples": sum(report.student_errors.model_dump().values()) if report.student_errors else 0,
    }


def _facts(report: Report) -> dict[str, Any]:
    return {
        "splits": tables.splits(report),
        "origins": tables.origins(report),
        "environment": list(tables.facts(report.environment)),
        "settings": json.dumps(report.settings, indent=2, ensure_ascii=False) if report.settings else "",
    }
