"""Long texts: what the windows of a text say, made one."""

import numpy as np

__all__ = ["mean_of_windows"]


def mean_of_windows(logits: np.ndarray, example: np.ndarray) -> np.ndarray:
    """Scores of a text = the mean over its windows.

    Args:
        logits: float32 (m, C), one row a window.
        example: int64 (m,), ascending, the text of each window, as in `Encodings`.

    Returns:
        float32 (n, C).
    """
    count = int(example[-1]) + 1 if len(example) else 0
    sums = np.zeros((count, logits.shape[1]), dtype=np.float64)
    np.add.at(sums, example, logits)
    return (sums / np.bincount(example, minlength=count)[:, None]).astype(np.float32)
