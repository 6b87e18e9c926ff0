"""The settings of `potstill ablate`: those of a distillation, and which parts of it are changed, for how long."""

from typing import Annotated

from pydantic import BeforeValidator, Field, model_validator

from potstill.config.kinds import Allowed, Place, Text
from potstill.config.sections import RunSettings, Settings
from potstill.config.texts import Section
from potstill.errors import SettingsError

__all__ = ["AblateRunSettings", "AblateSettings", "CellSettings"]


def _names(value: object) -> object:
    if isinstance(value, str):
        value = [part.strip() for part in value.split(",") if part.strip()]
    return tuple(value) if isinstance(value, list) else value


class CellSettings(Section):
    """Which cells there are, and what each gets. A cell is the distillation with one thing changed."""

    cells: Annotated[
        tuple[Text, ...], BeforeValidator(_names), Allowed("a list of names such as no-hidden, top-mapping")
    ] = Field(
        default=(),
        description="Cells to run beside the full recipe; an empty list means all that the recipe admits.",
        examples=[["no-hidden", "labels-alone"]],
    )
    seeds: int = Field(default=3, ge=1, le=100, description="Seeds of each cell: run.seed and those that follow it.")
    minutes: float | None = Field(
        default=None,
        gt=0,
        description="Minutes of the student's training in each cell, so that what costs more gets fewer steps; not "
        "set: the same epochs for all.",
        examples=[1.5],
    )
    steps: int | None = Field(
        default=None,
        ge=1,
        description="Steps of the student's training in each cell, in place of minutes; not set: by epochs.",
        examples=[2000],
    )

    @model_validator(mode="after")
    def _agree(self) -> "CellSettings":
        if self.minutes is not None and self.steps is not None:
            raise SettingsError(
                f"ablate.minutes = {self.minutes:g} and ablate.steps = {self.steps}",
                expected="one of them",
                fix="leave one out",
            )
        return self


class AblateRunSettings(RunSettings):
    """Where the run stands, and what it may use."""

    out: Place = Field(
        default="runs/ablation",
        description="The run folder; left out, it is runs/ and the name.",
        json_schema_extra={"derived": True},
    )
    name: Text = Field(
        default="ablation",
        description="The run's name; left out, it is that of the settings file or of the run folder.",
        json_schema_extra={"derived": True},
    )

    @model_validator(mode="after")
    def _agree(self) -> "AblateRunSettings":
        if self.budget is not None:
            raise SettingsError(
                f"run.budget = {self.budget:g} in an ablation",
                expected="the time of a cell",
                fix="leave run.budget out (--set run.budget= takes it out of a file), and set ablate.minutes",
            )
        return self


class AblateSettings(Settings):
    """Everything that decides what an ablation does. `data.train` has no default, nor has the teacher: a model."""

    ablate: CellSettings = Field(default_factory=CellSettings)
    run: AblateRunSettings = Field(default_factory=AblateRunSettings)

    @model_validator(mode="after")
    def _a_model_teaches(self) -> "AblateSettings":
        if self.teacher.scores is not None:
            raise SettingsError(
                f"teacher.scores = {self.teacher.scores} in an ablation",
                expected="a model as teacher: answers alone leave little to change",
                fix="give a model as teacher.source, or run potstill distill",
            )
        return self
