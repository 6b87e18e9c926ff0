"""Stages, keys, the run folder and its lock: what `potstill distill` and `potstill pretrain` run."""

from potstill.pipeline.distill import distill
from potstill.pipeline.plan import plan
from potstill.pipeline.pretrain import pretrain

__all__ = ["distill", "plan", "pretrain"]
