"""Reports whose teacher is a file of scores: what may be absent, what must be, and what the page and the card say."""

from typing import Any

import pytest

from potstill.errors import DataError
from potstill.report import conclude, render_card, render_html, validate


@pytest.fixture
def scored(full: dict[str, Any]) -> dict[str, Any]:
    """The full sample, taught by a file that covers dev and test."""
    kept = ("source", "licence", "origin", "score", "metrics", "dev", "confusion")
    full["teacher"] = {key: full["teacher"][key] for key in kept if key in full["teacher"]} | {
        "source": "/home/somebody/scores.csv",
        "origin": "/home/somebody/scores.csv",
        "scores": {
            "form": "probabilities",
            "rows": 5000,
            "empty": 3,
            "joined": {"train": "text", "test": "text"},
            "covered": {"train": 4000, "dev": full["data"]["dev"], "test": full["data"]["test"]},
            "gold": {"train": True, "dev": True, "test": True},
            "train": None,
        },
    }
    full["size_ratio"] = None
    full["teacher_latency_ms"] = {}
    full["recipe"]["notes"] = ["left out of potstill: hidden (answers show no inner states)"]
    for export in full["exports"]:
        for key in ("speedup", "engine_share", "student_share"):
            export[key] = None
    path = "/home/somebody/scores.csv"
    full["data"]["sources"].append({"role": "scores", "source": path, "origin": path})
    for part in full["data"]["sources"]:
        if part["role"] == "teacher":
            part |= {"role": "start", "source": "pypi:minilm", "origin": "nreimers/MiniLM-L6-H384-uncased@main"}
    return full


@pytest.fixture
def uncovered(scored: dict[str, Any]) -> dict[str, Any]:
    """The same, without a score on the split that judges."""
    for key in ("score", "metrics", "confusion"):
        scored["teacher"].pop(key)
    for key in ("retention", "gap_closed", "student_errors"):
        scored[key] = None
    scored["disagreements"] = []
    scored["teacher"]["scores"]["covered"]["test"] = 17
    return scored


def test_what_is_kept_of_scores(scored: dict[str, Any]) -> None:
    said = conclude(scored)
    assert said.startswith("The student keeps ")
    assert "its teacher being a file of scores" in said
    assert "faster" not in said
    assert "smaller" not in said
    page = render_html(scored)
    for words in ("there is no model to compare with", "5,000 rows of probabilities, 3 of them empty", "by text"):
        assert words in page
    assert "Left out of potstill: hidden" in page
    assert "Compared with the teacher" not in page


def test_unsteady_times_are_cautioned_without_speed_ups_too(scored: dict[str, Any]) -> None:
    assert "unsteady" not in conclude(scored)
    best = next(e for e in scored["exports"] if e["format"] == scored["best_export"]["format"])
    for export in scored["exports"]:
        export["latency_ms"]["1"]["p95"] = 10 * export["latency_ms"]["1"]["p50"]
    assert best["speedup"] is None
    assert "take the times as rough" in conclude(scored)


def test_the_card_names_the_base_and_no_folder(scored: dict[str, Any]) -> None:
    card = render_card(scored)
    assert 'base_model: "nreimers/MiniLM-L6-H384-uncased"' in card
    assert "from `scores.csv` (a file of probabilities, for 4,000 of the texts learned from)" in card
    assert "| Teacher |" in card
    assert "/home/somebody" not in card
    assert "speed-up over" not in card
    assert "speed-up, batch" not in card


def test_without_a_score_of_the_teacher_the_student_stands_alone(uncovered: dict[str, Any]) -> None:
    said = conclude(uncovered)
    assert "the scores that taught it answer 17 of these texts" in said
    assert "what it keeps of its teacher cannot be told" in said
    assert "| Teacher |" not in render_card(uncovered)
    page = render_html(uncovered)
    assert "its scores do not cover these texts" in page
    assert "Score kept" not in page


def test_judged_against_itself_is_said_first(uncovered: dict[str, Any]) -> None:
    uncovered["teacher"]["scores"]["gold"] = {"train": False, "dev": False, "test": False}
    said = conclude(uncovered)
    assert "gives the teacher's own answer to" in said.split(";")[0]
    assert "nothing is known of whether these answers are right" in said
    assert "Agreement with the teacher" in render_html(uncovered)
    assert "against the teacher's own answers" in render_card(uncovered)


def test_scores_no_better_than_the_commonest_label_are_cautioned(scored: dict[str, Any]) -> None:
    assert "look at how they are joined" not in conclude(scored)
    scored["baselines"]["majority"]["score"] |= {"value": 0.99, "low": 0.98, "high": 1.0}
    assert "look at how they are joined" in conclude(scored)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda r: r.update(size_ratio=3.0), "scores have no size"),
        (lambda r: r["teacher"].update(parameters=3), "scores have no size"),
        (lambda r: r["teacher"].pop("scores"), r"teacher.shape: absent, and the teacher is no file of scores"),
        (lambda r: [r["teacher"].pop(key) for key in ("score", "metrics")], "retention: present without a score"),
    ],
)
def test_contradictions_are_named(scored: dict[str, Any], change, match: str) -> None:
    validate(scored)
    change(scored)
    with pytest.raises(DataError, match=match):
        validate(scored)
