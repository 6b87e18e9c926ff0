"""Pre-training objectives, one a file, each a program for the training loop."""

from potstill.pretraining.conditional import ConditionalMaskedLM, label_first
from potstill.pretraining.masked import HeldOut, MaskedLM, unigram

__all__ = ["ConditionalMaskedLM", "HeldOut", "MaskedLM", "label_first", "unigram"]
