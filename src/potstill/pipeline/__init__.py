"""Stages, keys, the run folder and its lock: what `potstill distill`, `finetune`, `ablate` and `pretrain` run."""

from potstill.pipeline.ablate import ablate, ablation_cells
from potstill.pipeline.distill import distill
from potstill.pipeline.finetune import finetune
from potstill.pipeline.plan import plan
from potstill.pipeline.pretrain import pretrain

__all__ = ["ablate", "ablation_cells", "distill", "finetune", "plan", "pretrain"]
