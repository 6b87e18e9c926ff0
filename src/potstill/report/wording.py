"""Figures as words: percentages, counts, sizes, times; and texts of strangers made fit to show.

Knows no report. A space between a figure and its unit is a plain one; the page makes it unbreakable.
"""

import re
import unicodedata
from collections.abc import Mapping
from typing import Any

__all__ = [
    "CONSTANTS",
    "CORRELATIONS",
    "DECIMALS",
    "answer",
    "baseline_name",
    "clean",
    "clean_text",
    "count",
    "duration",
    "export_name",
    "metric_name",
    "milliseconds",
    "model_name",
    "number",
    "score",
    "score_range",
    "setting",
    "share",
    "share_range",
    "shortened",
    "size",
    "times",
]

_METRICS = {
    "accuracy": "accuracy",
    "macro_f1": "macro F1",
    "f1": "F1",
    "matthews": "Matthews correlation",
    "pearson": "Pearson correlation",
    "spearman": "Spearman correlation",
    "rmse": "RMSE",
    "ece": "expected calibration error",
    "nll": "negative log-likelihood",
    "brier": "Brier score",
    "micro_f1": "micro F1",
    "exact_match": "exact match",
}
CORRELATIONS = frozenset({"matthews", "pearson", "spearman"})
"""Metrics from -1 to 1."""

DECIMALS = CORRELATIONS | {"rmse", "nll", "brier"}
"""Metrics that are no share of anything, shown as decimals."""

_BASELINES = {
    "hard_labels": "Same student, labels only",
    "tfidf_logistic": "TF-IDF + logistic regression",
    "tfidf_ridge": "TF-IDF + ridge regression",
    "tfidf_one_vs_rest": "TF-IDF + logistic regression a label",
    "small_pretrained": "Small pre-trained model",
    "majority": "Commonest label",
    "mean": "Mean score",
    "constant_set": "Best constant set",
}
_OF_SCORES = {"hard_labels": "Same student, scores only"}
CONSTANTS = ("majority", "mean", "constant_set")
"""Baselines that answer every text alike."""

_FORMATS = {"torch": "PyTorch", "onnx": "ONNX", "openvino": "OpenVINO"}
_SECRET_PATHS = re.compile(r"^(~|\.{0,2}/|[A-Za-z]:[\\/])")


def metric_name(name: str) -> str:
    """A metric's name in a sentence: "macro F1" for "macro_f1"."""
    return _METRICS.get(name, name.replace("_", " "))


def baseline_name(name: str, *, scored: bool = False) -> str:
    """A baseline's title: "TF-IDF + logistic regression" for "tfidf_logistic"; `scored` where answers are scores."""
    if scored and name in _OF_SCORES:
        return _OF_SCORES[name]
    return _BASELINES.get(name, name.replace("_", " ").capitalize())


def answer(value: str | list[str]) -> str:
    """A label as it is, a set of labels as a list of words."""
    return value if isinstance(value, str) else ", ".join(value) or "no label"


def export_name(format: str, precision: str) -> str:
    """An export's title: "OpenVINO bfloat16"."""
    return f"{_FORMATS.get(format, format)} {precision}"


def share(value: float, digits: int = 1) -> str:
    """A fraction as a percentage: 0.984 → "98.4 %"."""
    return f"{100 * value:.{digits}f} %"


def share_range(low: float, high: float) -> str:
    """Two fractions as a range of percentages: "97.1–99.7 %"."""
    return f"{100 * low:.1f}–{100 * high:.1f} %"


def score(value: float, metric: str) -> str:
    """A metric's value: a percentage, or three decimals for what is no share."""
    return f"{value:.3f}" if metric in DECIMALS else share(value)


def score_range(low: float, high: float, metric: str) -> str:
    """The interval of a metric's value, in the same unit as `score`."""
    if metric not in DECIMALS:
        return share_range(low, high)
    return f"{low:.3f} to {high:.3f}" if low < 0 else f"{low:.3f}–{high:.3f}"


def number(value: float) -> str:
    """A score with two decimals, large ones with fewer and small ones with more: 3.8 → "3.80", 41236.4 → "41,236"."""
    size = abs(value)
    return (
        f"{value:,.0f}"
        if size >= 1000
        else f"{value:.3g}"
        if 0 < size < 0.01
        else f"{value:.{2 if size < 100 else 1}f}"
    )


def times(ratio: float) -> str:
    """A ratio to two or three figures, without a unit: 7.63 → "7.6", 23.4 → "23"."""
    return f"{ratio:.2f}" if ratio < 1 else f"{ratio:.1f}" if ratio < 9.95 else f"{ratio:,.0f}"


def count(number: float) -> str:
    """A count to four figures: 14350248 → "14.35 M"; below ten thousand as it is."""
    if number < 10_000:
        return f"{number:,.0f}"
    for unit, scale in (("B", 1e9), ("M", 1e6)):
        if number >= scale:
            return f"{number / scale:.4g} {unit}"
    return f"{number:,.0f}"


def size(number: float) -> str:
    """Bytes in decimal units: 57400992 → "57.4 MB"."""
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if number >= scale:
            return f"{number / scale:,.{0 if number >= 99.95 * scale else 1}f} {unit}"
    return f"{number:.0f} B"


def milliseconds(value: float) -> str:
    """A time in milliseconds to three figures, without its unit: 0.4123 → "0.412"."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.{3 if value < 1 else 2 if value < 10 else 1}f}"


def duration(seconds: float) -> str:
    """A time in the units a person would use: 581.2 → "9 min 41 s"."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    hours, minutes, rest = whole // 3600, whole % 3600 // 60, whole % 60
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def model_name(source: str) -> str:
    """A source as a name to show: the last part of a path (whose folders are nobody's business), else as it is."""
    return re.split(r"[\\/]", source.rstrip("\\/"))[-1] if _SECRET_PATHS.match(source) else source


def shortened(text: str, limit: int = 600) -> tuple[str, int]:
    """The first `limit` characters of a text, and how many were left out."""
    return (text, 0) if len(text) <= limit else (text[:limit], len(text) - limit)


def clean_text(text: str) -> str:
    """A text that any page and any file can hold.

    Lone surrogates, which have no UTF-8, become U+FFFD; control characters other than tab and line ends become the
    picture of themselves (NUL → ␀).
    """
    if text.isprintable():
        return text
    return "".join(_visible(character) for character in text)


def _visible(character: str) -> str:
    category = unicodedata.category(character)
    if category == "Cs":
        return "\N{REPLACEMENT CHARACTER}"
    if category != "Cc" or character in "\t\n\r":
        return character
    code = ord(character)
    return chr(0x2400 + code) if code < 32 else "\N{SYMBOL FOR DELETE}" if code == 127 else "\N{REPLACEMENT CHARACTER}"


def clean(value: Any) -> Any:
    """The same JSON value with every string, keys too, made fit by `clean_text`."""
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, Mapping):
        return {clean(key): clean(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [clean(item) for item in value]
    return value


def setting(value: float | tuple[float, float]) -> str:
    """A weight or a temperature; one that moves in a training as its first and its last value."""
    return f"{value:g}" if isinstance(value, int | float) else " → ".join(f"{end:g}" for end in value)
