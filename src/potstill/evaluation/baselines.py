"""What a reader should know before using a Transformer: how far word counts get."""

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypedDict

import numpy as np

from potstill.data.examples import Examples
from potstill.errors import DataError
from potstill.metrics import METRICS, classification_metrics, regression_metrics
from potstill.progress import SILENT, Reporter
from potstill.tasks import Classification, Task

__all__ = ["C_GRID", "RIDGE_GRID", "TFIDF", "TfidfResult", "tfidf_logistic", "tfidf_one_vs_rest", "tfidf_ridge"]

C_GRID = (1.0, 3.0, 10.0, 30.0, 100.0)
"""Inverse regularisation strengths that are tried."""

RIDGE_GRID = (0.1, 0.3, 1.0, 3.0, 10.0)
"""The same for ridge regression (1/α), and for labels of which each is a decision of its own."""

_MOST_TERMS = 300_000
_CERTAIN = 10.0  # the logit of a label that every training text has


class TfidfResult(TypedDict):
    """What each baseline of TF-IDF answers.

    Keys:
        predictions: For each judged `Examples`, class indices, int64 (n,), scores, float64 (n,), or marks, int8 (n, C).
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
    class_weights: Sequence[float] = (),
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
        class_weights: How much an example of each class counts; empty: all the same.
        grid: Inverse regularisation strengths to try.
        report: Receives progress in strengths tried.

    Raises:
        DataError: One class only, or no word in the training texts.
    """
    from sklearn.linear_model import LogisticRegression

    if len(np.unique(train.labels)) < 2:
        raise DataError("training labels of one class", expected="two classes or more")
    if metric not in METRICS or (metric == "f1" and n_labels != 2):
        raise DataError(f"metric {metric!r} for {n_labels} labels", expected=" | ".join(METRICS) + " (f1: two labels)")
    weights = dict(enumerate(class_weights)) or None
    result = _fitted(
        train,
        dev,
        judged,
        lambda c: LogisticRegression(C=c, max_iter=500, tol=1e-5, class_weight=weights),
        lambda gold, answers: classification_metrics(gold, answers, n_labels)[metric],
        grid,
        report,
    )
    result["predictions"] = [answers.astype(np.int64) for answers in result["predictions"]]
    result["description"] += f", logistic regression, C = {result['c']:g} chosen on dev"
    return result


def tfidf_ridge(
    train: Examples,
    dev: Examples,
    judged: Sequence[Examples],
    *,
    grid: Sequence[float] = RIDGE_GRID,
    report: Reporter = SILENT,
) -> TfidfResult:
    """Fit TF-IDF with ridge regression on scores; features as in `tfidf_logistic`, chosen by Pearson on dev.

    Args:
        train: Texts with scores.
        dev: Texts with scores.
        judged: Texts to predict with the chosen model.
        grid: Inverse regularisation strengths to try, 1/α.
        report: Receives progress in strengths tried.

    Raises:
        DataError: No word in the training texts.
    """
    from sklearn.linear_model import Ridge

    result = _fitted(
        train,
        dev,
        judged,
        lambda c: Ridge(alpha=1 / c, solver="sparse_cg", tol=1e-5),
        lambda gold, answers: regression_metrics(gold, answers)["pearson"],
        grid,
        report,
    )
    result["description"] += f", ridge regression, α = {1 / result['c']:.3g} chosen on dev"
    return result


def tfidf_one_vs_rest(
    train: Examples,
    dev: Examples,
    judged: Sequence[Examples],
    *,
    task: Task,
    grid: Sequence[float] = RIDGE_GRID,
    report: Reporter = SILENT,
) -> TfidfResult:
    """Fit TF-IDF with a logistic regression for each label; features as in `tfidf_logistic`.

    The labels' thresholds are tuned on dev, as every model's are, and the strength is chosen by what dev then scores.

    Args:
        train: Texts with sets of labels.
        dev: Texts with sets of labels.
        judged: Texts to predict with the chosen model.
        task: Fits the thresholds, and scores.
        grid: Inverse regularisation strengths to try.
        report: Receives progress in strengths tried.

    Raises:
        DataError: No word in the training texts.
    """
    result = _fitted(
        train,
        dev,
        [dev, *judged],
        _OneVsRest,
        lambda gold, logits: task.score(gold, task.fitted(gold, logits).predictions(logits)),
        grid,
        report,
    )
    on_dev, *logits = result["predictions"]
    fitted = task.fitted(dev.labels, on_dev)
    result["predictions"] = [fitted.predictions(one) for one in logits]
    result["description"] += f", a logistic regression for each label, C = {result['c']:g} chosen on dev"
    return result


class _OneVsRest:
    """A logistic regression for each label, each of one strength; a label that all texts or none have is a constant."""

    def __init__(self, c: float) -> None:
        self.c = c
        self.coef_ = self.intercept_ = np.empty(0)

    def fit(self, features: Any, marks: np.ndarray) -> None:
        from sklearn.linear_model import LogisticRegression

        self.coef_ = np.zeros((marks.shape[1], features.shape[1]))
        self.intercept_ = np.where(marks.any(axis=0), _CERTAIN, -_CERTAIN)
        for label in np.flatnonzero(marks.any(axis=0) & ~marks.all(axis=0)):
            model = LogisticRegression(C=self.c, solver="liblinear", tol=1e-3, random_state=0)
            model.fit(features, marks[:, label])
            self.coef_[label], self.intercept_[label] = model.coef_[0], model.intercept_[0]

    def predict(self, features: Any) -> np.ndarray:
        """Logits (n, C)."""
        return np.asarray(features @ self.coef_.T + self.intercept_)


def _for_label_sets(
    train: Examples, dev: Examples, judged: Sequence[Examples], task: Task, report: Reporter
) -> TfidfResult:
    return tfidf_one_vs_rest(train, dev, judged, task=task, report=report)


def _for_labels(
    train: Examples, dev: Examples, judged: Sequence[Examples], task: Task, report: Reporter
) -> TfidfResult:
    weights = task.weights if isinstance(task, Classification) else ()
    return tfidf_logistic(
        *(train, dev, judged),
        n_labels=len(task.labels),
        metric=task.primary_metric,
        class_weights=weights,
        report=report,
    )


def _for_scores(
    train: Examples, dev: Examples, judged: Sequence[Examples], task: Task, report: Reporter
) -> TfidfResult:
    return tfidf_ridge(train, dev, judged, report=report)


TFIDF: Mapping[str, tuple[str, Callable[[Examples, Examples, Sequence[Examples], Task, Reporter], TfidfResult]]] = {
    "classification": ("tfidf_logistic", _for_labels),
    "regression": ("tfidf_ridge", _for_scores),
    "multilabel": ("tfidf_one_vs_rest", _for_label_sets),
}
"""Task → the baseline's name in reports, and the function; a task that is not here has none."""


def _fitted(
    train: Examples,
    dev: Examples,
    judged: Sequence[Examples],
    make: Callable[[float], Any],
    score: Callable[[np.ndarray, np.ndarray], float],
    grid: Sequence[float],
    report: Reporter,
) -> TfidfResult:
    """The linear model that scores best on dev, of those that `make` gives for the strengths."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    began = time.perf_counter()
    vectoriser = TfidfVectorizer(
        ngram_range=(1, 2), sublinear_tf=True, token_pattern=r"(?u)\b\w+\b|[^\w\s]", max_features=_MOST_TERMS
    )
    try:
        vectoriser.fit([*train.texts, *(train.pairs or [])])
    except ValueError as error:
        raise DataError("training texts without a word", expected="letters or digits in some of them") from error
    fitting, choosing = ((_features(vectoriser, part), part.labels) for part in (train, dev))
    model, c, scores = _choose(fitting, choosing, make, score, grid, report)
    terms = len(vectoriser.vocabulary_)
    return {
        "predictions": [model.predict(_features(vectoriser, examples)) for examples in judged],
        "c": c,
        "dev_scores": scores,
        "parameters": int(np.size(model.coef_) + np.size(model.intercept_) + terms),
        "terms": terms,
        "seconds": time.perf_counter() - began,
        "description": f"TF-IDF of {terms:,} words and word pairs",
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
    fitting: tuple[Any, np.ndarray],
    choosing: tuple[Any, np.ndarray],
    make: Callable[[float], Any],
    score: Callable[[np.ndarray, np.ndarray], float],
    grid: Sequence[float],
    report: Reporter,
) -> tuple[Any, float, dict[float, float]]:
    """The model with the best dev score, its strength, and all scores."""
    from sklearn.exceptions import ConvergenceWarning

    best: Any = None
    chosen, scores = float("nan"), {}
    for done, c in enumerate(grid):
        report.progress(done, len(grid), C=c)
        model = make(c)
        with warnings.catch_warnings():
            # Weights that are still moving a little after 500 steps have long stopped changing predictions.
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.fit(*fitting)
        scores[c] = score(choosing[1], model.predict(choosing[0]))
        if best is None or scores[c] > scores[chosen]:
            best, chosen = model, c
    report.progress(len(grid), len(grid))
    return best, chosen, scores
