"""Pictures as inline SVG, drawn by hand: bars, dots with intervals, line charts.

Knows numbers and labels, no report. Colours, fonts and dark mode are the page's business: shapes carry classes
(`s0` … `s5` for series, `teacher`, `student`, `other`), and series differ in dashes too, for eyes and printers without
colour. Strips take their width from where they stand; charts have a fixed frame that the page scales.
"""

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from markupsafe import Markup, escape

__all__ = [
    "Reference",
    "Series",
    "bar",
    "dot",
    "line_chart",
    "reliability_diagram",
    "split_bar",
    "thinned",
    "ticks",
]

_WIDTH, _HEIGHT = 420.0, 230.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 50.0, 18.0, 14.0, 34.0
_MAX_POINTS = 120
_LOG_FROM = 20.0  # a positive series that spans this ratio is drawn on a logarithmic axis


@dataclass(frozen=True)
class Series:
    """A line: its name, its x and y values (same length, x ascending), and its style's number."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    style: int


@dataclass(frozen=True)
class Reference:
    """A horizontal line to compare with."""

    name: str
    value: float


def bar(value: float, maximum: float, kind: str, *, whisker: float | None = None) -> Markup:
    """A horizontal bar from 0 to `value` on a scale that ends at `maximum`, with a thin line on to `whisker`."""
    end = _percent(value, maximum)
    parts = [f'<rect class="{escape(kind)}" x="0" y="2" width="{end}" height="10" rx="2"/>']
    if whisker is not None and whisker > value:
        until = _percent(whisker, maximum)
        parts.append(f'<line class="whisker" x1="{end}" x2="{until}" y1="7" y2="7"/>')
        parts.append(f'<line class="whisker" x1="{until}" x2="{until}" y1="3" y2="11"/>')
    return _strip("".join(parts), 14)


def split_bar(first: float, second: float, maximum: float) -> Markup:
    """Two factors ≥ 1 end to end on a logarithmic scale that ends at `maximum`: their lengths add as they multiply.

    A factor below 1 is drawn as nothing.
    """
    whole = math.log(max(maximum, 1.01))
    ends = [100 * math.log(max(first, 1.0)) / whole, 100 * math.log(max(first * second, first, 1.0)) / whole]
    return _strip(
        f'<rect class="engine" x="0" y="2" width="{ends[0]:.2f}%" height="10"/>'
        f'<rect class="student" x="{ends[0]:.2f}%" y="2" width="{max(ends[1] - ends[0], 0):.2f}%" height="10"/>',
        14,
    )


def dot(
    value: float, low: float, high: float, scale: tuple[float, float], kind: str, *, line: float | None = None
) -> Markup:
    """A value as a dot with its interval, on a scale (start, end); `line` marks another value to compare with.

    A value off the scale is an arrow at the edge that it lies beyond.
    """
    start, end = scale

    def place(number: float) -> str:
        return f"{min(max(3 + 94 * (number - start) / (end - start or 1), 0), 100):.2f}%"

    marks = [] if line is None else [f'<line class="reference" x1="{place(line)}" x2="{place(line)}" y1="0" y2="18"/>']
    if start <= value <= end:
        marks.append(f'<line class="interval {escape(kind)}" x1="{place(low)}" x2="{place(high)}" y1="9" y2="9"/>')
        marks.append(f'<circle class="{escape(kind)}" cx="{place(value)}" cy="9" r="4.5"/>')
    else:
        edge, arrow = (0, "M1 9l8-5v10z") if value < start else (100, "M-1 9l-8-5v10z")
        marks.append(f'<svg x="{edge}%" overflow="visible"><path class="{escape(kind)}" d="{arrow}"/></svg>')
    return _strip("".join(marks), 18)


def _percent(value: float, maximum: float) -> str:
    return f"{min(100 * value / maximum if maximum > 0 else 0, 100):.2f}%"


def _strip(content: str, height: int) -> Markup:
    return Markup(f'<svg class="strip" width="100%" height="{height}" aria-hidden="true">{content}</svg>')


def thinned(series: Series, limit: int = _MAX_POINTS) -> Series:
    """At most `limit` points: each the mean of a run of neighbours; the series itself where it is short enough."""
    length = len(series.x)
    if length <= limit:
        return series
    bounds = [round(index * length / limit) for index in range(limit + 1)]
    runs = [slice(start, end) for start, end in pairwise(bounds)]
    x = [sum(series.x[run]) / (run.stop - run.start) for run in runs]
    y = [sum(series.y[run]) / (run.stop - run.start) for run in runs]
    return Series(series.name, x, y, series.style)


def ticks(low: float, high: float, wanted: int = 5) -> list[float]:
    """Round numbers from `low` to `high`, about `wanted` of them."""
    span = high - low
    if span <= 0 or not math.isfinite(span):
        return [low]
    raw = span / wanted
    magnitude = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * magnitude for factor in (1, 2, 2.5, 5, 10) if factor * magnitude >= raw * 0.999)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(index * step, 12) for index in range(first, last + 1)]


def _log_ticks(low: float, high: float) -> list[float]:
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    factors = (1,) if len(decades) > 4 else (1, 3) if len(decades) > 2 else (1, 2, 5)
    return [factor * 10.0**d for d in decades for factor in factors if low * 0.999 <= factor * 10.0**d <= high * 1.001]


@dataclass(frozen=True)
class _Axis:
    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        low, high, value = (
            (math.log(v) for v in (self.low, self.high, value)) if self.log else (self.low, self.high, value)
        )
        return self.start + (self.end - self.start) * (value - low) / (high - low or 1)

    def ticks(self) -> list[float]:
        return _log_ticks(self.low, self.high) if self.log else ticks(self.low, self.high)


def _y_axis(values: Sequence[float], from_zero: bool) -> _Axis:
    low, high = min(values), max(values)
    log = low > 0 and high / low >= _LOG_FROM
    if log:
        return _Axis(low / 1.15, high * 1.15, _HEIGHT - _BOTTOM, _TOP, log=True)
    if from_zero:
        low, high = min(0.0, low), max(high, 0.0) * 1.05
    pad = (high - low) * 0.08 or abs(high) * 0.05 or 1.0
    low = low if from_zero and low == 0 else low - pad
    return _Axis(low, high + (0 if from_zero else pad), _HEIGHT - _BOTTOM, _TOP)


def line_chart(
    series: Sequence[Series],
    *,
    title: str,
    x_label: str,
    percent: bool = False,
    x_percent: bool = False,
    from_zero: bool = False,
    reference: Reference | None = None,
) -> Markup:
    """Lines over a common x axis.

    Args:
        series: At least one, each with at least one point.
        title: What a screen reader says.
        x_label: Stands under the axis.
        percent: The y values are fractions, shown as percentages.
        x_percent: So are the x values.
        from_zero: The y axis begins at 0 (where it is not logarithmic).
        reference: A horizontal line with a name.

    Returns:
        An SVG; its `data-chart` attribute holds the points for the page's pointer read-out.
    """
    lines = [thinned(one) for one in series]
    xs = [x for one in lines for x in one.x]
    ys = [y for one in lines for y in one.y] + ([reference.value] if reference else [])
    across = _Axis(min(0, *xs), max(1, *xs), _LEFT, _WIDTH - _RIGHT)
    up = _y_axis(ys, from_zero)
    content = [
        *_grid(across, up, x_label, (x_percent, percent)),
        *_reference(reference, up),
        *(_line(one, across, up) for one in lines),
    ]
    return _chart(lines, across, content, title, x_label, (x_percent, percent))


def reliability_diagram(series: Sequence[Series], weights: Sequence[Sequence[float]], *, title: str) -> Markup:
    """How often answers are right (y) by how sure they are (x), beside the diagonal on which the two are the same.

    Args:
        series: At least one, each with at least one point; x and y are fractions. An axis begins at its lowest.
        weights: One for each point, 0 … 1: the share of the answers that it stands for, drawn as its area.
        title: What a screen reader says.

    Returns:
        As of `line_chart`.
    """
    starts = [
        min(0.9, math.floor(10 * min(values)) / 10)
        for values in ([x for one in series for x in one.x], [y for one in series for y in one.y])
    ]
    across = _Axis(starts[0], 1.0, _LEFT, _WIDTH - _RIGHT)
    up = _Axis(starts[1] - 0.04, 1.0, _HEIGHT - _BOTTOM, _TOP)  # so that the axes' first labels stand apart
    x_label, percent, same = "how sure", (True, True), max(starts)
    content = [
        *_grid(across, up, x_label, percent),
        f'<line class="reference" x1="{across(same):.1f}" y1="{up(same):.1f}" x2="{across.end:g}" y2="{up.end:g}"/>',
        *(_line(one, across, up, sizes) for one, sizes in zip(series, weights, strict=True)),
    ]
    return _chart(series, across, content, title, x_label, percent)


def _chart(
    lines: Sequence[Series],
    across: _Axis,
    content: Sequence[str],
    title: str,
    x_label: str,
    percent: tuple[bool, bool],
) -> Markup:
    """The frame, with the points for the page's read-out; `percent`: whether x, and y, are fractions."""
    points = {
        "x": x_label,
        "x_percent": percent[0],
        "percent": percent[1],
        "series": [
            {"name": one.name, "x": _rounded(one.x), "y": _rounded(one.y), "px": [round(across(x), 1) for x in one.x]}
            for one in lines
        ],
    }
    return Markup(
        f'<svg class="chart" viewBox="0 0 {_WIDTH:g} {_HEIGHT:g}" role="img" aria-label="{escape(title)}" '
        f'data-chart="{escape(json.dumps(points))}">{"".join(content)}'
        f'<line class="cursor" y1="{_TOP:g}" y2="{_HEIGHT - _BOTTOM:g}" x1="-9" x2="-9"/></svg>'
    )


def _rounded(values: Sequence[float]) -> list[float]:
    return [float(f"{value:.5g}") for value in values]


def _grid(across: _Axis, up: _Axis, x_label: str, percent: tuple[bool, bool]) -> Iterator[str]:
    for value in up.ticks():
        y = up(value)
        label = _tick(value, percent[1])
        yield f'<line class="grid" x1="{_LEFT:g}" x2="{_WIDTH - _RIGHT:g}" y1="{y:.1f}" y2="{y:.1f}"/>'
        yield f'<text class="y" x="{_LEFT - 6:g}" y="{y + 4:.1f}">{label}</text>'
    for value in across.ticks():
        label = _tick(value, percent[0])
        yield f'<text class="x" x="{across(value):.1f}" y="{_HEIGHT - _BOTTOM + 15:g}">{label}</text>'
    yield f'<text class="axis" x="{_WIDTH - _RIGHT:g}" y="{_HEIGHT - 3:g}">{escape(x_label)}</text>'
    if up.log:
        yield f'<text class="axis" x="{_WIDTH - _RIGHT:g}" y="{_TOP:g}">logarithmic</text>'


def _tick(value: float, percent: bool) -> str:
    return f"{100 * value:.4g} %" if percent else _short(value)


def _short(value: float) -> str:
    if abs(value) >= 1e5:
        return f"{value / 1e6:.3g}M" if abs(value) >= 1e6 else f"{value / 1e3:.3g}k"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _reference(reference: Reference | None, up: _Axis) -> Iterator[str]:
    if reference:
        y = up(reference.value)
        yield f'<line class="reference" x1="{_LEFT:g}" x2="{_WIDTH - _RIGHT:g}" y1="{y:.1f}" y2="{y:.1f}"/>'
        above = y - 5 if y > _TOP + 14 else y + 14
        yield f'<text class="reference" x="{_WIDTH - _RIGHT - 2:g}" y="{above:.1f}">{escape(reference.name)}</text>'


def _line(series: Series, across: _Axis, up: _Axis, weights: Sequence[float] = ()) -> str:
    """A line; its points are marked where they are few, or by their weights, 0 … 1, as areas."""
    places = [(across(x), up(y)) for x, y in zip(series.x, series.y, strict=True)]
    path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in places)
    radii = [2 + 9 * math.sqrt(weight) for weight in weights] or [3.0] * len(places)
    few = weights or len(places) <= 12
    drawn = zip(places, radii, strict=True) if few else ()
    marks = "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:.3g}"/>' for (x, y), radius in drawn)
    return f'<g class="line s{series.style % 6}"><path d="{path}"/>{marks}</g>'
