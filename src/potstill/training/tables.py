"""AdamW for an embedding table of which a step touches few rows: what dense AdamW gives, for the rows in use alone.

Under dense AdamW a row without a gradient goes on moving: its moments fade, its momentum carries it, decay shrinks it.
Between two steps that touch it this has a closed form, so it is made up for when the row is next read, and the work of
a step grows with the rows it touches, not with the vocabulary.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

__all__ = ["RowTable", "added_rows", "tables_in"]


def tables_in(modules: Mapping[str, nn.Module], least: int) -> Iterator[tuple[str, nn.Embedding]]:
    """Trained embedding modules of `least` rows or more whose weights nothing else uses, by their weight's full name.

    A table that a masked-LM head shares has a gradient in every row and is none of these.
    """
    users: dict[int, int] = {}
    for module in {id(m): m for part in modules.values() for m in part.modules()}.values():
        for parameter in module.parameters(recurse=False):
            users[id(parameter)] = users.get(id(parameter), 0) + 1
    for name, part in modules.items():
        for path, module in part.named_modules():
            if not isinstance(module, nn.Embedding) or not module.weight.requires_grad:
                continue
            plain = module.max_norm is None and not module.scale_grad_by_freq
            if plain and module.num_embeddings >= least and users[id(module.weight)] == 1:
                yield ".".join(part for part in (name, path, "weight") if part), module


def added_rows(rows: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    """Rows (m,), as often as they were read, and their gradients (m, H), as each row once and the sum of its gradients.

    Returns:
        int64 (n,) ascending, float32 (n, H); sums are float32 whatever the gradients are held in.
    """
    once, place = torch.unique(rows, return_inverse=True)
    found = torch.zeros(len(once), values.shape[1], dtype=torch.float32, device=values.device)
    return once, found.index_add_(0, place, values.float())


class RowTable:
    """An embedding table, its float32 weights and moments, and how far each row has come.

    With β₁, β₂, ε, a rate lr_k, decay λ, and the corrections c₁ = 1 − β₁ᵏ, c₂ = 1 − β₂ᵏ of step k, a row whose last
    gradient came at step s stands at step t at

        w_t = D·w_s − C·q,   D = Π (1 − lr_k·λ),   C = Σ_k (Π_{l>k} (1 − lr_l·λ))·(lr_k/c₁)·β₁ʲ·u_k,   j = k − s,
        u_k = √c₂·β₂^(−j/2),   q = m_s / (√v_s + ε·ū),

    where ū, the mean of u_k weighted as in C, takes the place of the u_k in q: exact to first order in ε/√v. The
    moments are β₁ʲ·m and β₂ʲ·v. D, C and what ū needs are kept for every s, float64, renewed at each step.

    Args:
        module: Its gradient becomes sparse until `release`, its weight is replaced by nothing.
        master: float32 (V, H); the module's own weight where that is float32.
        weight_decay, factor: λ, and what multiplies a step's learning rate.
        betas, eps: Adam's.

    Row r's values in `master`, `first` and `second` (the moments) are those after step `last[r]`; a forward pass in
    training mode brings the rows it reads up to date, one in eval mode reads them as they should be and changes
    nothing: what is saved or averaged does not depend on who looked.

    Papers: Loshchilov & Hutter, arXiv 1711.05101. Unlike `torch.optim.SparseAdam`, which leaves untouched rows and
    their moments as they were.
    """

    def __init__(
        self,
        module: nn.Embedding,
        master: Tensor,
        *,
        weight_decay: float,
        factor: float,
        betas: tuple[float, float],
        eps: float,
    ) -> None:
        self.module, self.master, self.factor = module, master, factor
        self.weight_decay, self.betas, self.eps = weight_decay, betas, eps
        self.first, self.second = torch.zeros_like(master), torch.zeros_like(master)
        self.last = torch.zeros(len(master), dtype=torch.int64, device=master.device)
        self.total: Tensor | None = None
        self._drift = np.zeros((7, 1))
        self._drift[[0, 5, 6]] = 1.0
        module.sparse = True
        self._handles = [
            module.register_forward_pre_hook(self._before),
            module.register_forward_hook(self._instead),
        ]

    @property
    def steps(self) -> int:
        """Steps made."""
        return self._drift.shape[1] - 1

    def _before(self, module: nn.Module, inputs: tuple[Any, ...]) -> None:
        if module.training:
            self.catch_up(torch.unique(inputs[0]))

    def _instead(self, module: nn.Module, inputs: tuple[Any, ...], _output: Tensor) -> Tensor | None:
        if module.training:
            return None
        with torch.no_grad():
            rows, place = torch.unique(inputs[0], return_inverse=True)
            weights = self._moved(rows)[0].to(self.module.weight.dtype)
            return functional.embedding(place, weights)

    def _coefficients(self, rows: Tensor) -> Tensor:
        """Of each row: D, C, ū, Σ D and Σ C over averaged steps, β₁ʲ, β₂ʲ; float32 (7, n)."""
        since = self.last[rows].cpu().numpy()
        decay, shift, weighted, decays, shifts, *_ = self._drift[:, since]
        mean = np.divide(weighted, shift, out=np.ones_like(shift), where=shift > 0)
        gap = (self.steps - since).astype(float)
        found = np.stack([decay, shift, mean, decays, shifts, self.betas[0] ** gap, self.betas[1] ** gap])
        return torch.from_numpy(found.astype(np.float32)).to(self.master.device)

    def _moved(self, rows: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Weights and moments of rows as they stand now, and what the averaged steps since add to their total."""
        decay, shift, mean, decays, shifts, first, second = (part[:, None] for part in self._coefficients(rows))
        weight, m, v = self.master[rows], self.first[rows], self.second[rows]
        direction = m / (v.sqrt() + self.eps * mean)
        passed = weight * decays - direction * shifts
        return weight * decay - direction * shift, m * first, v * second, passed

    @torch.no_grad()
    def catch_up(self, rows: Tensor) -> None:
        """Bring rows (int64 (n,), each once) to the present step."""
        rows = rows[self.last[rows] < self.steps]
        if not len(rows):
            return
        weight, first, second, passed = self._moved(rows)
        self.first[rows], self.second[rows] = first, second
        self._write(rows, weight)
        self.last[rows] = self.steps
        if self.total is not None:
            self.total[rows] += passed

    def _write(self, rows: Tensor, weight: Tensor) -> None:
        self.master[rows] = weight
        if self.module.weight.data_ptr() != self.master.data_ptr():
            self.module.weight.data[rows] = weight.to(self.module.weight.dtype)

    @torch.no_grad()
    def step(self, rows: Tensor, gradient: Tensor, learning_rate: float) -> None:
        """A step of AdamW: rows (n,), each once, have a gradient (n, H), the others have none."""
        self.catch_up(rows)
        rate, step = learning_rate * self.factor, self.steps + 1
        corrections = [1.0 - beta**step for beta in self.betas]
        self._pass(rate, corrections)
        first = self.first[rows].lerp_(gradient, 1.0 - self.betas[0])
        second = self.second[rows].mul_(self.betas[1]).addcmul_(gradient, gradient, value=1.0 - self.betas[1])
        size = (second.sqrt() / corrections[1] ** 0.5).add_(self.eps)
        weight = (self.master[rows] * (1.0 - rate * self.weight_decay)).addcdiv_(
            first, size, value=-rate / corrections[0]
        )
        self.first[rows], self.second[rows] = first, second
        self._write(rows, weight)
        self.last[rows] = step

    def _pass(self, rate: float, corrections: list[float]) -> None:
        """Renew D, C and the rest for every s by one step, and begin those of rows that this step touches."""
        drift, (beta1, beta2) = self._drift, self.betas
        kept, root = 1.0 - rate * self.weight_decay, corrections[1] ** 0.5
        drift[5] *= beta1 / beta2**0.5
        drift[6] *= beta1 / beta2
        drift[:3] *= kept
        drift[1] += rate / corrections[0] * root * drift[5]
        drift[2] += rate / corrections[0] * corrections[1] * drift[6]
        fresh = np.zeros((7, 1))
        fresh[[0, 5, 6]] = 1.0
        self._drift = np.concatenate([drift, fresh], axis=1)

    @torch.no_grad()
    def add_to_total(self) -> None:
        """Count the weights as they stand into `total`; call it right after a step."""
        if self.total is None:
            self.total = torch.zeros_like(self.master)
        drift = self._drift
        drift[3, :-1] += drift[0, :-1]
        drift[4, :-1] += drift[1, :-1]
        touched = self.last == self.steps
        self.total[touched] += self.master[touched]

    @torch.no_grad()
    def flush(self) -> None:
        """Bring every row to the present step."""
        for rows in torch.arange(len(self.master), device=self.master.device).split(4096):
            self.catch_up(rows)

    def release(self) -> None:
        """Take the hooks off; gradients are dense again."""
        self.flush()
        for handle in self._handles:
            handle.remove()
        self.module.sparse = False

    def state_tensors(self) -> dict[str, Tensor]:
        """All that later steps depend on but the weights."""
        found = {"exp_avg": self.first, "exp_avg_sq": self.second, "last": self.last}
        found["drift"] = torch.from_numpy(self._drift)
        return found if self.total is None else {**found, "total": self.total}

    @torch.no_grad()
    def load_state_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore what `state_tensors` gave; the weights are there already."""
        self.first.copy_(tensors["exp_avg"])
        self.second.copy_(tensors["exp_avg_sq"])
        self.last.copy_(tensors["last"])
        self._drift = tensors["drift"].numpy().copy()
        self.total = tensors["total"].clone() if "total" in tensors else None
