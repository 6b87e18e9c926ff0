"""The settings of `potstill pretrain`, section by section; written as those in `sections` are."""

from typing import Literal

from pydantic import Field, model_validator

from potstill.config.kinds import Place, Shape, Source, Sources, Text
from potstill.config.sections import RunSettings
from potstill.config.texts import Section
from potstill.errors import SettingsError

__all__ = [
    "MaskingSettings",
    "PretrainRunSettings",
    "PretrainSettings",
    "StartSettings",
    "TextSettings",
    "TrainingSettings",
]


class TextSettings(Section):
    """What is read."""

    sources: Sources = Field(
        description="Plain text to learn from.",
        examples=[["corpus.txt"]],
        min_length=1,
        json_schema_extra={"flag": "--text SOURCE"},
    )
    held_out: Source | None = Field(
        default=None,
        description="Plain text to judge by, never learned from; not set: held_out_share of the texts.",
        examples=["held-out.txt"],
    )
    held_out_share: float = Field(
        default=0.02, gt=0, lt=1, description="Share of the texts kept apart (by hash) where held_out is not set."
    )
    max_length: int = Field(default=128, ge=3, description="Length of a window in tokens.")
    max_tokens: int | None = Field(
        default=None,
        ge=1,
        description="Stop reading the texts after this many tokens; not set: all.",
        examples=[10_000_000],
    )


class StartSettings(Section):
    """The model that is trained."""

    source: Source = Field(
        description="An encoder, with a masked-LM head or without: a fresh head is then tied to its embeddings.",
        examples=["bert-base-uncased"],
        json_schema_extra={"flag": "--model SOURCE"},
    )
    start: Literal["weights", "random"] = Field(
        default="weights", description="Go on from the model's weights, or take its architecture and tokenizer alone."
    )
    shape: Shape | None = Field(
        default=None,
        description='Another size, for start = "random": LxH, or LxHxFFNxHEADS; not set: the model\'s own.',
        examples=["4x312"],
    )

    @model_validator(mode="after")
    def _agree(self) -> "StartSettings":
        if self.shape is not None and self.start != "random":
            raise SettingsError(
                f'model.shape = "{self.shape}" with the model\'s own weights',
                expected='model.start = "random"',
                fix="set that, or leave model.shape out",
            )
        return self


class MaskingSettings(Section):
    """Which tokens are to be guessed, anew in each epoch."""

    rate: float = Field(default=0.15, gt=0, lt=1, description="Share of the tokens to guess.")
    masked: float = Field(default=0.8, ge=0, le=1, description="Share of these that become the mask token.")
    random: float = Field(
        default=0.1, ge=0, le=1, description="Share of these that become a random token; the rest stay as they are."
    )
    whole_words: bool = Field(default=False, description="Choose whole words, not pieces of words.")

    @model_validator(mode="after")
    def _agree(self) -> "MaskingSettings":
        if self.masked + self.random > 1 + 1e-9:
            raise SettingsError(
                f"masking.masked {self.masked} and masking.random {self.random}", expected="together 1 at most"
            )
        return self


class TrainingSettings(Section):
    """How it is trained."""

    objective: Literal["masked"] = Field(default="masked", description="What is learned: to guess masked tokens.")
    epochs: int = Field(default=2, ge=1, description="Times the text is read.")
    batch_size: int = Field(default=64, ge=1, description="Windows in a step.")
    learning_rate: float = Field(default=3e-4, gt=0, lt=1, description="Highest learning rate.")
    warmup: float = Field(default=0.1, ge=0, lt=1, description="Share of the steps in which the learning rate rises.")
    weight_decay: float = Field(default=0.01, ge=0, le=1, description="Weight decay, biases and LayerNorm apart.")
    dropout: bool = Field(
        default=False,
        description="Whether the model's dropout is on. A text that is read a few times is not overfitted, and dropout "
        "makes a step longer.",
    )
    precision: Literal["auto", "float32", "bfloat16"] = Field(
        default="auto",
        description="Arithmetic of the forward passes; auto: bfloat16 where the processor is fast at it.",
    )


class PretrainRunSettings(RunSettings):
    """Where the run stands, and what it may use."""

    out: Place = Field(
        default="runs/pretrain",
        description="The run folder; left out, it is runs/ and the name.",
        json_schema_extra={"derived": True},
    )
    name: Text = Field(
        default="pretrain",
        description="The run's name; left out, it is that of the settings file or of the run folder.",
        json_schema_extra={"derived": True},
    )


class PretrainSettings(Section):
    """Everything that decides what a pre-training does. `text.sources` and `model.source` have no default."""

    text: TextSettings
    model: StartSettings
    masking: MaskingSettings = Field(default_factory=MaskingSettings)
    training: TrainingSettings = Field(default_factory=TrainingSettings)
    run: PretrainRunSettings = Field(default_factory=PretrainRunSettings)
