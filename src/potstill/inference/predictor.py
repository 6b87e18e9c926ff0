"""Texts in, answers out: reads a model's folder, encodes, runs an engine, merges windows, says what the task says.

Works a chunk of rows at a time, so memory is flat in their number; a row that cannot be answered says why, and the
others go on. Imports no torch: a folder exported to ONNX or OpenVINO is answered without it.
"""

import math
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from potstill.data.encoding import Encodings, TextEncoder
from potstill.engines import Engine, EngineName, Precision, load, obstacle
from potstill.errors import DataError, ModelError, SettingsError
from potstill.inference.deployment import DEPLOYMENT, Deployment, read_deployment
from potstill.metrics import Threshold, choose_threshold
from potstill.tasks import Task

__all__ = ["Prediction", "Predictor", "Row", "flaw"]

Row = str | tuple[str, str]
"""One text, or the two of a pair."""

# A chunk is closed by whichever comes first; long enough that sorting by length inside it saves padding.
_CHUNK_ROWS = 1024
_CHUNK_CHARACTERS = 4_000_000


@dataclass(frozen=True)
class Prediction:
    """The answer to one row.

    Attributes:
        label: The most probable label; None where the row could not be answered, the answer is withheld or another.
        probabilities: By label, softmax of the mean logits of the text's windows over the model's temperature; they
            add up to 1. For sets of labels the sigmoid of each, and they do not. Empty where there are no labels.
        score: The mean over the text's windows; None where the row could not be answered, or the answer is no score.
        labels: Those whose probability reaches their threshold, maybe none; None where the answer is no set of labels.
        truncated: Whether the model did not see all of the text.
        windows: In how many windows it was read; 0 where the row could not be answered.
        reason: Why the row could not be answered; None where it was.
        abstained: Whether the answer is withheld, for the model is less sure of it than was asked for.
    """

    label: str | None = None
    probabilities: dict[str, float] = field(default_factory=dict)
    truncated: bool = False
    windows: int = 0
    reason: str | None = None
    score: float | None = None
    labels: list[str] | None = None
    abstained: bool = False

    def answer(self) -> dict[str, Any]:
        """What the task answers: `label`, `labels` or `score`, with `probabilities`; `abstained` where withheld."""
        if self.score is not None:
            return {"score": self.score}
        if self.labels is not None:
            return {"labels": self.labels, "probabilities": self.probabilities}
        if self.abstained:
            return {"label": None, "abstained": True, "probabilities": self.probabilities}
        return {"label": self.label, "probabilities": self.probabilities}


class Predictor:
    """Answers texts with a label or several and probabilities, or with a score.

    Args:
        engine: Runs the model.
        encoder: Makes its input.
        task: What its outputs mean, and whether rows are pairs of texts.
        temperature: What logits are divided by before they become probabilities.
        abstain_below: Answers less sure than this, 0 … 1, are withheld; None withholds none.
        threshold: What dev said of that, where dev chose it; else None.
    """

    def __init__(
        self,
        engine: Engine,
        encoder: TextEncoder,
        task: Task,
        *,
        temperature: float = 1.0,
        abstain_below: float | None = None,
        threshold: Threshold | None = None,
    ) -> None:
        self.engine, self.encoder, self.task, self.pair = engine, encoder, task, task.pair
        self.temperature, self.abstain_below, self.threshold = temperature, abstain_below, threshold

    @classmethod
    def load(
        cls,
        folder: Path,
        *,
        deployment: Deployment | None = None,
        engine: EngineName | None = None,
        precision: Precision | None = None,
        threads: int | None = None,
        abstain_below: float | None = None,
        wanted_precision: float | None = None,
    ) -> "Predictor":
        """Open the folder of a finished model.

        Args:
            folder: Holds potstill.json, tokenizer.json and what the engine reads.
            deployment: What else is known of the model. None means what its potstill.json says.
            engine: What runs it, and nothing else. None means what potstill.json names under `deploy`; torch in float32
                where it names none, and, with a warning, where that one cannot be had here.
            precision: Its arithmetic. None means the one named for this engine, else float32.
            threads: Threads of one run; None leaves it to the engine.
            abstain_below: Answers less sure than this, 0 … 1, are withheld; None withholds none.
            wanted_precision: In place of it: withhold as few answers as leave this share of the given ones right, above
                0 and below 1, by `abstention` in potstill.json.

        Raises:
            ModelError: A folder without what is needed, or an engine that cannot be had here.
            SettingsError: A wish for answers to be withheld that cannot be met.
            StorageError: The engine's file is missing.
        """
        deployment = read_deployment(folder) if deployment is None else deployment
        task = deployment.made_task()
        threshold = None
        if abstain_below is not None or wanted_precision is not None:
            threshold = _threshold(deployment, task, abstain_below, wanted_precision)
            abstain_below = threshold.confidence if threshold is not None else abstain_below
        chosen = _choose(folder, deployment, engine, precision)
        encoder = TextEncoder.from_folder(
            folder, max_length=deployment.max_length, long_text=deployment.long_text, step=deployment.step
        )
        return cls(
            load(folder, *chosen, threads=threads),
            encoder,
            task,
            temperature=deployment.temperature,
            abstain_below=abstain_below,
            threshold=threshold,
        )

    def predict(
        self, texts: Sequence[str], pairs: Sequence[str] | None = None, *, batch_size: int = 32
    ) -> list[Prediction]:
        """Answer n texts, or n pairs, in their order.

        Args:
            texts: Texts; of pairs, the first of each.
            pairs: The second of each pair; None for a task on one text.
            batch_size: Windows in one run of the engine.

        Raises:
            DataError: Not as many seconds as firsts.
        """
        if pairs is not None and len(pairs) != len(texts):
            raise DataError(f"{len(texts)} texts and {len(pairs)} second texts", expected="as many of both")
        rows: Iterable[Row] = texts if pairs is None else zip(texts, pairs, strict=True)
        return list(self.predict_stream(rows, batch_size=batch_size))

    def predict_stream(self, rows: Iterable[Row], *, batch_size: int = 32) -> Iterator[Prediction]:
        """Answer rows as they come, in their order, in memory that does not grow with their number.

        Args:
            rows: Texts, or, for a model that reads pairs, pairs.
            batch_size: Windows in one run of the engine.

        Raises:
            DataError: Texts for a model of pairs, or pairs for one of texts; a batch size below 1.
        """
        if batch_size < 1:
            raise DataError(f"batch size {batch_size}", expected="1 or more")
        for chunk in _chunks(rows):
            yield from self._answer(chunk, batch_size)

    def _answer(self, rows: list[Row], batch_size: int) -> list[Prediction]:
        if any(isinstance(row, str) == self.pair for row in rows):
            kinds = ("pairs of texts", "single texts") if self.pair else ("single texts", "pairs of texts")
            raise DataError(f"the model reads {kinds[0]}, and was given {kinds[1]}", expected=kinds[0])
        answers = [Prediction(reason=flaw(row)) for row in rows]
        whole = [index for index, answer in enumerate(answers) if answer.reason is None]
        if not whole:
            return answers
        encodings = self._encode([rows[index] for index in whole])
        windows = np.bincount(encodings.example, minlength=len(whole))
        truncated = self._truncated([rows[index] for index in whole], encodings, windows)
        scores = self.task.merge(self._logits(encodings, batch_size), encodings.example)
        finite = np.nan_to_num(scores)
        decoded, withheld = self.task.decode(finite, self.temperature), self._withheld(finite)
        for place, index in enumerate(whole):
            if not np.isfinite(scores[place]).all():
                answers[index] = Prediction(reason="the model gives NaN or infinity for it")
                continue
            answer = Prediction(**decoded[place], truncated=bool(truncated[place]), windows=int(windows[place]))
            answers[index] = replace(answer, label=None, abstained=True) if withheld[place] else answer
        return answers

    def _withheld(self, scores: np.ndarray) -> np.ndarray:
        """Which of the texts' answers the model is not sure enough of, bool (n,)."""
        if self.abstain_below is None or self.task.confidence is None:
            return np.zeros(len(scores), dtype=bool)
        return self.task.confidence.of(scores, self.temperature) < self.abstain_below

    def _encode(self, rows: list[Row]) -> Encodings:
        if not self.pair:
            return self.encoder.encode([str(row) for row in rows])
        return self.encoder.encode([row[0] for row in rows], [row[1] for row in rows])

    def _truncated(self, rows: list[Row], encodings: Encodings, windows: np.ndarray) -> np.ndarray:
        """Which rows lost tokens, bool (n,).

        `Encodings` counts them; a row in one full window may be one of them, and is looked at again.
        """
        truncated = np.zeros(len(rows), dtype=bool)
        if encodings.truncated:
            longest = np.zeros(len(rows), dtype=np.int64)
            np.maximum.at(longest, encodings.example, encodings.lengths)
            for place in np.flatnonzero((windows == 1) & (longest == self.encoder.max_length)):
                row = rows[place]
                encoding = self.encoder.tokenizer.encode(*([row] if isinstance(row, str) else row))
                truncated[place] = len(encoding.ids) > self.encoder.max_length
        return truncated

    def _logits(self, encodings: Encodings, batch_size: int) -> np.ndarray:
        """float32 (m, outputs): of every window, batched by length so that little is padded."""
        order = np.argsort(-encodings.lengths, kind="stable")
        outputs = self.task.outputs
        logits = np.empty((len(encodings), outputs), dtype=np.float32)
        for start in range(0, len(order), batch_size):
            windows = order[start : start + batch_size]
            found = self.engine.run(encodings.batch(windows))["logits"]
            if found.shape != (len(windows), outputs):
                what = "one a label" if self.task.labels else "a score"
                raise ModelError(f"logits of shape {found.shape}", expected=f"({len(windows)}, {outputs}), {what}")
            logits[windows] = found
        return logits


def _threshold(
    deployment: Deployment, task: Task, abstain_below: float | None, wanted: float | None
) -> Threshold | None:
    """The threshold that dev chooses for a precision; None where `abstain_below` names one."""
    named = "abstain_below" if wanted is None else "wanted_precision"
    if abstain_below is not None and wanted is not None:
        raise SettingsError("both abstain_below and wanted_precision", fix="give one of them")
    if task.confidence is None:
        raise SettingsError(
            f"{named} with a model whose answers ({task.kind}) have no probability of their own",
            fix=f"leave {named} out",
        )
    value = abstain_below if wanted is None else wanted
    if value is None or not 0 <= value <= 1 or (wanted is not None and wanted in (0, 1)):
        raise SettingsError(f"{named} is {value}", expected="a share, as 0.95")
    if wanted is None:
        return None
    if not deployment.abstention:
        raise SettingsError(
            f"wanted_precision with a model whose {DEPLOYMENT} has no abstention",
            expected="the thresholds that `potstill distill` finds on a dev split with gold labels",
            fix="name a confidence with abstain_below, or distil again",
        )
    chosen = choose_threshold(deployment.abstention, wanted)
    if chosen is None:
        best = max(one.at_least for one in deployment.abstention)
        raise SettingsError(
            f"wanted_precision is {wanted:g}, which no threshold is sure to reach by what dev shows",
            expected=f"at most {math.floor(1000 * best) / 1000:g}",
            fix="want less, name a confidence with abstain_below, or distil with more dev examples",
        )
    return chosen


def _choose(
    folder: Path, deployment: Deployment, engine: EngineName | None, precision: Precision | None
) -> tuple[EngineName, Precision]:
    named = deployment.deploy
    if engine is not None or precision is not None:
        wanted = engine or (named[0] if named else "torch")
        usual = named[1] if named and named[0] == wanted else "float32"
        return wanted, precision or usual
    if named is None:
        return "torch", "float32"
    if (reason := obstacle(folder, *named)) is not None:
        warnings.warn(f"{' '.join(named)} is not used, torch float32 is: {reason}", stacklevel=3)
        return "torch", "float32"
    return named


def _chunks(rows: Iterable[Row]) -> Iterator[list[Row]]:
    chunk: list[Row] = []
    characters = 0
    for row in rows:
        chunk.append(row)
        characters += len(row) if isinstance(row, str) else sum(map(len, row))
        if len(chunk) == _CHUNK_ROWS or characters >= _CHUNK_CHARACTERS:
            yield chunk
            chunk, characters = [], 0
    if chunk:
        yield chunk


def flaw(row: Row) -> str | None:
    """Why a row cannot be encoded: empty, or no Unicode; None where it can."""
    for text in (row,) if isinstance(row, str) else row:
        if not text.strip():
            return "empty"
        try:
            text.encode()
        except UnicodeEncodeError as error:
            return f"not a Unicode text: a lone surrogate at character {error.start}"
    return None
