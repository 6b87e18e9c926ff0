"""What a reader should know before using a Transformer: how far word counts get, and how far a constant gets."""

import time
import warnings
from collections.abc import Sequence
from typing import Any, TypedDict

import numpy as np

from potstill.data.examples import Examples
from potstill.errors import DataError
from potstill.metrics.classification import METRICS, classification_metrics
from potstill.progress import SILENT, Reporter

__all__ = ["C_GRID", "TfidfResult", "majority", "tfidf_logistic"]

C_GRID = (1.0, 3.0, 10.0, 30.0, 100.0)
"""Inverse regularisation strengths that are tried."""

_MOST_TERMS = 300_000


class TfidfResult(TypedDict):
    """What `tfidf_logistic` answers.

    Keys:
        predictions: For each judged `Examples`, class indices, int64 (n,).
        c: The chosen inverse regularisation strength.
        dev_scores: The dev score of each strength tried.
        parameters: Numbers the fitted model holds: weights, biases and one inverse document frequency per term.
        terms: Words and word pairs in the vocabulary.
        seconds: Fitting, choosing and predicting.
        description: One line that says what it is.
    """

    predictions: list[np.ndarray]
    c: float
    dev_scores: dict[float, float]
    parameters: int
    terms: int
    seconds: float
    description: str


def tfidf_logistic(
    train: Examples,
    dev: Examples,
    judged: Sequence[Examples],
    *,
    n_labels: int,
    metric: str = "accuracy",
    grid: Sequence[float] = C_GRID,
    report: Reporter = SILENT,
) -> TfidfResult:
    """Fit TF-IDF with logistic regression; choose its regularisation on dev.

    Words, digits and punctuation marks and their pairs, sublinear counts, L2. For pairs of texts a and b the features
    are [a, b, |a - b|] over one vocabulary: a linear model cannot compare the two from [a, b] alone.

    Args:
        train: Labelled texts, of two classes at least.
        dev: Labelled texts; the first strength with the best score on them is taken.
        judged: Texts to predict with the chosen model.
        n_labels: Number of classes.
        metric: The score that chooses, one of `METRICS` (`f1` for two classes only).
        grid: Inverse regularisation strengths to try.
        report: Receives progress in strengths tried.

    Raises:
        DataError: One class only, or no word in the training texts.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer

    began = time.perf_counter()
    if len(np.unique(train.labels)) < 2:
        raise DataError("training labels of one class", expected="two classes or more")
    if metric not in METRICS or (metric == "f1" and n_labels != 2):
        raise DataError(f"metric {metric!r} for {n_labels} labels", expected=" | ".join(METRICS) + " (f1: two labels)")
    vectoriser = TfidfVectorizer(
        ngram_range=(1, 2), sublinear_tf=True, token_pattern=r"(?u)\b\w+\b|[^\w\s]", max_features=_MOST_TERMS
    )
    try:
        vectoriser.fit([*train.texts, *(train.pairs or [])])
    except ValueError as error:
        raise DataError("training texts without a word", expected="letters or digits in some of them") from error
    model, c, scores = _choose(
        _features(vectoriser, train),
        train.labels,
        _features(vectoriser, dev),
        dev.labels,
        n_labels,
        metric,
        grid,
        report,
    )
    predictions = [model.predict(_features(vectoriser, examples)).astype(np.int64) for examples in judged]
    terms = len(vectoriser.vocabulary_)
    return {
        "predictions": predictions,
        "c": c,
        "dev_scores": scores,
        "parameters": int(model.coef_.size + model.intercept_.size + terms),
        "terms": terms,
        "seconds": time.perf_counter() - began,
        "description": f"TF-IDF of {terms:,} words and word pairs, logistic regression, C = {c:g} chosen on dev",
    }


def _features(vectoriser: Any, examples: Examples) -> Any:
    """Sparse rows: (n, terms), or (n, 3 terms) for pairs."""
    from scipy import sparse

    first = vectoriser.transform(examples.texts)
    if examples.pairs is None:
        return first
    second = vectoriser.transform(examples.pairs)
    return sparse.hstack([first, second, abs(first - second)], format="csr")


def _choose(
    x: Any,
    labels: np.ndarray,
    dev_x: Any,
    dev_labels: np.ndarray,
    n_labels: int,
    metric: str,
    grid: Sequence[float],
    report: Reporter,
) -> tuple[Any, float, dict[float, float]]:
    """The model with the best dev score, its strength, and all scores."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    best: Any = None
    chosen, scores = float("nan"), {}
    for done, c in enumerate(grid):
        report.progress(done, len(grid), C=c)
        model = LogisticRegression(C=c, max_iter=500, tol=1e-5)
        with warnings.catch_warnings():
            # Weights that are still moving a little after 500 steps have long stopped changing predictions.
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.fit(x, labels)
        scores[c] = classification_metrics(dev_labels, model.predict(dev_x), n_labels)[metric]
        if best is None or scores[c] > scores[chosen]:
            best, chosen = model, c
    report.progress(len(grid), len(grid))
    return best, chosen, scores


def majority(labels: np.ndarray) -> int:
    """The most frequent class of `labels`, int64 (n,) with n ≥ 1; of equals the lowest."""
    values, counts = np.unique(labels, return_counts=True)
    if not len(values) or values[0] < 0:
        raise DataError(f"{len(labels)} labels, lowest {values.min(initial=0)}", expected="labelled examples")
    return int(values[counts.argmax()])
