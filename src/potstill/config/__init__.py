"""All settings of a run: frozen models, read from TOML and `--set`, written back as TOML.

Settings stop at the run function: nothing below `potstill.pipeline` imports this package. It knows no torch, opens no
data file and no model; what depends on the data or the teacher is checked by the stage that has them.
"""

from potstill.config.ablation import AblateRunSettings, AblateSettings, CellSettings
from potstill.config.finetuning import EncoderSettings, FinetuneRunSettings, FinetuneSettings, FinetuneTraining
from potstill.config.kinds import ExportFormat
from potstill.config.pretraining import (
    MaskingSettings,
    PretrainRunSettings,
    PretrainSettings,
    StartSettings,
    TextSettings,
    TrainingSettings,
)
from potstill.config.reading import load_settings, read_settings
from potstill.config.sections import (
    DistillSettings,
    EvaluateSettings,
    ExportSettings,
    RunSettings,
    Settings,
    StudentSettings,
    TeacherSettings,
    TuningSettings,
    WeightSettings,
)
from potstill.config.texts import AugmentSettings, DataSettings, GeneralSettings
from potstill.config.writing import commented_settings, write_settings

__all__ = [
    "AblateRunSettings",
    "AblateSettings",
    "AugmentSettings",
    "CellSettings",
    "DataSettings",
    "DistillSettings",
    "EncoderSettings",
    "EvaluateSettings",
    "ExportFormat",
    "ExportSettings",
    "FinetuneRunSettings",
    "FinetuneSettings",
    "FinetuneTraining",
    "GeneralSettings",
    "MaskingSettings",
    "PretrainRunSettings",
    "PretrainSettings",
    "RunSettings",
    "Settings",
    "StartSettings",
    "StudentSettings",
    "TeacherSettings",
    "TextSettings",
    "TrainingSettings",
    "TuningSettings",
    "WeightSettings",
    "commented_settings",
    "load_settings",
    "read_settings",
    "write_settings",
]
