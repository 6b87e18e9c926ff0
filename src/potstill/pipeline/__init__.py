"""Stages, keys, the run folder and its lock: what `potstill distill` runs."""

from potstill.pipeline.distill import distill
from potstill.pipeline.plan import plan

__all__ = ["distill", "plan"]
