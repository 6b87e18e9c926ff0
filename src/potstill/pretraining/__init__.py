"""Pre-training objectives, one a file, each a program for the training loop."""

from potstill.pretraining.masked import HeldOut, MaskedLM, unigram

__all__ = ["HeldOut", "MaskedLM", "unigram"]
