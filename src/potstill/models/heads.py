"""What kinds of head on a text there are. Imports no torch: tasks name theirs."""

from typing import Literal

__all__ = ["ProblemType"]

ProblemType = Literal["single_label_classification", "regression", "multi_label_classification"]
"""As `transformers` names it in config.json, and calls its loss by."""
