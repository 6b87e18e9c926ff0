import pytest

from potstill.errors import DataError
from potstill.report import conclude
from potstill.report.conclusion import UNSTEADY, WIDE


def score(value, half, n=1612):
    return {"value": value, "low": value - half, "high": value + half, "n": n}


def test_headline_says_score_size_and_speed(full):
    assert conclude(full) == (
        "The student keeps 98.6 % of the teacher's test accuracy (95 % interval 97.1–100.0 %; 88.0 % against 89.2 %), "
        "is 1.6 times smaller (14.35 M parameters against 22.71 M) and answers 23 times faster at batch 1 and "
        "31 times faster at batch 32 through OpenVINO bfloat16."
    )


def test_a_slower_or_larger_student_is_called_so(full):
    full["exports"][5]["speedup"] = {"1": 0.5, "32": 1.01}
    full["exports"][5]["engine_share"] = full["exports"][5]["student_share"] = None
    full["student"]["parameters"], full["student"]["bytes"] = 45_427_972, 181_728_384
    full["size_ratio"] = 0.5
    sentence = conclude(full)
    assert "is 2.0 times larger (45.43 M parameters against 22.71 M)" in sentence
    assert "answers 2.0 times slower at batch 1 and as fast at batch 32" in sentence


def test_without_speed_two_parts_are_joined(three):
    assert "(95 % interval 90.2–100.1 %; 80.1 % against 84.2 %) and is 1.6 times smaller" in conclude(three)


def test_no_test_split_wide_interval_and_no_export_are_said(three):
    sentence = conclude(three)
    assert "The interval of what is kept is 10 points wide: 300 examples say no more." in sentence
    assert "There is no test split: all is judged on dev" in sentence
    assert "No export was accepted" in sentence


def test_wide_begins_beyond_its_bound(full):
    full["retention"] |= {"low": 0.96, "high": 0.96 + WIDE - 1e-9}
    assert "points wide" not in conclude(full)
    full["retention"]["high"] = 0.96 + WIDE + 1e-9
    assert "5 points wide" in conclude(full)


def test_tfidf_that_scores_as_much_is_the_better_choice(full):
    full["baselines"]["tfidf_logistic"] = {"score": score(0.8797, 0.016)}
    assert conclude(full).endswith(
        " But TF-IDF + logistic regression reaches 88.0 % against the student's 88.0 %: "
        "simpler and no worse, it is the better choice."
    )


def test_tfidf_whose_interval_overlaps_is_named_with_both_intervals(full):
    full["baselines"]["tfidf_logistic"] = {"score": score(0.86, 0.016)}
    assert conclude(full).endswith(
        " But TF-IDF + logistic regression reaches 86.0 % (84.4–87.6 %), its interval overlapping the student's 88.0 % "
        "(86.4–89.6 %): it is simpler, and may well be the better choice."
    )


def test_hard_labels_are_judged_by_the_paired_interval_where_there_is_one(full):
    assert full["baselines"]["hard_labels"]["score"]["high"] > full["student"]["score"]["low"]
    assert "labels alone" not in conclude(full)
    full["gap_closed"]["low"] = -0.1
    assert "trained on the labels alone reaches 84.9 %" in conclude(full)
    assert "what distilling gained is within the uncertainty" in conclude(full)


def test_hard_labels_that_score_more_mean_that_nothing_was_gained(full):
    full["baselines"]["hard_labels"] = {"score": score(0.885, 0.016)}
    assert "labels alone reaches 88.5 % against the student's 88.0 %: distilling gained nothing." in conclude(full)


@pytest.mark.parametrize(
    ("value", "parameters", "warned"),
    [
        (0.86, 14_000_000, "it is simpler, and may well be the better choice"),
        (0.86, 22_713_986, None),
        (0.86, None, None),
        (0.89, 22_713_986, "where its size is no matter, it is the better choice"),
        (0.89, 14_000_000, "simpler and no worse, it is the better choice"),
        (0.70, 14_000_000, None),
    ],
)
def test_small_pretrained_counts_as_simpler_only_where_it_is_no_larger(full, value, parameters, warned):
    full["baselines"]["small_pretrained"] = {"score": score(value, 0.016), "parameters": parameters}
    sentence = conclude(full)
    assert ("just fine-tuned" in sentence) is (warned is not None)
    assert warned is None or warned in sentence


def test_a_student_no_better_than_the_commonest_label(full):
    full["baselines"]["majority"] = {"score": score(0.88, 0.016)}
    assert (
        "always giving the commonest label reaches 88.0 % against the student's 88.0 %: the student is of no use."
        in conclude(full)
    )


def test_refusals(full, refused):
    assert conclude(refused) == "Refused: the teacher's own score is not good enough to distil from."
    assert conclude(refused | {"refused_because": "its labels are permuted?"}) == "Refused: its labels are permuted?"
    full["status"] = "refused"
    assert conclude(full).startswith("Refused: a gate was not passed. The student keeps 98.6 %")
    full["best_export"] = None
    assert conclude(full).startswith("Refused: no export was accepted. The student keeps 98.6 %")


def test_correlations_are_no_percentages(full):
    full["task"]["primary_metric"] = "matthews"
    for model in ("teacher", "student"):
        full[model]["score"] = full[model]["metrics"]["matthews"]
    kept = full["student"]["score"]["value"] / full["teacher"]["score"]["value"]
    full["retention"] = {"value": kept, "low": kept - 0.02, "high": kept + 0.02}
    assert "test Matthews correlation (95 % interval 94.8–98.8 %; 0.755 against 0.780)" in conclude(full)


def test_a_wrong_report_is_refused(full):
    del full["teacher"]
    with pytest.raises(DataError):
        conclude(full)


def test_timings_that_scatter_are_called_unsteady(full):
    assert "unsteady" not in conclude(full)
    teacher = full["teacher_latency_ms"]["torch-float32"]["32"]
    teacher["p95"] = teacher["p50"] * (UNSTEADY + 1)
    assert "(at batch 32 one run in twenty took 4.0 times the median or more)" in conclude(full)


def test_a_student_above_its_teacher_says_that_the_teacher_is_at_fault(full):
    weak = full["student"]["score"]["value"] / 1.2
    low = {"value": weak, "low": weak - 0.02, "high": weak + 0.02}
    full["teacher"]["score"] |= low
    full["teacher"]["metrics"]["accuracy"] |= low
    full["retention"] |= {"value": 1.2, "low": 1.01, "high": 1.3}
    assert "which has learnt too little: fine-tune the teacher longer" in conclude(full)
    full["retention"]["low"] = 0.99
    assert "learnt too little" not in conclude(full)


@pytest.mark.parametrize(("steps", "said"), [(10, True), (399, True), (400, False), (4000, False)])
def test_a_training_that_was_cut_short_is_told_before_every_comparison(full, steps, said):
    stage = full["recipe"]["stages"][-1]
    stage |= {"name": "student", "steps": steps, "planned": 4000}
    sentence = conclude(full)
    words = f"The time allowed left the student {steps:,} of the 4,000 steps of its recipe"
    assert (words in sentence) == said
    if said and "But " in sentence:
        assert sentence.index(words) < sentence.index("But ")
