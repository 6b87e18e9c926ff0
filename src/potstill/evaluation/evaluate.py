"""Scores of encoded texts through any engine: what is judged is what is deployed.

Knows engines and encodings, not models, files or labels.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from potstill.data.encoding import Encodings
from potstill.errors import DataError, ModelError, NonFiniteError
from potstill.progress import SILENT, Reporter
from potstill.tasks import mean_of_windows
from potstill.tasks.classification import probabilities

if TYPE_CHECKING:
    from potstill.engines import Engine

__all__ = ["predict_logits", "probabilities"]


def predict_logits(
    engine: "Engine",
    encodings: Encodings,
    *,
    merge: Callable[[np.ndarray, np.ndarray], np.ndarray] = mean_of_windows,
    batch_size: int = 32,
    report: Reporter = SILENT,
) -> np.ndarray:
    """Run every window and merge those of one text.

    Windows are batched by length, longest first, so that little is padded and a lack of memory shows at once. The
    result is in the order of the texts and depends on the batches only as far as the engine's own rounding does.

    Args:
        engine: Gives `logits`, float (b, n_labels), for `Encodings.batch` of b windows.
        encodings: n ≥ 1 texts in m ≥ n windows.
        merge: `Task.merge`; the mean of the windows' logits.
        batch_size: Windows in one run.
        report: Receives progress in windows.

    Returns:
        float32 (n, n_labels).

    Raises:
        DataError: No texts, or a batch size below 1.
        ModelError: Logits of another shape.
        NonFiniteError: NaN or infinity among the logits.
    """
    if batch_size < 1 or len(encodings) == 0:
        raise DataError(f"{len(encodings)} windows, batch size {batch_size}", expected="at least 1 of each")
    order = np.argsort(-encodings.lengths, kind="stable")
    result: np.ndarray | None = None
    for start in range(0, len(order), batch_size):
        windows = order[start : start + batch_size]
        logits = _checked_logits(engine, engine.run(encodings.batch(windows)), len(windows))
        if result is None:
            result = np.zeros((len(encodings), logits.shape[1]), dtype=np.float32)
        elif logits.shape[1] != result.shape[1]:
            raise ModelError(f"{logits.shape[1]} logits", expected=f"{result.shape[1]}, as in the batch before")
        result[windows] = logits
        report.progress(start + len(windows), len(order))
    assert result is not None
    return merge(result, encodings.example)


def _checked_logits(engine: "Engine", outputs: dict[str, np.ndarray], rows: int) -> np.ndarray:
    name = f"{engine.name} ({engine.precision})"
    if "logits" not in outputs:
        raise ModelError(f"{name} gives {', '.join(outputs) or 'nothing'}", expected="logits")
    logits = np.asarray(outputs["logits"], np.float64)
    if logits.ndim != 2 or len(logits) != rows:
        raise ModelError(f"{name} gives logits of shape {logits.shape}", expected=f"({rows}, labels)")
    if not np.isfinite(logits).all():
        raise NonFiniteError(f"{name} gives NaN or infinity", fix="use this model in float32, or another engine")
    return logits
