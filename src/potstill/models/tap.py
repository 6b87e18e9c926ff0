"""Hidden states, queries, keys and values out of a running encoder, whatever attention kernel it uses.

Hooks sit on the projections themselves, so that no attention implementation needs to know of them and none is asked
to hand out a matrix. Holds no loss.
"""

from collections.abc import Callable, Sequence
from typing import Any, Literal

from torch import Tensor, nn
from transformers import PreTrainedModel

from potstill.errors import ModelError
from potstill.models.anatomy import encoder_parts

__all__ = ["LayerStates", "Want", "tap"]

Want = Literal["hidden", "q", "k", "v"]


class LayerStates:
    """What a tapped model computed in its last forward pass; renewed by every forward pass.

    Attributes:
        hidden: index → (B, L, H); index 0 is the embedding output, i the output of layer i (1-based).
        q, k, v: layer (1-based) → (B, heads, L, head width), unscaled.
        scale: 1/√(head width), what multiplies q·kᵀ.
        biased: Whether the architecture adds a bias of its own to the scores (MPNet); it is not part of q·kᵀ.
        bias: That bias, broadcastable to (B, heads, L, L), the same in every layer; None where there is none.
    """

    def __init__(self, heads: int, scale: float, biased: bool) -> None:
        self.hidden: dict[int, Tensor] = {}
        self.q: dict[int, Tensor] = {}
        self.k: dict[int, Tensor] = {}
        self.v: dict[int, Tensor] = {}
        self.heads, self.scale, self.biased = heads, scale, biased
        self.bias: Tensor | None = None
        self._handles: list[Any] = []

    def close(self) -> None:
        """Remove the hooks and let go of the tensors."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self.clear()

    def clear(self) -> None:
        """Let go of the tensors; the hooks stay."""
        for store in (self.hidden, self.q, self.k, self.v):
            store.clear()
        self.bias = None

    def _keep(self, store: dict[int, Tensor], index: int, split: bool) -> Callable[..., None]:
        def hook(_module: nn.Module, _inputs: Any, output: Any) -> None:
            tensor = output if isinstance(output, Tensor) else output[0]
            if split:
                tensor = tensor.unflatten(-1, (self.heads, -1)).transpose(1, 2)
            store[index] = tensor

        return hook

    def keep_bias(self, layer: nn.Module) -> None:
        """Record the bias that an MPNet layer is given, behind hidden states and mask."""

        def hook(_module: nn.Module, inputs: tuple[Any, ...]) -> None:
            self.bias = inputs[2]

        self._handles.append(layer.register_forward_pre_hook(hook))

    def extend(self, model: PreTrainedModel, layers: Sequence[int], want: Sequence[Want]) -> None:
        """Record further states of the same model."""
        parts = encoder_parts(model)
        for index in layers:
            if not 0 <= index <= len(parts.layers):
                raise ModelError(f"layer {index}", expected=f"0 to {len(parts.layers)}")
            if "hidden" in want:
                module = parts.embedding_output if index == 0 else parts.layers[index - 1].layer
                self._attach(module, self.hidden, index, split=False)
            if index == 0:
                continue
            layer = parts.layers[index - 1]
            for name, module, store in (
                ("q", layer.query, self.q),
                ("k", layer.key, self.k),
                ("v", layer.value, self.v),
            ):
                if name in want:
                    self._attach(module, store, index, split=True)

    def _attach(self, module: nn.Module, store: dict[int, Tensor], index: int, *, split: bool) -> None:
        self._handles.append(module.register_forward_hook(self._keep(store, index, split)))


def tap(model: PreTrainedModel, layers: Sequence[int], want: Sequence[Want]) -> LayerStates:
    """Record states of `layers` (0 = embedding output, hidden only; i = layer i) at each forward pass of `model`.

    Raises:
        ModelError: An unknown architecture, or a layer that the model does not have.
    """
    parts = encoder_parts(model)
    heads = int(model.config.num_attention_heads)
    scale = (parts.layers[0].query.out_features // heads) ** -0.5
    states = LayerStates(heads, scale, parts.relative_bias is not None)
    if states.biased:
        states.keep_bias(parts.layers[0].layer)
    states.extend(model, layers, want)
    return states
