import json
import re
import xml.etree.ElementTree as ET
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from potstill.report.figures import Reference, Series, bar, dot, line_chart, split_bar, thinned, ticks

numbers = st.floats(-1e6, 1e6, allow_nan=False)


def widths(svg):
    return [float(rect.get("width").rstrip("%")) for rect in ET.fromstring(svg).iter("rect")]


def test_bar_is_proportional_and_never_longer_than_its_box():
    assert widths(bar(3, 4, "student")) == [75.0]
    assert widths(bar(9, 4, "student")) == [100.0]
    assert widths(bar(0, 0, "student")) == [0.0]


def test_whisker_runs_from_the_bar_to_its_end():
    line = next(ET.fromstring(bar(2, 4, "teacher", whisker=3)).iter("line"))
    assert (line.get("x1"), line.get("x2")) == ("50.00%", "75.00%")
    assert "line" not in bar(2, 4, "teacher", whisker=1)


def test_split_bar_lengths_add_as_factors_multiply():
    engine, student = widths(split_bar(4, 8, 1024))
    assert (engine, student) == pytest.approx((20, 30), abs=0.01)
    assert sum(widths(split_bar(32, 32, 1024))) == pytest.approx(100, abs=0.02)
    assert widths(split_bar(0.5, 4, 1024))[0] == 0


def test_dot_stands_on_its_scale_or_points_beyond_it():
    inside = ET.fromstring(dot(0.5, 0.4, 0.7, (0.0, 1.0), "student", line=0.5))
    assert next(inside.iter("circle")).get("cx") == "50.00%"
    reference, interval = inside.iter("line")
    assert reference.get("x1") == "50.00%"
    assert float(interval.get("x1")[:-1]) < 50 < float(interval.get("x2")[:-1])
    for value, edge in ((-0.1, "0%"), (1.1, "100%")):
        outside = ET.fromstring(dot(value, value, value, (0.0, 1.0), "other"))
        assert not list(outside.iter("circle"))
        assert outside[0].get("x") == edge


@given(st.lists(numbers, min_size=1, max_size=400), st.integers(1, 50))
def test_thinned_keeps_range_order_and_the_mean_of_equal_runs(values, limit):
    series = Series("loss", list(range(len(values))), values, 0)
    short = thinned(series, limit)
    assert len(short.x) == len(short.y) == min(limit, len(values))
    assert min(values) - 1e-6 <= min(short.y) <= max(short.y) <= max(values) + 1e-6
    assert list(short.x) == sorted(short.x)
    if len(values) % limit == 0:
        assert sum(short.y) / len(short.y) == pytest.approx(sum(values) / len(values), abs=1e-4)


@given(numbers, st.floats(1e-3, 1e6))
def test_ticks_are_few_even_and_inside(low, span):
    found = ticks(low, low + span)
    assert 2 <= len(found) <= 8
    assert all(low - 1e-6 * span <= tick <= low + span * (1 + 1e-6) for tick in found)
    steps = {round((b - a) / span, 4) for a, b in pairwise(found)}
    assert max(steps) - min(steps) < 1e-3


def test_ticks_are_round():
    assert ticks(0, 1000) == [0, 200, 400, 600, 800, 1000]
    assert ticks(0.82, 0.9) == [0.82, 0.84, 0.86, 0.88, 0.9]
    assert ticks(3, 3) == [3]


@given(
    st.lists(st.tuples(st.integers(0, 10_000), st.floats(-50, 50)), min_size=1, max_size=40, unique_by=lambda p: p[0])
)
def test_every_point_lies_inside_the_frame(points):
    points.sort()
    chart = line_chart(
        [Series("a", *zip(*points, strict=True), 0)], title="t", x_label="step", reference=Reference("r", 1.0)
    )
    path = next(ET.fromstring(chart).iter("path")).get("d")
    places = [tuple(map(float, place.split())) for place in path[1:].split("L")]
    assert len(places) == len(points)
    assert all(50 <= x <= 402.1 and 13.9 <= y <= 196.1 for x, y in places)


def test_higher_values_stand_higher_on_either_kind_of_axis():
    for values in ([1.0, 2.0, 3.0], [0.01, 0.1, 5.0]):
        chart = line_chart([Series("a", [1, 2, 3], values, 0)], title="t", x_label="step")
        path = next(ET.fromstring(chart).iter("path")).get("d")
        heights = [float(place.split()[1]) for place in path[1:].split("L")]
        assert heights == sorted(heights, reverse=True)
        assert ("logarithmic" in chart) is (values[0] == 0.01)


def test_chart_escapes_names_and_carries_its_points():
    hostile = '"><script>alert(1)</script>'
    chart = line_chart([Series(hostile, [1, 2], [0.5, 0.25], 7)], title=hostile, x_label=hostile, percent=True)
    root = ET.fromstring(chart)
    assert not list(root.iter("script"))
    points = json.loads(root.get("data-chart"))
    assert points["percent"] is True
    assert points["series"][0]["name"] == hostile
    assert points["series"][0]["y"] == [0.5, 0.25]
    assert re.search(r'class="line s1"', chart)
