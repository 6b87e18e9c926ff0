"""How training texts are multiplied, decided and checked before any work."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tokenizers import Tokenizer

from potstill.config import Settings
from potstill.data.masking import MaskVocabulary
from potstill.data.sources import Source, resolve_model
from potstill.errors import ModelError, SettingsError, SourceError
from potstill.models.masked_lm import has_masked_lm_head
from potstill.pipeline.inputs import checked_model
from potstill.progress import Reporter
from potstill.recipes import Recipe

__all__ = ["Augmenting", "check_masks", "choose_augmenting"]

_PROPOSING = ("masked-lm", "conditional-masked-lm")


@dataclass(frozen=True)
class Augmenting:
    """What is done.

    Attributes:
        methods: Names as in `augment.method`, none of them `auto`; empty where nothing is made.
        copies: New texts for each text, by each method; 0 where nothing is made.
        model: The masked LM; None where no method has one.
    """

    methods: tuple[str, ...]
    copies: int
    model: Source | None

    @property
    def proposing(self) -> tuple[str, ...]:
        """Methods whose words a masked LM proposes."""
        return tuple(name for name in self.methods if name in _PROPOSING)

    @property
    def conditional(self) -> bool:
        """Whether a masked LM is to learn to read labels."""
        return "conditional-masked-lm" in self.methods

    def texts(self, rows: int, *, pairs: bool) -> int:
        """How many texts there are at most, for so many rows: their own, and the new ones.

        Of a pair each method makes its copies of either side; `recombine` makes new pairs.
        """
        sides = sum(2 if pairs and name != "recombine" else 1 for name in self.methods)
        return rows * (1 + self.copies * sides)

    @property
    def model_name(self) -> str:
        """The masked LM's, for the plan."""
        return self.model.name if self.model is not None else "none"


def choose_augmenting(
    settings: Settings, recipe: Recipe, teacher: Source, readers: Sequence[Path], report: Reporter
) -> Augmenting:
    """Resolve `augment.model` and `auto`; check files, heads, pairs and mask tokens.

    Args:
        settings: Of the run.
        recipe: Says how many where `augment.copies` is not set.
        teacher: Its source.
        readers: Folders of the student's tokenizer and of further teachers', which read the same texts.
        report: Receives progress of a download.

    Raises:
        SourceError: A file or a model that is not there.
        ModelError: A masked LM without a head, a tokenizer without a mask token.
        SettingsError: A method that the data cannot have.
    """
    augment = settings.augment
    for name in (augment.vectors, augment.stop_words):
        if name is not None and not Path(name).is_file():
            raise SourceError(f"there is no file {name}", fix="give the path of an existing file")
    model = teacher if augment.model is None else resolve_model(augment.model, report=report)
    if augment.model is not None:
        checked_model(model)
    copies = recipe.copies if augment.copies is None else augment.copies
    if augment.method not in ("auto", "none") and not copies:
        raise SettingsError(
            f"augment.method names {', '.join(augment.method)}, and this run makes no copies of its own accord",
            expected="a number of new texts for each text",
            fix="set augment.copies, or leave augment.method out",
        )
    if augment.method == "none" or not copies:
        return Augmenting((), 0, None)
    methods = _automatic(settings, model) if augment.method == "auto" else augment.method
    chosen = Augmenting(methods, copies, model if set(methods) & set(_PROPOSING) else None)
    _check(settings, chosen)
    if "masking" in methods:
        check_masks([teacher.paths[0], *readers])
    return chosen


def _automatic(settings: Settings, model: Source) -> tuple[str, ...]:
    if settings.augment.model is not None or has_masked_lm_head(model.paths[0]):
        return ("masked-lm",)
    return ("glove",) if settings.augment.vectors is not None else ("embeddings",)


def check_masks(folders: Sequence[Path]) -> None:
    """Raise `SettingsError` unless the tokenizers in the folders write one mask token, so as to read the same texts."""
    found = []
    for folder in folders:
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        found.append(str(tokenizer.id_to_token(MaskVocabulary.of(tokenizer).mask_token_id)))
    if len(set(found)) > 1:
        raise SettingsError(
            f"augment.method names masking, and the models' mask tokens are {' and '.join(dict.fromkeys(found))}",
            expected="one that all of them read",
            fix="name ngram or a method that replaces words",
        )


def _check(settings: Settings, chosen: Augmenting) -> None:
    is_pair = settings.data.pair is not None
    if chosen.model is not None:
        MaskVocabulary.of(Tokenizer.from_file(str(chosen.model.paths[0] / "tokenizer.json")))
        if not has_masked_lm_head(chosen.model.paths[0]):
            raise ModelError(
                f"{chosen.model.name} has no masked-LM head",
                fix="train one with potstill pretrain --objective masked and give its model/ as augment.model, or "
                "choose another augment.method",
            )
    if chosen.conditional and is_pair:
        raise SettingsError(
            "augment.method names conditional-masked-lm, and the task is on pairs",
            expected="labels that one text decides",
            fix="name masked-lm",
        )
