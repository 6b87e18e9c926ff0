"""Intervals against a plain loop over examples, against known distributions, and against each other."""

import numpy as np
import pytest
from scipy import stats

from potstill.errors import DataError
from potstill.metrics import (
    METRICS,
    bootstrap_metrics,
    classification_metrics,
    gap_closed,
    mean_over_seeds,
    paired_difference,
    paired_retention,
)


def noisy(labels, error, n_labels, seed):
    rng = np.random.default_rng(seed)
    wrong = rng.random(len(labels)) < error
    return np.where(wrong, rng.integers(0, n_labels, len(labels)), labels)


@pytest.fixture(scope="module")
def four_classes():
    labels = np.random.default_rng(1).choice(4, 300, p=[0.5, 0.3, 0.15, 0.05])
    answers = {name: noisy(labels, error, 4, seed) for seed, (name, error) in enumerate(ERRORS.items(), 2)}
    return labels, answers


ERRORS = {"teacher": 0.15, "student": 0.25, "hard": 0.5}


def loop(labels, answers, score, resamples, seed):
    """The bootstrap as it is defined: draw examples, judge them, again."""
    rng = np.random.default_rng(seed)
    rows = []
    for _ in range(resamples):
        drawn = rng.integers(0, len(labels), len(labels))
        rows.append(score(labels[drawn], {name: values[drawn] for name, values in answers.items()}))
    return np.array(rows)


def same_quantiles(low, high, samples):
    # Of 2,000 resamples a 2.5 % quantile lies within ±0.35 % of rank (one standard error): allow four.
    for got, rank in ((low, 0.025), (high, 0.975)):
        bounds = np.quantile(samples, [max(0, rank - 0.014), min(1, rank + 0.014)])
        assert bounds[0] - 1e-9 <= got <= bounds[1] + 1e-9


def test_resampled_cells_are_resampled_examples(four_classes):
    labels, answers = four_classes
    got = bootstrap_metrics(labels, answers["student"], 4, resamples=4000, seed=3, positive=2)

    def score(gold, drawn):
        return list(classification_metrics(gold, drawn["student"], 4, 2).values())

    samples = loop(labels, answers, score, 4000, 4)
    values = classification_metrics(labels, answers["student"], 4, 2)
    assert set(got) == set(METRICS)
    for column, name in enumerate(values):
        assert got[name].value == pytest.approx(values[name], abs=1e-12)
        assert got[name].n == 300
        same_quantiles(got[name].low, got[name].high, samples[:, column])


@pytest.mark.parametrize("metric", ["accuracy", "macro_f1", "f1", "matthews"])
def test_ratios_are_resampled_with_the_same_examples(four_classes, metric):
    labels, answers = four_classes

    def score(gold, drawn):
        of = {name: classification_metrics(gold, drawn[name], 4, 1)[metric] for name in drawn}
        return of["student"] / of["teacher"], (of["student"] - of["hard"]) / (of["teacher"] - of["hard"])

    samples = loop(labels, answers, score, 2000, 5)
    kept = paired_retention(
        labels, answers["student"], answers["teacher"], metric=metric, positive=1, resamples=4000, seed=6
    )
    closed = gap_closed(
        labels,
        answers["student"],
        answers["teacher"],
        answers["hard"],
        metric=metric,
        positive=1,
        resamples=4000,
        seed=7,
    )
    assert closed is not None
    value = score(labels, answers)
    assert (kept.value, closed.value) == pytest.approx(value, abs=1e-12)
    same_quantiles(kept.low, kept.high, samples[:, 0])
    same_quantiles(closed.low, closed.high, samples[:, 1])


def test_accuracy_interval_is_the_binomials_quantiles():
    labels = np.zeros(400, np.int64)
    predictions = (np.arange(400) < 40).astype(np.int64)
    got = bootstrap_metrics(labels, predictions, 2, resamples=20_000)["accuracy"]
    expected = stats.binom(400, 0.9).ppf([0.025, 0.975]) / 400
    assert [got.low, got.high] == pytest.approx(expected, abs=1 / 400 + 1e-9)


def test_interval_covers_the_true_accuracy():
    rng = np.random.default_rng(0)
    labels = np.zeros(200, np.int64)
    covered = 0
    for trial in range(300):
        predictions = (rng.random(200) < 0.2).astype(np.int64)
        interval = bootstrap_metrics(labels, predictions, 2, resamples=400, seed=trial)["accuracy"]
        covered += interval.low <= 0.8 <= interval.high
    # The percentile interval of a proportion covers about 94 % here; three standard errors of 300 trials are 4 %.
    assert 0.90 <= covered / 300 <= 0.98


def test_paired_interval_covers_the_true_ratio_and_is_narrower_than_unpaired():
    rng = np.random.default_rng(0)
    labels = np.zeros(300, np.int64)
    covered = 0
    for trial in range(300):
        difficulty = rng.random(300)  # both fail on the same hard examples
        teacher, student = (difficulty > 0.9).astype(np.int64), (difficulty > 0.81).astype(np.int64)
        kept = paired_retention(labels, student, teacher, resamples=400, seed=trial)
        covered += kept.low <= 0.9 <= kept.high
    assert 0.90 <= covered / 300 <= 0.98
    apart = bootstrap_metrics(labels, student, 2)["accuracy"]
    assert kept.high - kept.low < 0.9 * (apart.high - apart.low)


def test_the_seed_alone_decides(four_classes):
    labels, answers = four_classes
    first, again = (bootstrap_metrics(labels, answers["hard"], 4, seed=9) for _ in range(2))
    other = bootstrap_metrics(labels, answers["hard"], 4, seed=10)
    assert first == again
    assert first["macro_f1"] != other["macro_f1"]


def test_portions_change_nothing(four_classes, monkeypatch):
    labels, answers = four_classes
    whole = paired_retention(labels, answers["student"], answers["teacher"], metric="macro_f1")
    monkeypatch.setattr("potstill.metrics.bootstrap._COUNTS_AT_ONCE", 100)
    assert paired_retention(labels, answers["student"], answers["teacher"], metric="macro_f1") == whole


def test_many_classes_need_no_dense_matrix():
    labels = np.random.default_rng(0).integers(0, 2000, 3000)
    got = bootstrap_metrics(labels, noisy(labels, 0.3, 2000, 1), 2000, resamples=200)
    assert got["accuracy"].low < got["accuracy"].value < got["accuracy"].high


def test_the_order_of_examples_changes_nothing(four_classes):
    labels, answers = four_classes
    order = np.random.default_rng(0).permutation(len(labels))
    assert bootstrap_metrics(labels, answers["hard"], 4) == bootstrap_metrics(labels[order], answers["hard"][order], 4)


def test_a_student_equal_to_its_teacher_keeps_exactly_everything(four_classes):
    labels, answers = four_classes
    kept = paired_retention(labels, answers["teacher"], answers["teacher"])
    assert (kept.value, kept.low, kept.high, kept.n) == (1, 1, 1, 300)
    closed = gap_closed(labels, answers["teacher"], answers["teacher"], answers["hard"])
    assert closed is not None
    assert (closed.value, closed.low, closed.high) == (1, 1, 1)
    none = gap_closed(labels, answers["hard"], answers["teacher"], answers["hard"])
    assert none is not None
    assert (none.value, none.low, none.high) == (0, 0, 0)


def test_no_gap_no_share_of_it(four_classes):
    labels, answers = four_classes
    assert gap_closed(labels, answers["student"], answers["hard"], answers["teacher"]) is None
    assert gap_closed(labels, answers["student"], answers["hard"], answers["hard"], metric="macro_f1") is None


def test_a_gap_of_one_example_gives_a_finite_wide_interval():
    labels = np.zeros(100, np.int64)
    hard = (np.arange(100) < 10).astype(np.int64)
    teacher = (np.arange(100) < 9).astype(np.int64)
    student = (np.arange(100) >= 95).astype(np.int64)
    closed = gap_closed(labels, student, teacher, hard)
    assert closed is not None
    assert closed.value == pytest.approx(5)
    assert np.isfinite([closed.low, closed.high]).all()
    assert closed.high - closed.low > 2


def test_errors_name_what_is_wrong(four_classes):
    labels, answers = four_classes
    with pytest.raises(DataError, match="metric 'auc'"):
        paired_retention(labels, answers["student"], answers["teacher"], metric="auc")
    with pytest.raises(DataError, match="a teacher with accuracy 0"):
        paired_retention(labels, answers["student"], (labels + 1) % 4)
    with pytest.raises(DataError, match="0 resamples"):
        bootstrap_metrics(labels, answers["student"], 4, resamples=0)
    with pytest.raises(DataError, match="299 teacher"):
        paired_retention(labels, answers["student"], answers["teacher"][1:])
    with pytest.raises(DataError, match="labels with the value -1"):
        paired_retention(labels - 1, answers["student"], answers["teacher"])
    with pytest.raises(DataError, match="student of shape"):
        paired_retention(labels, np.empty(0, np.int64), answers["teacher"])


@pytest.mark.parametrize("metric", ["accuracy", "macro_f1"])
def test_differences_over_seeds_against_a_loop(metric):
    """As it is defined: draw seeds, draw examples, judge both ways on them, again."""
    rng = np.random.default_rng(7)
    labels = rng.integers(0, 3, 200)
    ours = np.stack([noisy(labels, error, 3, 10 + seed) for seed, error in enumerate((0.2, 0.3, 0.45))])
    theirs = np.stack([noisy(labels, error, 3, 20 + seed) for seed, error in enumerate((0.3, 0.35, 0.4))])

    def score(gold, drawn):
        return classification_metrics(gold, drawn, 3, 1)[metric]

    def mean(rows, examples, seeds):
        return np.mean([score(labels[examples], rows[seed][examples]) for seed in seeds])

    alone, apart = [], []
    for _ in range(2000):
        examples, seeds = rng.integers(0, 200, 200), rng.integers(0, 3, 3)
        alone.append(mean(ours, examples, seeds))
        apart.append(alone[-1] - mean(theirs, examples, seeds))
    every = np.arange(200)
    got = mean_over_seeds(labels, ours, metric=metric, resamples=2000, seed=5)
    assert got.value == pytest.approx(mean(ours, every, range(3)), abs=1e-12)
    same_quantiles(got.low, got.high, alone)
    got = paired_difference(labels, ours, theirs, metric=metric, resamples=2000, seed=5)
    assert got.value == pytest.approx(mean(ours, every, range(3)) - mean(theirs, every, range(3)), abs=1e-12)
    assert got.n == 200
    same_quantiles(got.low, got.high, apart)


def test_pairing_shows_small_differences():
    labels = np.random.default_rng(1).integers(0, 2, 400)
    theirs = np.stack([noisy(labels, 0.4, 2, seed) for seed in range(3)])
    ours = theirs.copy()
    ours[:, :40] = labels[:40]  # never worse
    gap = paired_difference(labels, ours, theirs)
    assert 0 < gap.low < gap.value < gap.high < 0.1
    assert paired_difference(labels, theirs, theirs).low == paired_difference(labels, theirs, theirs).high == 0.0
    backwards = paired_difference(labels, theirs, ours)
    assert (backwards.low, backwards.high) == pytest.approx((-gap.high, -gap.low))


def test_many_classes_and_many_seeds():
    labels = np.random.default_rng(1).integers(0, 150, 300)
    rows = np.stack([noisy(labels, 0.5, 150, seed) for seed in range(6)])
    assert paired_difference(labels, rows, rows[::-1], resamples=50).value == pytest.approx(0.0)


def test_seeds_that_do_not_match_are_refused():
    rows = np.zeros((2, 5), np.int64)
    with pytest.raises(DataError, match="the same seeds and examples"):
        paired_difference(rows[0], rows, rows[:1])
    with pytest.raises(DataError, match="one seed at least"):
        mean_over_seeds(rows[0], rows[:0])
