"""The model card: README.md of the student's folder, with the front matter that the Hugging Face hub reads.

A card travels with the model, so it names no folder of the machine it was made on and quotes no text of the data.
`language` is left out: nothing here knows it.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from potstill.errors import DataError
from potstill.report.checks import validate
from potstill.report.conclusion import cautions, headline
from potstill.report.schema import Baseline, Metrics, ModelFacts, Report, ScoresFacts, Student, Teacher
from potstill.report.tables import facts, metric_names, origins
from potstill.report.trust import wanted_rows
from potstill.report.wording import (
    baseline_name,
    clean,
    count,
    export_name,
    metric_name,
    milliseconds,
    model_name,
    number,
    score,
    score_range,
    setting,
    share,
    size,
    times,
)
from potstill.storage import write_bytes

__all__ = ["render_card", "write_card"]

# Licence names that the hub knows; any other is "other" with its name beside it.
# fmt: off
_LICENCES = frozenset({
    "afl-3.0", "agpl-3.0", "apache-2.0", "artistic-2.0", "bigscience-openrail-m", "bsd", "bsd-2-clause",
    "bsd-3-clause", "bsl-1.0", "cc", "cc-by-2.0", "cc-by-3.0", "cc-by-4.0", "cc-by-nc-2.0", "cc-by-nc-3.0",
    "cc-by-nc-4.0", "cc-by-nc-nd-4.0", "cc-by-nc-sa-4.0", "cc-by-sa-3.0", "cc-by-sa-4.0", "cc0-1.0", "ecl-2.0",
    "epl-2.0", "eupl-1.1", "eupl-1.2", "gpl", "gpl-2.0", "gpl-3.0", "isc", "lgpl", "lgpl-2.1", "lgpl-3.0", "mit",
    "mpl-2.0", "odbl", "odc-by", "openrail", "osl-3.0", "pddl", "unknown", "unlicense", "wtfpl", "zlib",
})
# fmt: on
_HUB_METRICS = {
    "accuracy": "accuracy",
    "micro_f1": "f1",
    "f1": "f1",
    "macro_f1": "f1",
    "matthews": "matthews_correlation",
    "pearson": "pearsonr",
    "spearman": "spearmanr",
    "rmse": "rmse",
}
_HUB_NAME = re.compile(
    r"^(hub:|https://huggingface\.co/)?([a-z0-9][\w.-]*/[\w.-]+|[a-z][\w.-]*)(@\S+)?/?$", re.A | re.I
)


def write_card(report: Mapping[str, Any], student_folder: Path) -> Path:
    """Write README.md into the student's folder, whole or not at all, and return its path.

    Raises:
        DataError: The report is not valid, or has no student.
        StorageError: The folder cannot be written.
    """
    path = student_folder / "README.md"
    write_bytes(path, render_card(report).encode())
    return path


def render_card(report: Mapping[str, Any]) -> str:
    """The card for a report's student, as Markdown.

    Raises:
        DataError: The report is not valid, or has no student.
    """
    parsed = validate(clean(report))
    if parsed.student is None:
        raise DataError("report without a student", expected="a student to describe in a model card")
    parts = [
        f"---\n{_yaml(_front_matter(parsed, parsed.student))}---",
        f"# {_md(parsed.name)}",
        " ".join([_md(headline(parsed)), *(_md(caution) for caution in cautions(parsed))]),
        *_use(parsed),
        *_scores(parsed, parsed.student),
        *_confidence(parsed, parsed.student),
        *_exports(parsed),
        *_making(parsed, parsed.student),
        *_data(parsed),
    ]
    return "\n\n".join(parts) + "\n"


def _front_matter(report: Report, student: Student) -> dict[str, Any]:
    front: dict[str, Any] = _licence(student.licence or report.teacher.licence)
    front |= {"library_name": "transformers", "pipeline_tag": "text-classification"}
    base = _base_model(report)
    front |= {"base_model": base} if base else {}
    front["tags"] = ["distillation", "potstill", _tag(report)]
    front["metrics"] = list(dict.fromkeys(_HUB_METRICS.get(name, name) for name in metric_names(report)))
    results = [
        {"type": _HUB_METRICS.get(name, name), "name": metric_name(name), "value": one.value}
        for name, one in student.metrics.items()
    ]
    dataset = {"name": f"{report.name} ({report.judged_on})", "type": _slug(report.name), "split": report.judged_on}
    task = {"type": "text-classification"}
    front["model-index"] = [{"name": report.name, "results": [{"task": task, "dataset": dataset, "metrics": results}]}]
    return front


def _tag(report: Report) -> str:
    if report.scored:
        return "regression"
    return "multi-label-classification" if report.multilabel else "text-classification"


def _licence(licence: str | None) -> dict[str, str]:
    if not licence:
        return {"license": "unknown"}
    known = licence.lower().strip()
    return {"license": known} if known in _LICENCES else {"license": "other", "license_name": _slug(licence)}


def _base_model(report: Report) -> str | None:
    """The teacher's name on the hub, from its origin or its source; None where it has none."""
    teacher = report.teacher
    if teacher.scores is not None:  # the model that the student was made from
        named = [name for part in report.data.sources if part.role == "start" for name in (part.origin, part.source)]
        matches = [match for name in named if (match := _HUB_NAME.match(name or "")) and (match[1] or "/" in match[2])]
        return matches[0][2] if matches else None
    for origin in (teacher.origin, *(part.origin for part in report.data.sources if part.role == "teacher")):
        match = _HUB_NAME.match(origin or "")
        if match and (match[1] or "/" in match[2]):
            return match[2]
    match = _HUB_NAME.match(teacher.source)
    return match[2] if match and (match[1] or not Path(match[2]).exists()) else None


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9.]+", "-", text.lower()).strip("-.") or "unnamed"


def _yaml(value: Any, indent: str = "") -> str:
    """Mappings and lists as block YAML."""
    lines = []
    for key, item in value.items() if isinstance(value, dict) else ((None, item) for item in value):
        head = f"{indent}- " if key is None else f"{indent}{key}:"
        if isinstance(item, dict | list) and item:
            body = _yaml(item, indent + "  ")
            lines.append(head + body[len(indent) + 2 :] if key is None else f"{head}\n{body}")
        else:
            lines.append(f"{head}{'' if key is None else ' '}{_scalar(item)}\n")
    return "".join(lines)


def _scalar(item: str | float) -> str:
    """A string or a number in the notation that JSON and YAML share, what only JSON escapes in pairs put YAML's way."""
    if isinstance(item, float):
        return f"{item:.6f}"
    text = json.dumps(item, ensure_ascii=False)
    return "".join(c if c.isprintable() else f"\\U{ord(c):08x}" for c in text)


def _md(text: str) -> str:
    """Text that Markdown shows as it is, on one line."""
    flat = " ".join(text.split()).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*_\[\]|~#])", r"\\\1", flat)


def _code(text: str) -> str:
    return "`" + " ".join(text.split()).replace("`", "'").replace("|", "¦") + "`"


def _table(head: list[str], rows: list[list[str]], words: Sequence[int] = (0,)) -> str:
    """A table; the columns `words` stand to the left, the others, which hold figures, to the right."""
    lines = [head, ["---" if column in words else "---:" for column in range(len(head))], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _use(report: Report) -> Iterator[str]:
    texts = '"a first text", "a second text"' if report.task.pair else '"a text"'
    answer = "logits.item()" if report.scored else "model.config.id2label[logits.argmax().item()]"
    head = middle = ""
    if report.multilabel:
        head = "import json\nfrom pathlib import Path\n\n"
        middle = 'thresholds = json.loads(Path("potstill.json").read_text(encoding="utf-8"))["thresholds"]\n'
        answer = "[label for label, p in zip(thresholds, logits.sigmoid()[0]) if p >= thresholds[label]]"
    yield "## Use"
    yield f"""\
```python
{head}from transformers import AutoModelForSequenceClassification, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained(".")
model = AutoModelForSequenceClassification.from_pretrained(".").eval()
{middle}logits = model(**tokenizer({texts}, truncation=True, return_tensors="pt")).logits
print({answer})
```"""
    reads = "the rows of a file" if report.task.pair else "lines from standard input"
    answers, holds = ("a score", "") if report.scored else ("label and probabilities", "the labels, ")
    if report.multilabel:
        answers = "the labels, none or several, and probabilities"
        holds = "the labels, the probability from which on each is given, "
    yield (
        f"`potstill predict .` reads {reads} and answers with {answers}; "
        f"`potstill.json` holds {holds}the maximum length and what is done with longer texts."
    )
    if report.scored:
        spread = report.data.scores.get("train")
        seen = f": in its training texts from {number(spread.low)} to {number(spread.high)}" if spread else ""
        yield f"The one logit is the score{seen}; nothing keeps it between these."
        return
    labels = report.task.labels
    shown = ", ".join(_code(label) for label in labels[:30]) + (f" and {len(labels) - 30} more" if labels[30:] else "")
    yield f"Labels ({len(labels)}): {shown}."


def _scores(report: Report, student: Student) -> Iterator[str]:
    names = metric_names(report)
    rows = [_score_row("**Student**", student, names, report)]
    rows += [_score_row("Teacher", report.teacher, names, report)] if report.teacher.score else []
    if report.teachers is not None:
        more = enumerate(report.teachers.more, 2)
        rows += [_score_row(f"Teacher {number}", model, names, report) for number, model in more]
        rows.append(_score_row("Teachers together", report.teachers.together, names, report))
    titles = {key: baseline_name(key, scored=report.scored) for key in report.baselines}
    rows += [_score_row(_md(titles[key]), one, names, report) for key, one in report.baselines.items()]
    yield "## Scores"
    against = ", against the teacher's own answers" if report.against_teacher else ""
    yield f"On {report.judged_on} ({student.score.n:,} examples){against}, with 95 % bootstrap intervals."
    yield _table(["model", *map(metric_name, names), "parameters"], rows)


def _confidence(report: Report, student: Student) -> Iterator[str]:
    calibration = student.calibration
    if calibration is None:
        return
    before, after = (score(one.metrics["ece"].value, "ece") for one in (calibration.before, calibration.after))
    yield "## Confidence"
    if calibration.reason is not None:
        yield (
            f"Probabilities are those of the logits as they come (no temperature was fitted: {calibration.reason}). On "
            f"{report.judged_on} they are off by {before} on average (expected calibration error)."
        )
    else:
        value = f"{calibration.temperature:.4g}"
        yield (
            f"`potstill predict .` divides logits by a temperature of {value}, fitted to {calibration.n:,} dev "
            f"examples, before the softmax; with transformers, write `(logits / {value}).softmax(-1)`. On "
            f"{report.judged_on} this takes the expected calibration error from {before} to {after}. Answers stay as "
            "they are."
        )
    rows = []
    for wanted, row in wanted_rows(report):
        if row is not None:
            found = (row.judged_coverage, row.judged_precision)
            rows.append(
                [share(wanted, 0), f"{row.confidence:.4g}", *(share(one.value) if one else "–" for one in found)]
            )
    if rows:
        yield (
            "Doubtful answers can be withheld: `potstill predict . --wanted-precision 0.95`. Thresholds are chosen "
            f"where dev makes sure of the precision; coverage and precision are those on {report.judged_on}."
        )
        yield _table(["wanted precision", "answered from", "coverage", "precision"], rows, words=())


def _score_row(title: str, model: Teacher | ModelFacts | Baseline, names: list[str], report: Report) -> list[str]:
    metrics: Metrics = {**({report.task.primary_metric: model.score} if model.score else {}), **model.metrics}
    cells = [
        f"{score(metrics[name].value, name)} ({score_range(metrics[name].low, metrics[name].high, name)})"
        if name in metrics
        else "–"
        for name in names
    ]
    return [title, *cells, count(model.parameters) if model.parameters is not None else "–"]


def _exports(report: Report) -> Iterator[str]:
    accepted = [export for export in report.exports if export.accepted]
    if not accepted:
        return
    batches = sorted({batch for export in accepted for batch in export.latency_ms or {}}, key=int)
    metric = report.task.primary_metric
    head = ["export", "file", "size", f"dev {metric_name(metric)}"]
    compared = any(export.speedup for export in accepted)
    for batch in batches:
        head += [f"ms, batch {batch}", *([f"speed-up, batch {batch}"] if compared else [])]
    rows = []
    for export in accepted:
        row = [export_name(export.format, export.precision), _code(export.path) if export.path else "–"]
        row += [size(export.bytes) if export.bytes else "–", score(export.score.value, metric) if export.score else "–"]
        for batch in batches:
            time, ratio = (export.latency_ms or {}).get(batch), (export.speedup or {}).get(batch)
            row += [milliseconds(time.p50) if time else "–"]
            row += [f"{times(ratio)}×" if ratio else "–"] if compared else []
        rows.append(["**" + row[0] + "**" if export == report.best else row[0], *row[1:]])
    yield "## Exports"
    machine = ", ".join(f"{key} {value}" for key, value in facts(report.environment) if key in {"cpu", "threads"})
    over = "; speed-up over the teacher in PyTorch float32" if report.teacher.scores is None else ""
    yield (
        f"Median times a call on the dev texts, without tokenisation{over}."
        + (f" Machine: {_md(machine)}." if machine else "")
    )
    yield _table(head, rows, words=(0, 1))


def _others(report: Report) -> str:
    """Further teachers, as the card names them."""
    if report.teachers is None:
        return ""
    named = ", ".join(_code(model_name(model.source)) for model in report.teachers.more)
    return f"and the answers of {named} "


def _making(report: Report, student: Student) -> Iterator[str]:
    teacher = report.teacher
    yield "## How it was made"
    yield (
        f"Distilled with potstill {_md(report.potstill)} from {_code(model_name(teacher.source))} "
        f"({_teacher(teacher)}) "
        f"{_others(report)}into {_md(student.model_type)} {student.shape} (layers × width × feed-forward × heads; "
        f"start: {_md(student.start)})."
    )
    if report.recipe and report.recipe.stages:
        rows = []
        for stage in report.recipe.stages:
            terms = ", ".join(f"{_md(term.name)} × {setting(term.weight)}" for term in stage.terms) or "–"
            numbers = (stage.steps, stage.batch_size, stage.learning_rate)
            rows.append([_md(stage.name), *(f"{number:g}" if number is not None else "–" for number in numbers), terms])
        yield _table(["stage", "steps", "batch", "learning rate", "loss terms"], rows, words=(0, 4))


def _teacher(teacher: Teacher) -> str:
    if teacher.scores is not None:
        return _scores_in_words(teacher.scores)
    return f"{_md(teacher.model_type or '')} {teacher.shape}, {count(teacher.parameters or 0)} parameters"


def _scores_in_words(scores: ScoresFacts) -> str:
    number = sum(scores.covered.get(split, 0) for split in ("train", "unlabelled"))
    return f"a file of {scores.form}, for {number:,} of the texts learned from"


def _data(report: Report) -> Iterator[str]:
    data = report.data
    sizes = f"{data.train:,} training, {data.dev:,} dev"
    sizes += f" and {data.test:,} test examples" if data.test else " examples, no test split"
    more = [
        f"{number:,} {name}"
        for name, number in (("unlabelled", data.unlabelled), ("augmented", data.augmented))
        if number
    ]
    yield "## Data and licences"
    yield f"{sizes}{'; ' + ' and '.join(more) + ' texts' if more else ''}."
    rows = [
        [
            ", ".join(map(_md, part.roles)),
            _code(model_name(part.source)),
            _md(model_name(part.origin) if part.origin else "–"),
            _md(part.licence or "unknown"),
        ]
        for part in origins(report)
    ]
    if not any({"teacher", "scores"} & set(part.roles) for part in origins(report)):
        rows.append(
            ["teacher", _code(model_name(report.teacher.source)), "–", _md(report.teacher.licence or "unknown")]
        )
    yield _table(["used for", "source", "origin", "licence"], rows, words=range(4))
    yield (
        "The licence at the top is that of the model the student was made from; "
        "whether the licences of the data ask for more is for you to check."
    )
