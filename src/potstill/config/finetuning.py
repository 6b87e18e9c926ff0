"""The settings of `potstill finetune`, section by section; written as those in `sections` are."""

from typing import Literal

from pydantic import Field, model_validator

from potstill.config.kinds import Place, Source, Text
from potstill.config.sections import RunSettings, TuningSettings
from potstill.config.texts import DataSettings, Section
from potstill.errors import SettingsError

__all__ = ["EncoderSettings", "FinetuneRunSettings", "FinetuneSettings", "FinetuneTraining"]


class EncoderSettings(Section):
    """The model that is fine-tuned."""

    source: Source = Field(
        description="An encoder; a fresh head takes the place of any that it has.",
        examples=["bert-base-uncased"],
        json_schema_extra={"flag": "--model SOURCE"},
    )


class FinetuneTraining(TuningSettings):
    """How it is trained: the rules by which distill fine-tunes a teacher, with the same defaults."""

    precision: Literal["auto", "float32", "bfloat16"] = Field(
        default="auto",
        description="Arithmetic of the forward passes; auto: bfloat16 where the processor is fast at it.",
    )


class FinetuneRunSettings(RunSettings):
    """Where the run stands, and what it may use."""

    out: Place = Field(
        default="runs/finetune",
        description="The run folder; left out, it is runs/ and the name.",
        json_schema_extra={"derived": True},
    )
    name: Text = Field(
        default="finetune",
        description="The run's name; left out, it is that of the settings file or of the run folder.",
        json_schema_extra={"derived": True},
    )


class FinetuneSettings(Section):
    """Everything that decides what a fine-tuning does. `data.train` and `model.source` have no default."""

    data: DataSettings
    model: EncoderSettings
    training: FinetuneTraining = Field(default_factory=FinetuneTraining)
    run: FinetuneRunSettings = Field(default_factory=FinetuneRunSettings)

    @model_validator(mode="after")
    def _agree(self) -> "FinetuneSettings":
        if self.data.unlabelled:
            raise SettingsError(
                f"data.unlabelled = {', '.join(self.data.unlabelled)} in a fine-tuning",
                expected="labelled examples alone: no teacher is there to label others",
                fix="leave data.unlabelled out, or run potstill distill",
            )
        return self
