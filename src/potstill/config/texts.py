"""The settings of what is read: labelled data, plain text, and texts made from them; and what every section is.

A field's description is its documentation everywhere. None means "not set", as in `sections`.
"""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from potstill.config.kinds import AugmentMethods, Place, Source, Sources, Text
from potstill.errors import SettingsError

__all__ = ["AugmentSettings", "DataSettings", "GeneralSettings", "Section"]


class Section(BaseModel):
    """Frozen, strict, and closed to unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class DataSettings(Section):
    """What is learned from, and how its files are read."""

    task: Literal["classification", "regression", "multilabel"] = Field(
        default="classification",
        description="What is answered: one label of several, a number (the label column then holds scores), or any "
        "number of several labels (it then holds sets of labels).",
    )
    train: Source = Field(
        description="Labelled examples to learn from.",
        examples=["train.tsv"],
        json_schema_extra={"flag": "--train SOURCE"},
    )
    dev: Source | None = Field(
        default=None, description="Labelled examples to choose by; not set: dev_share of train.", examples=["dev.tsv"]
    )
    test: Source | None = Field(
        default=None,
        description="Labelled examples to judge by, looked at once; not set: test_share of train.",
        examples=["test.tsv"],
    )
    unlabelled: Sources = Field(default=(), description="Texts without labels, for the teacher to label.")
    text: Text | None = Field(
        default=None,
        description='The column that holds the text; not set: the one that a short name declares, else "text".',
        examples=["sentence"],
    )
    pair: Text | None = Field(
        default=None, description="The column that holds the second text, for tasks on pairs.", examples=["text_b"]
    )
    label: Text | None = Field(
        default=None,
        description="The column that holds the label, the labels or the score; not set: the one that a short name "
        'declares, else "label".',
        examples=["label"],
    )
    label_separator: Literal[",", ";", "|"] = Field(
        default=",",
        description="What stands between the labels in a cell, for sets of labels; JSON lists are read without it.",
    )
    format: Literal["csv", "tsv", "jsonl", "json", "parquet", "tab", "txt"] | None = Field(
        default=None, description="The files' format; not set: told by the file's name.", examples=["tsv"]
    )
    header: bool = Field(default=True, description="Whether the first row of CSV and TSV files names the columns.")
    label_threshold: float | None = Field(
        default=None,
        description='For labels that are numbers: "positive" from here up, "negative" below.',
        examples=[0],
    )
    label_margin: float | None = Field(
        default=None,
        ge=0,
        description="Leave out rows whose number is nearer to label_threshold than this.",
        examples=[0.5],
    )
    dev_share: float = Field(
        default=0.1, gt=0, lt=1, description="Share of train taken as dev (by hash) where dev is not set."
    )
    test_share: float = Field(
        default=0.0,
        ge=0,
        lt=1,
        description="Share of train taken as test (by hash) where test is not set; 0: dev judges.",
    )
    class_weights: Literal["none", "balanced"] = Field(
        default="none",
        description="How much an example counts in the loss on gold labels; balanced: the rarer its label, the more, "
        "so that every label counts the same.",
    )
    rows: int | None = Field(
        default=None,
        ge=2,
        description="Learn from this many rows of train, chosen by hash once dev and test are out; not set: all.",
        examples=[8000],
    )
    max_length: int | None = Field(
        default=None,
        ge=3,
        description="Longest input in tokens, at most what the model has positions for; not set: the shortest of 64, "
        "128, 256 ... that holds 95 % of the texts.",
        examples=[64],
    )
    long_text: Literal["cut", "window"] = Field(
        default="cut", description="What happens to a longer text: cut off, or read in several windows."
    )
    step: int | None = Field(
        default=None,
        ge=1,
        description="Tokens from one window to the next; not set: three quarters of a window.",
        examples=[48],
    )
    bad_rows: float = Field(
        default=0.01,
        ge=0,
        le=1,
        description="Share of rows that may be unusable (empty, undecodable, no number as score, over 1 MB) before the "
        "run is refused.",
    )

    @model_validator(mode="after")
    def _agree(self) -> "DataSettings":
        if self.dev is None and self.test is None and self.dev_share + self.test_share >= 1:
            raise SettingsError(
                f"data.dev_share {self.dev_share} and data.test_share {self.test_share} leave nothing to learn from",
                expected="a sum below 1",
            )
        if self.task != "classification" and self.label_threshold is not None:
            raise SettingsError(
                f'data.label_threshold = {self.label_threshold:g} with data.task = "{self.task}"',
                expected="scores to learn as they are, or two classes made of them",
                fix="leave one of them out",
            )
        if self.task != "classification" and self.class_weights != "none":
            raise SettingsError(
                f'data.class_weights with data.task = "{self.task}"',
                expected="a task of one label a text",
                fix="leave data.class_weights out"
                + (
                    ": each label's threshold is tuned on dev, which does for rare labels what weights would"
                    if self.task == "multilabel"
                    else ""
                ),
            )
        if self.task != "multilabel" and self.label_separator != ",":
            raise SettingsError(
                f'data.label_separator = "{self.label_separator}" with data.task = "{self.task}"',
                expected="cells that hold several labels",
                fix='set data.task = "multilabel", or leave data.label_separator out',
            )
        if self.label_margin is not None and self.label_threshold is None:
            raise SettingsError(
                f"data.label_margin = {self.label_margin} without data.label_threshold",
                fix="set data.label_threshold, or leave data.label_margin out",
            )
        return self


class GeneralSettings(Section):
    """Distillation on plain text, before the task. The stage is absent where there are no texts."""

    texts: Sources = Field(default=(), description="Plain text to learn from; an empty list leaves the stage out.")
    epochs: int | None = Field(
        default=None, ge=1, description="Times the text is read; not set: the distillation mode's own.", examples=[3]
    )
    batch_size: int | None = Field(
        default=None, ge=1, description="Windows of text in a step; not set: the mode's own.", examples=[64]
    )
    learning_rate: float | None = Field(
        default=None, gt=0, lt=1, description="Highest learning rate; not set: the mode's own.", examples=[5e-5]
    )
    max_length: int = Field(default=128, ge=3, description="Length of a window in tokens.")
    max_tokens: int | None = Field(
        default=None,
        ge=1,
        description="Stop reading the text after this many tokens; not set: all.",
        examples=[10_000_000],
    )


class AugmentSettings(Section):
    """More texts, made from the training texts."""

    method: AugmentMethods = Field(
        default="auto",
        description="How, one way or several. Words replaced, the label kept: by a masked LM, by one that has learned "
        "to read the label too, by nearest words in a GloVe file or in the teacher's embedding table. Left to the "
        "teacher to label: words masked, short phrases, parts of the texts joined anew. auto: masked-lm where the "
        "teacher has a masked-LM head or augment.model is set, else glove where augment.vectors is set, else "
        "embeddings.",
    )
    model: Source | None = Field(
        default=None,
        description="The masked LM, such as the model/ that potstill pretrain leaves; not set: the teacher with its "
        "own head.",
        examples=["runs/masked-lm/model"],
    )
    copies: int | None = Field(
        default=None,
        ge=1,
        le=4096,
        description="New texts for each text, by each method; of a pair for each side, or new pairs; not set: the "
        "distillation mode's own, none on a regression or under teacher.scores.",
        examples=[10],
    )
    probability: float = Field(default=0.4, gt=0, le=1, description="How likely a word is replaced.")
    candidates: int = Field(default=15, ge=1, description="Words among which a replacement is drawn.")
    mask_probability: float = Field(default=0.1, gt=0, le=1, description="masking: how likely a word is masked.")
    longest_ngram: int = Field(default=5, ge=1, description="ngram: most words in a phrase.")
    epochs: int = Field(
        default=3, ge=1, description="conditional-masked-lm: epochs of its training on the labelled texts."
    )
    vectors: Place | None = Field(
        default=None,
        description="Word vectors in GloVe's text format, for words of several pieces.",
        examples=["glove.txt"],
    )
    stop_words: Place | None = Field(
        default=None,
        description="File of words never replaced, one a line; not set: a short English list.",
        examples=["stop.txt"],
    )

    @model_validator(mode="after")
    def _agree(self) -> "AugmentSettings":
        named = () if isinstance(self.method, str) else self.method
        twice = sorted({name for name in named if named.count(name) > 1})
        if twice:
            raise SettingsError(f"augment.method names {', '.join(twice)} twice", expected="each at most once")
        if "glove" in named and self.vectors is None:
            raise SettingsError(
                "augment.method names glove without augment.vectors",
                fix="set augment.vectors to a file of word vectors",
            )
        if self.model is not None and self.method != "auto" and not {"masked-lm", "conditional-masked-lm"} & set(named):
            raise SettingsError(
                "augment.model with an augment.method that has no use for it",
                expected="masked-lm or conditional-masked-lm",
                fix="leave augment.model out, or name one of them",
            )
        return self
