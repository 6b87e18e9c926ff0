"""Potstill: distils any BERT-style encoder into a compact, fast student and puts it to work."""

__all__ = ["__version__"]

__version__ = "0.1.0"
