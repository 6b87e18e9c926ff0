"""A finished model, opened for a command that answers texts with it."""

import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from potstill.cli.pace import one_line
from potstill.errors import SettingsError

if TYPE_CHECKING:
    from potstill.engines import EngineName, Precision
    from potstill.inference import Deployment, Predictor

__all__ = ["check_kind", "load_predictor"]


def load_predictor(
    folder: Path,
    engine: "EngineName | None",
    precision: "Precision | None",
    *,
    deployment: "Deployment | None" = None,
    abstain_below: float | None = None,
    wanted_precision: float | None = None,
) -> "Predictor":
    """As `Predictor.load`; what it warns of, and below what answers are withheld, become lines on standard error."""
    from potstill.inference import Predictor

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        predictor = Predictor.load(
            folder,
            deployment=deployment,
            engine=engine,
            precision=precision,
            abstain_below=abstain_below,
            wanted_precision=wanted_precision,
        )
    for warning in caught:
        sys.stderr.write(f"warning: {one_line(str(warning.message))}\n")
    if (one := predictor.threshold) is not None:
        sys.stderr.write(
            f"labels of a probability below {one.confidence:.4g} are withheld: on dev {100 * one.coverage:.1f} % of "
            f"the texts had a label, and {100 * one.precision:.1f} % of these labels were right\n"
        )
    return predictor


def check_kind(pair: bool, column: str | None) -> None:
    """Before the first row: whether the model reads pairs, and a second text is named."""
    if pair and column is None:
        raise SettingsError(
            "the model reads pairs of texts",
            expected="a second text",
            fix="give a file, and the column of each: --text COLUMN --pair COLUMN",
        )
    if column is not None and not pair:
        raise SettingsError(f"--pair {column} for a model that reads single texts", fix="leave --pair out")
