"""Teachers that read the texts by a tokenizer, or up to a length, of their own; and several of them together.

What they compute is laid out on the student's tokens by `potstill.data.alignment`; ids never pass between models.
"""

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from potstill.data.alignment import Alignment, Joined
from potstill.errors import ModelError
from potstill.losses import binary_kl, hidden_mse_reference, logits_mse, soft_binary_cross_entropy
from potstill.losses.vectors import mean_pooled
from potstill.recipes.guidance import Guidance, Guide
from potstill.storage import digest_array
from potstill.training.program import LossTerm, Ramp

__all__ = ["EnsembleGuide", "JoinedGuide", "average_answers", "laid_out"]


def laid_out(hidden: Tensor, joined: Joined) -> Tensor:
    """Hidden states on the student's tokens: the weighted mean of the states of the teacher's that each is joined to.

    Args:
        hidden: (u, L_t, H), of the teacher's windows that `joined` names.
        joined: A batch of b rows, padded to L.

    Returns:
        float32 (b, L, H); 0 where a token is joined to none.
    """
    flat = hidden.float().flatten(0, 1)
    index = [torch.from_numpy(array).to(flat.device) for array in (joined.tokens, joined.starts[:-1], joined.weights)]
    made = functional.embedding_bag(index[0], flat, index[1], mode="sum", per_sample_weights=index[2])
    result: Tensor = made.unflatten(0, joined.joined.shape)
    return result


class JoinedGuide:
    """A teacher's side that speaks of its own windows and tokens, laid out on the student's.

    Args:
        inner: To the teacher's windows, `alignment.teacher`: run on each batch, or kept on disk.
        terms: What is learned.
        alignment: Of the student's encodings and the teacher's.

    Raises:
        ModelError: A loss on pairs of tokens, or on padding; a teacher's side of other windows.
    """

    more: tuple[Guide, ...] = ()

    def __init__(self, inner: Guide, terms: Sequence[LossTerm], alignment: Alignment) -> None:
        states = [term for term in terms if term.layers]
        if alien := [term.name for term in states if term.reads != "hidden" or term.fn is hidden_mse_reference]:
            raise ModelError(
                f"the {alien[0]} loss between models that read different tokens",
                expected="losses on tokens, vectors or answers",
                fix=f"set distill.weights.{alien[0]} to 0, or start the student from the teacher",
            )
        if inner.windows != len(alignment.teacher):
            raise ModelError(f"a teacher's side of {inner.windows} windows for {len(alignment.teacher)} windows")
        self.inner, self.alignment, self.has_states = inner, alignment, bool(states)
        self.windows, self.width, self.heads = len(alignment.student), inner.width, inner.heads
        self.attention_width = inner.attention_width
        self._last: tuple[bytes, Joined] | None = None

    def guidance(self, rows: np.ndarray) -> Guidance:
        """As `Guide.guidance`."""
        joined = self._joined(rows)
        own = self.inner.guidance(joined.windows)
        with torch.no_grad():
            logits = None if own.logits is None else _shares(joined, own.logits) @ own.logits.float()
            if own.states is None:
                return Guidance(logits, None)
            hidden = dict(own.states.hidden)
            own.states.clear()
            lengths = torch.from_numpy(self.alignment.teacher.lengths[joined.windows])
            texts, laid = {}, {}
            for layer, state in hidden.items():
                real = torch.arange(state.shape[1]) < lengths[:, None]
                texts[layer] = _shares(joined, state) @ mean_pooled(state, real.to(state.device))
                laid[layer] = laid_out(state, joined)
            states = copy.copy(own.states)
            states.hidden = laid
        return Guidance(logits, states, texts)

    def heard(self, rows: np.ndarray) -> np.ndarray | None:
        """As `Guide.heard`: the tokens that the teacher reads too."""
        return self._joined(rows).joined if self.has_states else None

    def _joined(self, rows: np.ndarray) -> Joined:
        """Of the last batch it is kept: a step asks twice."""
        key = rows.tobytes()
        if self._last is None or self._last[0] != key:
            self._last = key, self.alignment.of(rows)
        return self._last[1]

    def state(self) -> dict[str, Any]:
        """As `Guide.state`."""
        own = self.alignment.teacher
        return {**self.inner.state(), "teacher_encodings": [digest_array(part) for part in (own.input_ids, own.starts)]}

    def close(self) -> None:
        """As `Guide.close`."""
        self.inner.close()


def _shares(joined: Joined, like: Tensor) -> Tensor:
    return torch.from_numpy(joined.shares).to(like.device)


def average_answers(
    logits: Sequence[Tensor], weights: Sequence[float], temperature: float | None, *, binary: bool = False
) -> Tensor:
    """The answers of several teachers as logits of one: z = t·log Σ_k w_k·softmax(z_k/t): softmax(z/t) is the mean.

    The arithmetic mean of softened probabilities, one of the two means of Hinton et al. 2015 (arXiv 1503.02531,
    section 2) and that of You et al. 2017 (KDD, "Learning from multiple teacher networks").

    Args:
        logits: (B, C) of each teacher, any float dtype.
        weights: Above 0, one for each; they are divided by their sum.
        temperature: t > 0; None means that logits are compared as they are, and their weighted mean is taken.
        binary: Each label is there or not, so that σ(z/t) is the mean, label by label, in place of the softmax.

    Returns:
        (B, C), float64.
    """
    share = torch.tensor([weight / sum(weights) for weight in weights], dtype=torch.float64)
    wide = torch.stack([part.detach().double().cpu() for part in logits])
    if temperature is None:
        return torch.einsum("k,kbc->bc", share, wide)
    log_share = share.log()[:, None, None]
    if binary:
        present, absent = (functional.logsigmoid(sign * wide / temperature) + log_share for sign in (1.0, -1.0))
        return (torch.logsumexp(present, dim=0) - torch.logsumexp(absent, dim=0)) * temperature
    return torch.logsumexp(functional.log_softmax(wide / temperature, dim=-1) + log_share, dim=0) * temperature


class EnsembleGuide:
    """Several teachers: the answers of all, averaged; the states of the first, and of others where they are given.

    Args:
        first: The first teacher.
        others: float32 (m, C) each, the other teachers' answers to the student's windows; none where no term reads
            answers.
        weights: Of the first, then of the others.
        terms: What is learned: they say at which temperature answers are averaged.
        states: The other teachers' sides, where their states are learned too; of their answers nothing is read.

    Raises:
        ModelError: Answers to other windows, or terms that read answers at different temperatures or at one that moves.
    """

    def __init__(
        self,
        first: Guide,
        others: Sequence[np.ndarray],
        weights: Sequence[float],
        terms: Sequence[LossTerm],
        states: Sequence[Guide] = (),
    ) -> None:
        for count in [*map(len, others), *(guide.windows for guide in states)]:
            if count != first.windows:
                raise ModelError(f"{count} rows of a teacher's logits or states for {first.windows} windows")
        how = {None if term.fn is logits_mse else term.temperature for term in terms if term.reads == "logits"}
        if len(how) > 1:
            raise ModelError(f"several teachers at the temperatures {sorted(map(str, how))}", expected="one of them")
        self.first, self.others, self.weights, self.more = first, tuple(others), tuple(weights), tuple(states)
        temperature = next(iter(how), None)
        if isinstance(temperature, Ramp):
            raise ModelError(
                f"several teachers at a temperature that moves, {temperature}",
                expected="one temperature, at which their answers are averaged",
                fix="set distill.temperature to one number",
            )
        self.temperature = temperature
        self.binary = any(term.fn in (binary_kl, soft_binary_cross_entropy) for term in terms)
        self.windows, self.width, self.heads = first.windows, first.width, first.heads
        self.attention_width = first.attention_width

    def guidance(self, rows: np.ndarray) -> Guidance:
        """As `Guide.guidance`."""
        own = self.first.guidance(rows)
        together = own.logits
        if own.logits is not None and self.others:
            answers = [own.logits, *(torch.from_numpy(logits[rows]) for logits in self.others)]
            together = average_answers(answers, self.weights, self.temperature, binary=self.binary)
            together = together.to(own.logits.device)
        return Guidance(together, own.states, own.texts, tuple(guide.guidance(rows) for guide in self.more))

    def heard(self, rows: np.ndarray) -> np.ndarray | None:
        """As `Guide.heard`."""
        return self.first.heard(rows)

    def state(self) -> dict[str, Any]:
        """As `Guide.state`."""
        return {
            **self.first.state(),
            "others": [digest_array(one) for one in self.others],
            "states": [guide.state() for guide in self.more],
            "weights": list(self.weights),
        }

    def close(self) -> None:
        """As `Guide.close`."""
        for guide in (self.first, *self.more):
            guide.close()
