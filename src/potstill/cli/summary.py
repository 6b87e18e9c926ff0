"""A finished run, or a planned one, in a few lines of text."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from potstill.cli.pace import duration

__all__ = [
    "finetune_lines",
    "label_lines",
    "last_line",
    "metric_lines",
    "plan_lines",
    "pretrain_lines",
    "summary_lines",
]


def last_line(folder: Path) -> str:
    """Where the report is: the one line that is shown even when quiet."""
    return f"report: {folder / 'report.html'}"


def summary_lines(report: Mapping[str, Any]) -> list[str]:
    """What a finished run found.

    Args:
        report: report.json.
    """
    from potstill.report.wording import DECIMALS, metric_name

    name = report["task"]["primary_metric"]
    metric = metric_name(name)
    lines = [report["conclusion"], ""]
    scores = report["teacher"].get("scores")
    if scores is not None:
        lines += _scores_lines(report, metric)
        metric = metric if scores["gold"].get(report["judged_on"]) else "agreement"
    shown = _decimals if name in DECIMALS else _percent
    for role in ("teacher", "student") if scores is None else ("student",):
        model = report[role]
        lines.append(
            f"{role:<8} {model['shape']:<16} {model['parameters'] / 1e6:7.2f} M parameters  {metric}"
            f" {shown(model['score'])}  ({report['judged_on']}, n = {model['score']['n']:,})"
        )
    if (teachers := report.get("teachers")) is not None:
        more = ", ".join(shown(model["score"]) for model in teachers["more"])
        lines.insert(3, f"further teachers {more}; all together {shown(teachers['together']['score'])}")
    if report.get("retention") is not None:
        lines.append(f"kept     {_percent(report['retention'])} of the teacher's {metric}")
    lines += _confidence_lines(report)
    best = report.get("best_export")
    for export in report["exports"]:
        if best and (export["format"], export["precision"]) == (best["format"], best["precision"]):
            name = f"fastest  {export['format']} {export['precision']}"
            if export.get("speedup"):
                times = ", ".join(f"{speed:.1f} times at batch {batch}" for batch, speed in export["speedup"].items())
                lines.append(f"{name}: {times} faster than the teacher in torch float32")
            else:
                times = ", ".join(f"{t['p50']:.2f} ms at batch {batch}" for batch, t in export["latency_ms"].items())
                lines.append(f"{name}: {times}")
    lines += [f"refused  {e['format']} {e['precision']}: {e['reason']}" for e in report["exports"] if not e["accepted"]]
    return [*lines, f"time     {duration(report['seconds']['total'])}", ""]


def _confidence_lines(report: Mapping[str, Any]) -> list[str]:
    """How sure the student is, against how often it is right."""
    found = report["student"].get("calibration")
    if found is None:
        return []
    before, after = (_percent(found[when]["metrics"]["ece"]) for when in ("before", "after"))
    if found["reason"] is not None:
        return [f"sure     calibration error {before}; no temperature: on dev {found['reason']}"]
    return [f"sure     calibration error {after} at temperature {found['temperature']:.3g}, {before} without"]


def _scores_lines(report: Mapping[str, Any], metric: str) -> list[str]:
    teacher = report["teacher"]
    scores, own, judged = teacher["scores"], teacher.get("score"), report["judged_on"]
    line = f"teacher  {scores['rows']:,} rows of {scores['form']}"
    if own is not None:
        line += f"  {metric} {_percent(own)}  ({judged}, n = {own['n']:,})"
    elif not scores["gold"].get(judged):
        line += f"  ({judged} has no gold labels: the student is judged against these answers)"
    else:
        line += f"  ({scores['covered'].get(judged, 0):,} rows of {judged} have a score)"
    return [line, *(f"note     {note}" for note in (report.get("recipe") or {}).get("notes", []))]


def _percent(value: Mapping[str, float]) -> str:
    return f"{100 * value['value']:.1f} % [{100 * value['low']:.1f}, {100 * value['high']:.1f}]"


def _decimals(value: Mapping[str, float]) -> str:
    return f"{value['value']:.3f} [{value['low']:.3f}, {value['high']:.3f}]"


def finetune_lines(made: Mapping[str, Any]) -> list[str]:
    """What a fine-tuning found.

    Args:
        made: finetune.json.
    """
    model, training, counts = made["model"], made["training"], made["data"]
    lines = [
        f"model     {model['shape']}, {model['parameters'] / 1e6:.2f} M parameters, {model['model_type']}, up to "
        f"{model['max_length']} tokens",
        f"read      {training['epochs']:.2f} times {counts['train']:,} rows, batch {training['batch_size']}, rate "
        f"{training['learning_rate']:g}",
    ]
    for split, metrics in made["metrics"].items():
        lines += metric_lines(metrics, f"{split:<8}", counts[split])
    return [*lines, f"time      {duration(made['seconds']['total'])}", ""]


def metric_lines(metrics: Mapping[str, Mapping[str, float]], head: str, n: int) -> list[str]:
    """A line a metric, with its 95 % interval.

    Args:
        metrics: By name, each with `value`, `low` and `high`.
        head: Stands before the first line; the others are indented as far.
        n: Number of examples, said in the first line.
    """
    from potstill.report.wording import DECIMALS, metric_name

    lines = []
    for number, (name, found) in enumerate(metrics.items()):
        shown = _decimals if name in DECIMALS else _percent
        lines.append(f"{'' if number else head:<{len(head)}}  {metric_name(name):<20} {shown(found)}")
        if number == 0:
            lines[0] += f"  (n = {n:,})"
    return lines


def label_lines(labels: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """A table of how well each label is found.

    Args:
        labels: By name, each with `precision`, `recall` and `f1` (`value`, `low`, `high`), and `support`.
    """
    rows = [["label", "support", "precision", "recall", "F1"]]
    for name, found in labels.items():
        rows.append([name, f"{found['support']:,}", *(_percent(found[key]) for key in ("precision", "recall", "f1"))])
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    return ["  ".join(part.ljust(size) for part, size in zip(row, widths, strict=True)).rstrip() for row in rows]


def pretrain_lines(made: Mapping[str, Any]) -> list[str]:
    """What a pre-training found.

    Args:
        made: pretrain.json.
    """
    judged, model, text = made["held_out"], made["model"], made["text"]
    lines = [
        f"model     {model['shape']}, {model['parameters'] / 1e6:.2f} M parameters, {model['model_type']}",
        f"read      {made['training']['epochs']:.2f} times {text['train']['tokens']:,} tokens",
        f"held out  loss {judged['loss']:.3f} nats, perplexity {judged['perplexity']:.1f}, "
        f"{100 * judged['accuracy']:.1f} % right ({judged['places']:,} guesses)",
        f"by frequency alone: {judged['unigram_entropy']:.3f} nats, {100 * judged['unigram_accuracy']:.1f} % right",
    ]
    if (before := made["before"]) is not None:
        lines.insert(2, f"before    loss {before['loss']:.3f} nats, {100 * before['accuracy']:.1f} % right")
    lines += [f"but       {caution}" for caution in made["cautions"]]
    return [*lines, f"time      {duration(made['seconds']['total'])}", ""]


def plan_lines(plan: Mapping[str, Any]) -> list[str]:
    """What a run would do.

    Args:
        plan: `stages`, each with `name` and, where known, `detail`, `seconds` (None: not known) and `done`;
            `seconds` and `disk_bytes` of the whole; `out`, the run folder; `notes`, lines of text on sizes.
    """
    stages = plan["stages"]
    width = max((len(stage["name"]) for stage in stages), default=0)
    lines = []
    for stage in stages:
        seconds = stage.get("seconds")
        state = "done" if stage.get("done") else f"about {duration(seconds)}" if seconds is not None else ""
        lines.append(f"{stage['name']:<{width}}  {state:<18}  {stage.get('detail', '')}".rstrip())
    lines += [str(note) for note in plan.get("notes", [])]
    if plan.get("seconds") is not None:
        lines.append(f"time: about {duration(plan['seconds'])}")
    if plan.get("disk_bytes") is not None:
        lines.append(f"disk: about {plan['disk_bytes'] / 1e6:,.0f} MB in {plan['out']}")
    return lines
