"""What distill_step.py compares with: plain `transformers`, written without Potstill's losses, taps and optimiser.

float32, eager attention, fixed-length padding, dense AdamW, clipping. Queries and keys come from hooks, because no
attention implementation hands out scores before softmax.
"""

from typing import Any

import numpy as np
import torch
from distill_texts import Case
from torch import Tensor, nn
from torch.nn import functional
from transformers import AutoModelForSequenceClassification, PretrainedConfig, PreTrainedModel

from potstill.models.student import Shape, student_config
from potstill.recipes.distilling import Distilling


class Plain:
    """A step of plain distilling, from the same weights, with the same terms.

    Args:
        teacher: Whose weights it takes, as float32.
        program: Its student and projections, whose weights it takes too, its terms and texts.
        config: The teacher's.
        case: Batch and length.
    """

    def __init__(
        self,
        teacher: PreTrainedModel,
        program: Distilling,
        config: PretrainedConfig,
        case: Case,
    ) -> None:
        self.terms, self.data, self.case = program.terms, program.data, case
        self.teacher = _made(config, teacher).eval()
        self.student = _made(student_config(config, Shape.of(program.student.config)), program.student).train()
        device = teacher.device
        self.teacher.to(device).requires_grad_(requires_grad=False)
        self.student.to(device)
        self.projections = nn.ModuleDict(
            {
                name: nn.Linear(part.in_features, part.out_features, bias=part.bias is not None)
                for name, part in program.projections.items()
            }
        ).to(device)
        self.projections.load_state_dict(
            {name: value.float() for name, value in program.projections.state_dict().items()}
        )
        self.seen: list[dict[str, list[Tensor]]] = [_watch(self.teacher), _watch(self.student)]
        self.parameters = [*self.student.parameters(), *self.projections.parameters()]
        plain = [p for p in self.parameters if p.ndim < 2]
        rest = [p for p in self.parameters if p.ndim > 1]
        groups = [{"params": rest, "weight_decay": 0.01}, {"params": plain, "weight_decay": 0.0}]
        self.optimiser = torch.optim.AdamW(groups, lr=1e-4)

    def inputs(self, rows: np.ndarray) -> dict[str, Tensor]:
        """The texts, padded to the case's length."""
        whole = {name: torch.from_numpy(array) for name, array in self.data.encodings.batch(rows).items()}
        if getattr(self.student.config, "type_vocab_size", 0) < 2:
            whole.pop("token_type_ids")
        pad = {"input_ids": int(self.student.config.pad_token_id or 0)}
        short = self.case.length - whole["input_ids"].shape[1]
        return {
            name: functional.pad(tensor, (0, short), value=pad.get(name, 0)).to(self.student.device)
            for name, tensor in whole.items()
        }

    def losses(self, rows: np.ndarray) -> dict[str, Tensor]:
        """Each term's value on the texts."""
        inputs = self.inputs(rows)
        for seen in self.seen:
            for tensors in seen.values():
                tensors.clear()
        with torch.no_grad():
            theirs = self.teacher(**inputs, output_hidden_states=True)
        ours = self.student(**inputs, output_hidden_states=True)
        labels = torch.from_numpy(self.data.labels[rows]).to(self.student.device)
        mask = inputs["attention_mask"].float()
        found = {}
        for term in self.terms:
            if term.reads == "hidden":
                values = [
                    _masked_mean(
                        (self._projected(term.name, ours.hidden_states[own]) - theirs.hidden_states[other]) ** 2,
                        mask[:, :, None],
                    )
                    for own, other in term.layers
                ]
            elif term.reads == "scores":
                both = mask[:, None, :, None] * mask[:, None, None, :]
                values = [
                    _masked_mean((self._scores(1, own) - self._scores(0, other)) ** 2, both)
                    for own, other in term.layers
                ]
            elif term.reads == "logits":
                own, target = (x.logits / term.temperature for x in (ours, theirs))
                divergence = functional.kl_div(
                    own.log_softmax(-1), target.log_softmax(-1), reduction="batchmean", log_target=True
                )
                values = [divergence * term.temperature**2]
            else:
                values = [functional.cross_entropy(ours.logits, labels)]
            found[term.name] = torch.stack(values).sum()
        return found

    def _projected(self, name: str, hidden: Tensor) -> Tensor:
        made: Tensor = self.projections["all" if "all" in self.projections else name](hidden)
        return made

    def _scores(self, side: int, layer: int) -> Tensor:
        heads = self.student.config.num_attention_heads
        query, key = (
            self.seen[side][name][layer - 1].unflatten(-1, (heads, -1)).transpose(1, 2) for name in ("query", "key")
        )
        return query @ key.transpose(2, 3) / query.shape[-1] ** 0.5

    def values(self, rows: np.ndarray) -> dict[str, float]:
        """Each term's value, dropout off."""
        self.student.eval()
        with torch.no_grad():
            found = {name: float(value) for name, value in self.losses(rows).items()}
        self.student.train()
        return found

    def step(self, rows: np.ndarray) -> None:
        """One update."""
        self.optimiser.zero_grad()
        found = self.losses(rows)
        weights = {term.name: term.weight for term in self.terms}
        torch.stack([weights[name] * value for name, value in found.items()]).sum().backward()
        nn.utils.clip_grad_norm_(self.parameters, 1.0)
        self.optimiser.step()


def _made(config: PretrainedConfig, like: PreTrainedModel) -> PreTrainedModel:
    config._attn_implementation = "eager"
    model: PreTrainedModel = AutoModelForSequenceClassification.from_config(config, dtype=torch.float32)
    model.load_state_dict({name: value.float() for name, value in like.state_dict().items()})
    return model


def _watch(model: PreTrainedModel) -> dict[str, list[Tensor]]:
    """Queries and keys of each layer, in order, filled by every forward pass."""
    seen: dict[str, list[Tensor]] = {"query": [], "key": []}
    places = {"query": "query", "key": "key", "q": "query", "k": "key"}
    for name, module in model.named_modules():
        kind = places.get(name.rpartition(".")[2])
        if kind is not None and isinstance(module, nn.Linear):

            def hook(_module: nn.Module, _inputs: Any, output: Tensor, kind: str = kind) -> None:
                seen[kind].append(output)

            module.register_forward_hook(hook)
    return seen


def _masked_mean(values: Tensor, mask: Tensor) -> Tensor:
    whole = mask.expand_as(values)
    return (values * whole).sum() / whole.sum()
