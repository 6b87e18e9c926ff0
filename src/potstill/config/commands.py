"""Which command reads which settings."""

from pydantic import BaseModel

from potstill.config.ablation import AblateSettings
from potstill.config.finetuning import FinetuneSettings
from potstill.config.pretraining import PretrainSettings
from potstill.config.sections import Settings

__all__ = ["COMMANDS"]

COMMANDS: dict[type[BaseModel], str] = {
    Settings: "distill",
    PretrainSettings: "pretrain",
    AblateSettings: "ablate",
    FinetuneSettings: "finetune",
}
