"""The baselines on texts whose answer is known, and against scikit-learn's own pipeline."""

import numpy as np
import pytest
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline

from potstill.data.examples import Examples
from potstill.errors import DataError
from potstill.evaluation import majority, tfidf_logistic, tfidf_one_vs_rest, tfidf_ridge
from potstill.evaluation.baselines import _OneVsRest
from potstill.tasks import MultiLabel

GOOD, BAD = ["fine", "superb", "warm", "clever"], ["dull", "awful", "cold", "stale"]
FILLER = ["the", "film", "plot", "a", "story", "cast", "of", "it"]


def reviews(n, seed, noise=0.0):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 2, n)
    texts = [
        " ".join(rng.permutation([*rng.choice(FILLER, 5), rng.choice(GOOD if label else BAD)])) for label in labels
    ]
    return Examples(np.arange(n), texts, None, np.where(rng.random(n) < noise, 1 - labels, labels))


def pairs(n, seed):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 2, n)
    words = [rng.choice(FILLER + GOOD + BAD, 6, replace=False) for _ in range(n)]
    # The same words in another order (1), or other words (0).
    second = [
        rng.permutation(w) if label else rng.choice(FILLER + GOOD + BAD, 6, replace=False)
        for w, label in zip(words, labels, strict=True)
    ]
    return Examples(np.arange(n), [" ".join(w) for w in words], [" ".join(w) for w in second], labels)


def test_learns_words_and_judges_each_split_in_order():
    train, dev, test = reviews(300, 0), reviews(100, 1), reviews(80, 2)
    result = tfidf_logistic(train, dev, [dev, test, test.select(np.arange(79, -1, -1))], n_labels=2)
    assert [len(p) for p in result["predictions"]] == [100, 80, 80]
    assert all(p.dtype == np.int64 for p in result["predictions"])
    assert (result["predictions"][1] == test.labels).mean() > 0.95
    assert np.array_equal(result["predictions"][2], result["predictions"][1][::-1])
    assert result["seconds"] > 0
    assert f"C = {result['c']:g}" in result["description"]


def test_equals_scikit_learns_pipeline_and_counts_its_numbers():
    train, dev, test = reviews(200, 3, noise=0.3), reviews(100, 4, noise=0.3), reviews(60, 5)
    result = tfidf_logistic(train, dev, [test], n_labels=2, grid=(1.0,))
    pattern = r"(?u)\b\w+\b|[^\w\s]"
    pipeline = make_pipeline(
        TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, token_pattern=pattern), LogisticRegression(tol=1e-5)
    ).fit(train.texts, train.labels)
    assert np.array_equal(result["predictions"][0], pipeline.predict(test.texts))
    assert result["dev_scores"] == {1.0: pytest.approx(pipeline.score(dev.texts, dev.labels))}
    terms = len(pipeline[0].vocabulary_)
    assert result["terms"] == terms
    assert result["parameters"] == 2 * terms + 1  # a weight and a frequency per term, one bias


def test_the_strength_is_the_first_of_the_best_on_dev():
    train, dev = reviews(150, 6, noise=0.35), reviews(300, 7)
    result = tfidf_logistic(train, dev, [dev], n_labels=2, grid=(0.001, 0.1, 1000.0))
    best = max(result["dev_scores"].values())
    assert result["c"] == next(c for c, score in result["dev_scores"].items() if score == best)
    assert (result["predictions"][0] == dev.labels).mean() == pytest.approx(best)
    assert len(set(result["dev_scores"].values())) > 1


def test_pairs_are_compared_and_not_only_read():
    train, dev = pairs(600, 0), pairs(200, 1)
    (predictions,) = tfidf_logistic(train, dev, [dev], n_labels=2)["predictions"]
    assert (predictions == dev.labels).mean() > 0.8


def test_a_class_that_training_lacks_is_never_answered():
    train, dev = reviews(100, 0), reviews(50, 1)
    shifted = [Examples(e.example_id, e.texts, None, e.labels * 2) for e in (train, dev)]
    result = tfidf_logistic(*shifted, [shifted[1]], n_labels=3, metric="macro_f1")
    assert set(result["predictions"][0].tolist()) == {0, 2}
    assert (result["predictions"][0] == shifted[1].labels).mean() > 0.9


def test_punctuation_alone_is_something_to_learn_from():
    labels = np.array([0, 1] * 20)
    marks = Examples(np.arange(40), ["!?"[label] * 3 for label in labels], None, labels)
    assert np.array_equal(tfidf_logistic(marks, marks, [marks], n_labels=2)["predictions"][0], labels)


def test_what_cannot_be_fitted_is_named():
    train, dev = reviews(20, 0), reviews(20, 1)
    one_class = Examples(train.example_id, train.texts, None, np.zeros(20, np.int64))
    blank = Examples(train.example_id, [" "] * 20, None, train.labels)
    with pytest.raises(DataError, match="one class"):
        tfidf_logistic(one_class, dev, [], n_labels=2)
    with pytest.raises(DataError, match="without a word"):
        tfidf_logistic(blank, dev, [], n_labels=2)
    with pytest.raises(DataError, match="metric 'f1' for 3 labels"):
        tfidf_logistic(train, dev, [], n_labels=3, metric="f1")


def test_majority_is_the_most_frequent_class_and_the_lowest_of_equals():
    assert majority(np.array([2, 1, 2, 0, 2, 1])) == 2
    assert majority(np.array([3, 1, 3, 1])) == 1
    for labels in ([], [0, -1, 0]):
        with pytest.raises(DataError, match="labelled examples"):
            majority(np.array(labels, np.int64))


def test_scores_by_ridge_regression_equal_scikit_learns():
    train, dev, test = (
        Examples(part.example_id, part.texts, None, part.labels + np.random.default_rng(n).normal(0, 0.3, len(part)))
        for n, part in enumerate((reviews(200, 3), reviews(100, 4), reviews(60, 5)))
    )
    result = tfidf_ridge(train, dev, [test], grid=(0.5,))
    pattern = r"(?u)\b\w+\b|[^\w\s]"
    pipeline = make_pipeline(
        TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, token_pattern=pattern), Ridge(alpha=2.0)
    ).fit(train.texts, train.labels)
    np.testing.assert_allclose(result["predictions"][0], pipeline.predict(test.texts), atol=1e-3)
    assert result["dev_scores"] == {
        0.5: pytest.approx(np.corrcoef(dev.labels, pipeline.predict(dev.texts))[0, 1], abs=1e-4)
    }
    assert "ridge regression, α = 2 chosen on dev" in result["description"]
    assert tfidf_ridge(train, dev, [dev])["dev_scores"].keys() == {0.1, 0.3, 1.0, 3.0, 10.0}


def label_sets(n, seed):
    rng = np.random.default_rng(seed)
    marks = np.zeros((n, 4), np.int8)
    marks[:, :2] = rng.random((n, 2)) < 0.3
    marks[:, 3] = 1  # one that all have; the third nobody has
    texts = [
        " ".join([*rng.choice(FILLER, 5), *(["warm"] if first else []), *(["stale"] if second else [])])
        for first, second in marks[:, :2]
    ]
    return Examples(np.arange(n), texts, None, marks)


def test_a_logistic_regression_for_each_label():
    """Against scikit-learn's OneVsRestClassifier; labels that all texts or none have are constants."""
    train, dev, test = label_sets(200, 0), label_sets(80, 1), label_sets(60, 2)
    task = MultiLabel(("fond", "tired", "never", "always"))
    result = tfidf_one_vs_rest(train, dev, [dev, test], task=task)
    assert [part.shape for part in result["predictions"]] == [(80, 4), (60, 4)]
    assert (result["predictions"][1] == test.labels).mean() > 0.97
    assert result["dev_scores"][result["c"]] == task.score(dev.labels, result["predictions"][0])
    vectoriser = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, token_pattern=r"(?u)\b\w+\b|[^\w\s]")
    features = vectoriser.fit_transform(train.texts)
    own = _OneVsRest(result["c"])
    own.fit(features, train.labels)
    theirs = OneVsRestClassifier(LogisticRegression(C=result["c"], tol=1e-6)).fit(features, train.labels[:, :2])
    wanted = theirs.decision_function(vectoriser.transform(test.texts))
    np.testing.assert_allclose(own.predict(vectoriser.transform(test.texts))[:, :2], wanted, atol=0.3)
    assert (own.predict(features)[:, 2] < 0).all()
    assert (own.predict(features)[:, 3] > 0).all()
