"""Hidden states, queries, keys and values out of a running encoder, whatever attention kernel it uses.

Hooks sit on the projections themselves, so that no attention implementation needs to know of them and none is asked
to hand out a matrix. Holds no loss.
"""

from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from potstill.errors import ModelError
from potstill.models.anatomy import ANATOMIES, EncoderParts, LayerParts, Rows, encoder_parts

__all__ = ["LayerStates", "Want", "tap"]

Want = Literal["hidden", "q", "k", "v", "bias"]


class LayerStates:
    """What a tapped model computed in its last forward pass; renewed by every forward pass.

    Attributes:
        hidden: index → (B, L, H), as `transformers` counts and gives them; index 0 is the embedding output, i the
            output of layer i (1-based), the last one after the encoder's final norm where it has one.
        q, k, v: layer (1-based) → (B, heads, L, head width), unscaled; q and k after rotation (ModernBERT).
        scale: What multiplies q·kᵀ: 1/√(head width), or 1/√(terms · head width) where position adds terms of its own to
            the score (DeBERTa: 3).
        biased: Whether the architecture adds something of its own to q·kᵀ (MPNet, DeBERTa).
        bias: layer → what it adds, broadcastable to (B, heads, L, L); no entry where there is none.
        windows: layer → how far a token attends in either direction; None: to all.
        mask: (B, L), what the model was given; None where it was given none.
    """

    def __init__(self, heads: int, scale: float, *, biased: bool) -> None:
        self.hidden: dict[int, Tensor] = {}
        self.q: dict[int, Tensor] = {}
        self.k: dict[int, Tensor] = {}
        self.v: dict[int, Tensor] = {}
        self.bias: dict[int, Tensor] = {}
        self.windows: dict[int, int | None] = {}
        self.mask: Tensor | None = None
        self.heads, self.scale, self.biased = heads, scale, biased
        self._handles: list[Any] = []
        self._undo: list[Callable[[], None]] = []
        self._calls: dict[nn.Module, int] = {}
        self._keeps: dict[nn.Module, dict[int, list[Callable[[Any], None]]]] = {}
        self._to_turn: dict[tuple[str, int], tuple[dict[int, Tensor], dict[str, Tensor]]] = {}

    def close(self) -> None:
        """Remove the hooks and let go of the tensors."""
        for handle in self._handles:
            handle.remove()
        for undo in self._undo:
            undo()
        self._handles.clear()
        self._undo.clear()
        self._keeps.clear()
        self._to_turn.clear()
        self.clear()

    def clear(self) -> None:
        """Let go of the tensors; the hooks stay."""
        for store in (self.hidden, self.q, self.k, self.v, self.bias):
            store.clear()
        self.mask = None

    def extend(self, model: PreTrainedModel, layers: Sequence[int], want: Sequence[Want]) -> None:
        """Record further states of the same model.

        Raises:
            ModelError: A layer that the model does not have, or queries, keys or values of an unknown architecture.
        """
        count = int(model.config.num_hidden_layers)
        for index in layers:
            if not 0 <= index <= count:
                raise ModelError(f"layer {index}", expected=f"0 to {count}")
        inner = [name for name in want if name != "hidden"]
        if model.config.model_type not in ANATOMIES and inner:
            raise ModelError(
                f"the {', '.join(inner)} of a model of type {model.config.model_type!r}",
                expected=f"one of {', '.join(sorted(ANATOMIES))}",
                fix="use losses on hidden states and logits alone, which any encoder gives",
            )
        if model.config.model_type not in ANATOMIES:
            self._given_hidden(model, layers)
            return
        parts = encoder_parts(model)
        for index in layers:
            if "hidden" in want:
                call = parts.layers[index - 1].call if index else 0
                self._watch(parts.state_module(index), call, self._whole(self.hidden, index))
            if index:
                self._scores_of(parts, index, want)

    def start(self, model: PreTrainedModel) -> None:
        """Count calls anew, and take note of the mask, at each forward pass."""

        def hook(_module: nn.Module, args: tuple[Any, ...], given: dict[str, Any]) -> None:
            self._calls.clear()
            self.mask = given.get("attention_mask", args[1] if len(args) > 1 else None)

        def end(_module: nn.Module, _args: Any, _output: Any) -> None:
            for (_, index), (store, turn) in self._to_turn.items():
                store[index] = _rotated(store[index], turn["cos"], turn["sin"])

        self._handles.append(model.base_model.register_forward_pre_hook(hook, with_kwargs=True))
        self._handles.append(model.base_model.register_forward_hook(end))

    def _given_hidden(self, model: PreTrainedModel, layers: Sequence[int]) -> None:
        """Any encoder: the states that it gives of itself where it is asked for them."""

        def ask(_module: nn.Module, args: Any, given: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
            return args, {**given, "output_hidden_states": True}

        def keep(_module: nn.Module, _args: Any, output: Any) -> None:
            for index in layers:
                self.hidden[index] = output.hidden_states[index]

        self._handles.append(model.base_model.register_forward_pre_hook(ask, with_kwargs=True))
        self._handles.append(model.base_model.register_forward_hook(keep))

    def _scores_of(self, parts: EncoderParts, index: int, want: Sequence[Want]) -> None:
        layer = parts.layers[index - 1]
        self.windows[index] = layer.window
        turn: dict[str, Tensor] | None = None
        if parts.anatomy.rotary and {"q", "k"} & set(want):
            turn = self._rotation(layer)
        stores = {"q": (layer.query, self.q), "k": (layer.key, self.k), "v": (layer.value, self.v)}
        for name, (part, store) in stores.items():
            if name in want:
                keep = self._heads_of(store, index, part)
                if turn is not None and name != "v":
                    # Once the pass is over: within a layer, gradient checkpointing would have to do it again.
                    self._to_turn[name, index] = (store, turn)
                self._watch(part.module if isinstance(part, Rows) else part, layer.call, keep)
        if "bias" in want and parts.relative_bias is not None:
            self._given_bias(layer, index)
        if "bias" in want and parts.relative_embeddings is not None:
            self._disentangled_bias(layer, index)

    def _watch(self, module: nn.Module, call: int, keep: Callable[[Any], None]) -> None:
        """Keep what a module gives at its call number `call` (from 0) in a forward pass.

        ALBERT's one layer is called for each layer; DeBERTa may project its positions, after its content, with the same
        projections.
        """

        def hook(module: nn.Module, _inputs: Any, output: Any) -> None:
            number = self._calls.get(module, 0)
            self._calls[module] = number + 1
            for wanted in self._keeps[module].get(number, ()):
                wanted(output)

        if module not in self._keeps:
            self._keeps[module] = {}
            self._handles.append(module.register_forward_hook(hook))
        self._keeps[module].setdefault(call, []).append(keep)

    @staticmethod
    def _whole(store: dict[int, Tensor], index: int) -> Callable[[Any], None]:
        def keep(output: Any) -> None:
            store[index] = output if isinstance(output, Tensor) else output[0]

        return keep

    def _heads_of(self, store: dict[int, Tensor], index: int, part: nn.Linear | Rows) -> Callable[[Any], None]:
        def keep(output: Tensor) -> None:
            own = output[..., part.start : part.stop] if isinstance(part, Rows) else output
            store[index] = own.unflatten(-1, (self.heads, -1)).transpose(1, 2)

        return keep

    def _rotation(self, layer: LayerParts) -> dict[str, Tensor]:
        """What the layer's queries and keys are rotated by, renewed before they are made."""
        turn: dict[str, Tensor] = {}

        def hook(_module: nn.Module, _args: Any, given: dict[str, Any]) -> None:
            turn["cos"], turn["sin"] = given["position_embeddings"]

        self._handles.append(layer.attention.register_forward_pre_hook(hook, with_kwargs=True))
        return turn

    def _given_bias(self, layer: LayerParts, index: int) -> None:
        """An MPNet layer is given its bias, behind hidden states and mask."""

        def hook(_module: nn.Module, inputs: tuple[Any, ...]) -> None:
            self.bias[index] = inputs[2]

        self._handles.append(layer.layer.register_forward_pre_hook(hook))

    def _disentangled_bias(self, layer: LayerParts, index: int) -> None:
        """DeBERTa's terms of position are made within a method: its result is kept as it passes."""
        attention: Any = layer.attention
        made = attention.disentangled_attention_bias

        def keeping(*args: Any, **given: Any) -> Any:
            bias = made(*args, **given)
            self.bias[index] = bias.unflatten(0, (-1, self.heads))
            return bias

        attention.disentangled_attention_bias = keeping
        self._undo.append(lambda: vars(attention).pop("disentangled_attention_bias", None))


def _rotated(heads: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary positions (Su et al. 2021, arXiv 2104.09864): dimension i and i + d/2 turned by the place's angle.

    float32 within, as `transformers` does it.
    """
    first, second = heads.float().chunk(2, dim=-1)
    halves = torch.cat([-second, first], dim=-1)
    return (heads.float() * cos.unsqueeze(1) + halves * sin.unsqueeze(1)).to(heads.dtype)


def _scale(model: PreTrainedModel, heads: int) -> float:
    """What the model multiplies q·kᵀ by; of an architecture without a row, of whose scores nothing is read, 1/√d."""
    if model.config.model_type not in ANATOMIES:
        return float((int(model.config.hidden_size) // heads) ** -0.5)
    parts = encoder_parts(model)
    width = parts.layers[0].query.out_features // heads
    position = set(model.config.pos_att_type or ()) & {"c2p", "p2c"} if parts.anatomy.disentangled else set()
    return float((width * (1 + len(position))) ** -0.5)


def tap(model: PreTrainedModel, layers: Sequence[int], want: Sequence[Want]) -> LayerStates:
    """Record states of `layers` (0 = embedding output, hidden only; i = layer i) at each forward pass of `model`.

    Of an architecture without a row in `ANATOMIES`, hidden states alone, as the model gives them itself.

    Raises:
        ModelError: Queries, keys or values of an unknown architecture, or a layer that the model does not have.
    """
    heads = int(model.config.num_attention_heads)
    known = model.config.model_type in ANATOMIES
    states = LayerStates(heads, _scale(model, heads), biased=known and encoder_parts(model).biased)
    try:
        states.start(model)
        states.extend(model, layers, want)
    except ModelError:
        states.close()
        raise
    return states
