"""An ablation's page and sentences, on made-up figures."""

import copy

import pytest
from tests.report.test_html import LOADING, Page

from potstill.cli.ablation_lines import ablation_lines, cell_lines
from potstill.report.ablation import difference, findings, interval, render_ablation


def metric(value: float, spread: float = 0.01) -> dict:
    return {"value": value, "low": value - spread, "high": value + spread, "n": 500}


def cell(name: str, gap: float | None, *, paper: tuple[int, float] | None = None, refused: str | None = None) -> dict:
    done = refused is None
    return {
        "name": name,
        "title": f"about {name}",
        "group": "recipe" if name == "full" else "losses",
        "changes": {"distill.weights.hidden": 0.0, "general.texts": [], "student.layers": None},
        "paper": paper
        and {"table": paper[0], "name": "w/o it", "average": paper[1], "difference": (paper[1] - 75.6) / 100},
        "refused": refused,
        "seeds": [{"seed": s, "dev": 0.8, "test": None, "steps": 10, "planned": 9, "seconds": 1.0} for s in (0, 1)]
        if done
        else [],
        "dev": metric(0.8) if done else None,
        "test": None,
        "difference": None if gap is None else metric(gap),
        "test_difference": None,
        "steps": 10.0 if done else None,
        "seconds": 90.0 if done else None,
    }


MADE = {
    "schema_version": 1,
    "potstill": "0",
    "name": "<b>ours</b>",
    "created": "2026-01-02T03:04:05+00:00",
    "complete": True,
    "recipe": "potstill",
    "task": {"kind": "classification", "labels": ["a", "b"], "primary_metric": "accuracy", "pair": False},
    "data": {"train": 8000, "dev": 500, "test": None},
    "teacher": {"source": "t", "shape": "6x384", "dev": metric(0.9)},
    "student": {"shape": "4x312", "start": "shrunk"},
    "seeds": [0, 1],
    "minutes": 1.5,
    "steps": None,
    "cells": [
        cell("full", None, paper=(2, 75.6)),
        cell("no-hidden", -0.05, paper=(3, 72.9)),
        cell("no-hard", 0.004),
        cell("with-embedding", 0.03),
        cell("no-transformer", -0.1, paper=(3, 56.3)),
        cell("layers-start", None, refused="<script>wide</script>"),
    ],
    "paper": {"title": "TinyBERT", "arxiv": "1909.10351", "what": "an average"},
    "environment": {},
    "settings": {},
}


def test_differences_have_a_sign_and_no_negative_zero() -> None:
    assert difference(-0.0123, "accuracy") == "−1.2"
    assert difference(0.031, "accuracy") == "+3.1"
    assert difference(-0.0001, "accuracy") == "0.0"
    assert difference(-0.0123, "matthews") == "−0.012"
    assert interval(metric(-0.02), "accuracy") == "−2.0 [−3.0, −1.0]"


def test_the_sentences_say_what_the_intervals_allow() -> None:
    worse, better, unclear, refused = findings(MADE)
    assert worse.startswith("Worse than the full recipe, in points: no-transformer −10.0")
    assert "no-hidden −5.0 [−6.0, −4.0]." in worse
    assert better == "Better than the full recipe, in points: with-embedding +3.0 [+2.0, +4.0]."
    assert unclear.endswith("no-hard +0.4 [−0.6, +1.4].")
    assert refused == "Refused: layers-start."


def test_the_page_is_whole_loads_nothing_and_trusts_no_text() -> None:
    page = Page(render_ablation(MADE))
    assert len(page.ids) == len(set(page.ids))
    loading = [(name, value) for _, name, value in page.attributes if name in LOADING]
    assert {value for name, value in loading if name != "href"} == set()
    assert all(value.startswith(("data:", "https://arxiv.org/", "#")) for _, value in loading)
    assert "<b>ours</b>" in page.text
    assert "refused: <script>wide</script>" in page.text
    assert "each cell: 1 min 30 s of training, 2 seeds" in page.text
    assert "8,000 texts" in page.text
    for name in ("no-hidden", "no-hard", "with-embedding", "no-transformer", "layers-start"):
        assert f"about {name}" in page.text
    assert "general.texts = [], student.layers = not set" in page.text


def test_the_paper_stands_on_the_same_scale_as_ours() -> None:
    made = copy.deepcopy(MADE)
    made["cells"] = [made["cells"][0], cell("no-hidden", -0.05, paper=(3, 72.9))]
    made["cells"][1]["difference"] = {"value": -0.027, "low": -0.08, "high": 0.02, "n": 9}
    page = render_ablation(made)
    # −2.7 points, in the paper and here: the same place between −8 and +2.
    place = f"{3 + 94 * (-0.027 + 0.08) / 0.1:.2f}%"
    assert f'<circle class="student" cx="{place}"' in page
    assert f'<circle class="other" cx="{place}"' in page


def test_one_cell_far_off_does_not_flatten_the_picture() -> None:
    made = copy.deepcopy(MADE)
    made["cells"].append(cell("random-start", -0.6))
    page = render_ablation(made)
    assert "<span>−22.0</span><span>+4.0</span>" in page, "twice the lowest of the others"
    assert '<path class="student"' in page, "an arrow in its place"


@pytest.mark.parametrize("test", [False, True])
def test_the_terminal_has_a_row_for_each_cell(test: bool) -> None:
    made = copy.deepcopy(MADE)
    if test:
        made["data"]["test"] = 300
        for one in made["cells"][1:5]:
            one["test_difference"] = metric(-0.01)
    lines = ablation_lines(made)
    assert [line.split()[0] for line in lines[1:7]] == [one["name"] for one in made["cells"]]
    assert lines[2].split()[-1] == "−2.7"
    assert ("on test" in lines[0]) == test
    assert any("layers-start: <script>wide</script>" in line for line in lines)
    assert cell_lines([{"name": "a", "title": "b", "refused": "c"}]) == ["a  b  (refused: c)"]
    assert render_ablation(made if not test else {**made, "cells": with_test(made["cells"])})


def with_test(cells: list[dict]) -> list[dict]:
    return [{**one, "test": metric(0.7)} if one["dev"] else one for one in cells]
