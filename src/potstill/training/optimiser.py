"""AdamW on a float32 master copy, under a model that may be held in bfloat16.

bfloat16 keeps 8 bits: an update of 1e-5 of a weight is lost in it. So the weights that are updated are float32, and the
model receives a rounded copy after each step.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from potstill.errors import NonFiniteError

__all__ = ["AdamW", "decays"]


def decays(name: str, parameter: Tensor) -> bool:
    """Whether weight decay applies: BERT leaves out biases and LayerNorm, that is, every vector."""
    return parameter.ndim > 1


class AdamW:
    """AdamW (Loshchilov & Hutter, arXiv 1711.05101) with clipping by the global norm.

    Args:
        modules: Trained modules by name; only parameters with `requires_grad` are updated.
        learning_rates: Module name → factor on the step's learning rate; 1.0 where a name is absent.
        weight_decay: Decoupled decay of matrices; vectors (biases, LayerNorm) have none.
        clip: Largest global norm of the gradient; None means no clipping.
        betas, eps: Adam's.
        dtype: What the modules are held in until `release`; their weights must be float32 when they are given.
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
    ) -> None:
        self.clip, self.modules = clip, dict(modules)
        self._facts: dict[str, Any] = {"weight_decay": weight_decay, "clip": clip, "betas": list(betas), "eps": eps}
        self._facts |= {"learning_rates": dict(learning_rates or {}), "dtype": str(dtype)}
        self.parameters: dict[str, nn.Parameter] = {}
        self.factors: list[float] = []
        groups: dict[tuple[float, float], list[nn.Parameter]] = {}
        self.masters: dict[str, nn.Parameter] = {}
        self._frozen: list[tuple[nn.Parameter, Tensor]] = []
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
        self._buffers: dict[str, Tensor] = {}
        self._copies = [name for name, master in self.masters.items() if master is not self.parameters[name]]

    def zero_grad(self) -> None:
        """Forget the gradients of the last step."""
        for parameter in self.parameters.values():
            parameter.grad = None

    def step(self, learning_rate: float, batch: str = "") -> float:
        """One update from the gradients in the parameters.

        Args:
            learning_rate: For modules whose factor is 1.
            batch: Names the batch in an error.

        Returns:
            The global norm of the gradient before clipping.

        Raises:
            NonFiniteError: The norm is NaN or infinite; nothing was updated.
        """
        self._collect_gradients()
        gradients = [master.grad for master in self.masters.values() if master.grad is not None]
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
        self.publish()
        return value

    @torch.no_grad()
    def _collect_gradients(self) -> None:
        """Widen the model's gradients into buffers that stay: allocating them anew costs more than the copy."""
        own, wide = [], []
        for name in self._copies:
            gradient, master = self.parameters[name].grad, self.masters[name]
            if gradient is None:
                master.grad = None
                continue
            if name not in self._buffers:
                self._buffers[name] = torch.empty_like(master)
            master.grad = self._buffers[name]
            own.append(gradient)
            wide.append(master.grad)
        if own:  # float32 modules are their own masters, and foreach refuses an empty list
            torch._foreach_copy_(wide, own)

    @torch.no_grad()
    def publish(self) -> None:
        """Give the models the rounded master weights."""
        if not self._copies:
            return
        torch._foreach_copy_(
            [self.parameters[name].data for name in self._copies], [self.masters[name].data for name in self._copies]
        )

    @torch.no_grad()
    def release(self) -> None:
        """Give the modules their weights back as float32, unrounded; no step may follow."""
        for module in self.modules.values():
            module.float()
        for name in self._copies:
            self.parameters[name].data = self.masters[name].data
            self.parameters[name].grad = None
        for parameter, weights in self._frozen:
            parameter.data = weights

    def facts(self) -> dict[str, Any]:
        """The hyper-parameters, as JSON: a checkpoint must agree with them."""
        return self._facts

    def state_tensors(self) -> dict[str, Tensor]:
        """Everything that a later step depends on: master weights and moments, by parameter name."""
        tensors = {f"weight/{name}": master.data for name, master in self.masters.items()}
        for name, master in self.masters.items():
            for key, value in self.adam.state.get(master, {}).items():
                tensors[f"{key}/{name}"] = value
        return tensors

    @torch.no_grad()
    def load_state_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore what `state_tensors` gave; the modules receive the weights too."""
        for name, master in self.masters.items():
            master.data.copy_(tensors[f"weight/{name}"])
            state = {
                key: tensors[f"{key}/{name}"].clone()
                for key in ("step", "exp_avg", "exp_avg_sq")
                if f"{key}/{name}" in tensors
            }
            if state:
                self.adam.state[master] = state
        self.publish()
