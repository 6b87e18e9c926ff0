"""AdamW on a float32 master copy, under a model that may be held in bfloat16.

bfloat16 keeps 8 bits: an update of 1e-5 of a weight is lost in it. So the weights that are updated are float32, and the
model receives a rounded copy after each step. Large embedding tables are updated by the rows in use
(`potstill.training.tables`).
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from potstill.errors import NonFiniteError
from potstill.training.processes import ALONE, Processes
from potstill.training.tables import RowTable, added_rows, tables_in

__all__ = ["SPARSE_FROM", "AdamW", "decays"]

SPARSE_FROM = 4096
"""Rows from which an embedding table is updated by the rows in use."""


def decays(name: str, parameter: Tensor) -> bool:
    """Whether weight decay applies: BERT leaves out biases and LayerNorm, that is, every vector."""
    return parameter.ndim > 1


class AdamW:
    """AdamW (Loshchilov & Hutter, arXiv 1711.05101) with clipping by the global norm.

    Gradients are accumulated and summed over processes as float32.

    Args:
        modules: Trained modules by name; only parameters with `requires_grad` are updated.
        learning_rates: Module name → factor on the step's learning rate; 1.0 where a name is absent.
        weight_decay: Decoupled decay of matrices; vectors (biases, LayerNorm) have none.
        clip: Largest global norm of the gradient; None means no clipping.
        betas, eps: Adam's.
        dtype: What the modules are held in until `release`; their weights must be float32 when they are given.
        sparse_from: Embedding tables of so many rows or more are updated by the rows in use, to the same weights; None:
            none is. Only on a processor, and for β₁ < β₂: elsewhere the dense update is as fast, or no closed form is.
    """

    def __init__(
        self,
        modules: Mapping[str, nn.Module],
        *,
        learning_rates: Mapping[str, float] | None = None,
        weight_decay: float = 0.01,
        clip: float | None = 1.0,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        dtype: torch.dtype = torch.float32,
        sparse_from: int | None = SPARSE_FROM,
    ) -> None:
        self.clip, self.modules = clip, dict(modules)
        self._facts: dict[str, Any] = {"weight_decay": weight_decay, "clip": clip, "betas": list(betas), "eps": eps}
        self._facts |= {"learning_rates": dict(learning_rates or {}), "dtype": str(dtype), "sparse_from": sparse_from}
        self.parameters: dict[str, nn.Parameter] = {}
        self.factors: list[float] = []
        groups: dict[tuple[float, float], list[nn.Parameter]] = {}
        self.masters: dict[str, nn.Parameter] = {}
        self.tables: dict[str, RowTable] = {}
        self._frozen: list[tuple[nn.Parameter, Tensor]] = []
        sparse = {} if sparse_from is None or betas[0] >= betas[1] else dict(tables_in(modules, sparse_from))
        for module_name, module in modules.items():
            factor = (learning_rates or {}).get(module_name, 1.0)
            for name, parameter in module.named_parameters():
                if not parameter.requires_grad:
                    self._frozen.append((parameter, parameter.data))
                    continue
                full = f"{module_name}.{name}"
                self.parameters[full] = parameter
                master = parameter if dtype == torch.float32 else nn.Parameter(parameter.detach().clone())
                self.masters[full] = master
                decay = weight_decay if decays(name, parameter) else 0.0
                if full in sparse and parameter.device.type == "cpu":
                    self.tables[full] = RowTable(
                        sparse[full], master.data, weight_decay=decay, factor=factor, betas=betas, eps=eps
                    )
                else:
                    groups.setdefault((factor, decay), []).append(master)
            module.to(dtype=dtype)
        self.factors = [factor for factor, _ in groups]
        self.adam = torch.optim.AdamW(
            [{"params": params, "weight_decay": decay} for (_, decay), params in groups.items()],
            lr=0.0,
            betas=betas,
            eps=eps,
            fused=True,
        )
        self.averages: dict[str, Tensor] = {}
        self.averaged = 0
        self._buffers: dict[str, Tensor] = {}
        self._rows: dict[str, list[tuple[Tensor, Tensor]]] = {name: [] for name in self.tables}
        self._dense = [name for name in self.masters if name not in self.tables]
        self._copies = [name for name in self._dense if self.masters[name] is not self.parameters[name]]

    def zero_grad(self) -> None:
        """Forget all gradients, as the end of a step does."""
        for name, parameter in self.parameters.items():
            parameter.grad = self.masters[name].grad = None
        for found in self._rows.values():
            found.clear()

    @torch.no_grad()
    def collect(self) -> None:
        """Add the gradients in the parameters, of one micro-batch, to the float32 ones; the parameters' are let go of.

        Into buffers that stay: allocating them anew costs more than the copy.
        """
        copied: tuple[list[Tensor], list[Tensor]] = ([], [])
        added: tuple[list[Tensor], list[Tensor]] = ([], [])
        for name in self._copies:
            parameter, master = self.parameters[name], self.masters[name]
            if parameter.grad is None:
                continue
            own, wide = copied if master.grad is None else added
            if master.grad is None:
                master.grad = self._buffers.setdefault(name, torch.empty_like(master))
            own.append(parameter.grad)
            wide.append(master.grad)
            parameter.grad = None
        if copied[0]:  # foreach refuses an empty list
            torch._foreach_copy_(copied[1], copied[0])
        if added[0]:
            torch._foreach_add_(added[1], [gradient.float() for gradient in added[0]])
        for name, found in self._rows.items():
            gradient = self.parameters[name].grad
            if gradient is not None:
                found.append(added_rows(gradient._indices()[0], gradient._values()))
                self.parameters[name].grad = None

    def step(self, learning_rate: float, batch: str = "", processes: Processes = ALONE) -> float:
        """One update from the gradients collected, and from those still in the parameters.

        Args:
            learning_rate: For modules whose factor is 1.
            batch: Names the batch in an error.
            processes: Those whose gradients are summed.

        Returns:
            The global norm of the gradient before clipping.

        Raises:
            NonFiniteError: The norm is NaN or infinite; nothing was updated.
        """
        self.collect()
        self._sum(processes)
        rows = {name: _merged(found, self.tables[name], processes) for name, found in self._rows.items()}
        found = {name: pair for name, pair in rows.items() if pair is not None}
        gradients = [grad for name in self._dense if (grad := self.masters[name].grad) is not None]
        gradients += [values for _, values in found.values()]
        norm = torch.nn.utils.get_total_norm(gradients)
        value = float(norm)
        if not value < float("inf"):
            raise NonFiniteError(
                f"the gradient's norm is {value} on the batch of {batch}", fix="lower the learning rate, or use float32"
            )
        if self.clip is not None and value > self.clip:
            torch._foreach_mul_(gradients, self.clip / (value + 1e-6))
        for group, factor in zip(self.adam.param_groups, self.factors, strict=True):
            group["lr"] = learning_rate * factor
        self.adam.step()
        for name, (touched, values) in found.items():
            self.tables[name].step(touched, values, learning_rate)
        self.publish()
        self.zero_grad()
        return value

    @torch.no_grad()
    def _sum(self, processes: Processes) -> None:
        """Sum dense gradients over processes; a parameter that has none in any of them has none in the sum."""
        if processes.count == 1:
            return
        there = torch.tensor([float(self.masters[name].grad is not None) for name in self._dense])
        processes.sum([there])
        chosen = [self.masters[name] for name, count in zip(self._dense, there.tolist(), strict=True) if count]
        for master in chosen:
            if master.grad is None:
                master.grad = torch.zeros_like(master)
        processes.sum([master.grad for master in chosen if master.grad is not None])

    @torch.no_grad()
    def publish(self) -> None:
        """Give the models the rounded master weights."""
        if not self._copies:
            return
        torch._foreach_copy_(
            [self.parameters[name].data for name in self._copies], [self.masters[name].data for name in self._copies]
        )

    @torch.no_grad()
    def add_to_average(self) -> None:
        """Count the weights as they stand, right after a step, into the average (Izmailov et al., arXiv 1803.05407)."""
        self.averaged += 1
        for name in self._dense:
            master = self.masters[name].data
            if name in self.averages:
                self.averages[name].lerp_(master, 1.0 / self.averaged)
            else:
                self.averages[name] = master.clone()
        for table in self.tables.values():
            table.add_to_total()

    @torch.no_grad()
    def take_average(self) -> None:
        """Replace the weights by their average, where one was begun."""
        for name, tensor in self.averages.items():
            self.masters[name].data.copy_(tensor)
        for table in self.tables.values():
            table.flush()
            if table.total is not None:
                table.master.copy_(table.total / self.averaged)

    @torch.no_grad()
    def release(self) -> None:
        """Give the modules their weights back as float32, unrounded; no step may follow."""
        for table in self.tables.values():
            table.release()
        for module in self.modules.values():
            module.float()
        for name, master in self.masters.items():
            if master is not self.parameters[name]:
                self.parameters[name].data = master.data
                self.parameters[name].grad = None
        for parameter, weights in self._frozen:
            parameter.data = weights

    def facts(self) -> dict[str, Any]:
        """The hyper-parameters, as JSON: a checkpoint must agree with them."""
        return self._facts

    def state_tensors(self) -> dict[str, Tensor]:
        """Everything that a later step depends on, by parameter name: master weights, moments, averages."""
        tensors = {f"weight/{name}": master.data for name, master in self.masters.items()}
        for name, master in self.masters.items():
            table = self.tables.get(name)
            state = self.adam.state.get(master, {}) if table is None else table.state_tensors()
            tensors |= {f"{key}/{name}": value for key, value in state.items()}
        return tensors | {f"average/{name}": tensor for name, tensor in self.averages.items()}

    @torch.no_grad()
    def load_state_tensors(self, tensors: Mapping[str, Tensor], averaged: int = 0) -> None:
        """Restore what `state_tensors` gave, `averaged` weights in its averages; the modules receive the weights."""
        self.averaged = averaged
        split = [name.partition("/") for name in tensors]
        for name, master in self.masters.items():
            master.data.copy_(tensors[f"weight/{name}"])
            own = {key: tensors[f"{key}/{name}"] for key, _, parameter in split if parameter == name}
            if name in self.tables:
                self.tables[name].load_state_tensors(own)
                self.parameters[name].data.copy_(master.data)
            elif "step" in own:
                kept = ("step", "exp_avg", "exp_avg_sq")
                self.adam.state[master] = {key: own[key].clone() for key in kept}
            if "average" in own:
                self.averages[name] = own["average"].clone()
        self.publish()


def _merged(found: list[tuple[Tensor, Tensor]], table: RowTable, processes: Processes) -> tuple[Tensor, Tensor] | None:
    """Rows and gradients of all micro-batches and processes, each row once; None where there are none."""
    if len(found) == 1 and processes.count == 1:
        return found[0]
    none = (table.last[:0], table.master[:0])
    rows, values = (torch.cat([one[part] for one in (none, *found)]) for part in range(2))
    rows, values = processes.rows(rows, values)
    return added_rows(rows, values) if len(rows) else None
