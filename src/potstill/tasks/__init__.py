"""One file a task: columns → labels → metric → answer. Nothing here needs torch."""

from potstill.tasks.classification import Classification

__all__ = ["Classification"]
