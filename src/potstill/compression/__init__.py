"""Smaller models of the same answers: so far, of the vocabulary."""

from potstill.compression.vocabulary import prune_vocabulary

__all__ = ["prune_vocabulary"]
