"""Gradient checkpointing: the same losses and gradients, dropout included, in every architecture, from less memory."""

import numpy as np
import pytest
import torch
from tests.small_models import CONFIGS, random_encodings, small_model

from potstill.models.checkpointing import set_checkpointing
from potstill.models.forward import forward_inputs
from potstill.models.precision import choose_attention
from potstill.models.tap import tap

LENGTHS = [5, 9, 7]


def run(model, *, on):
    """Gradients of a loss on logits, hidden states and queries; numbers saved for the backward pass."""
    model.train()
    model.zero_grad()
    set_checkpointing(model, on=on)
    states = tap(model, [0, 1, 2], ["hidden", "q"])
    inputs = forward_inputs(model, random_encodings(np.array(LENGTHS), seed=1).batch(np.arange(3)))
    choose_attention(model, 9, backward=True)
    torch.manual_seed(4)
    saved = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: (saved.append(t.numel()), t)[1], lambda t: t):
        logits = model(**inputs).logits
        loss = logits.square().sum() + sum(s.square().sum() for s in (*states.hidden.values(), *states.q.values()))
    loss.backward()
    states.close()
    gradients = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    return float(loss.detach()), gradients, sum(saved)


@pytest.mark.parametrize("kind", sorted(CONFIGS))
def test_the_same_gradients(kind):
    model = small_model(kind, dropout=0.2)
    loss, wanted, kept = run(model, on=False)
    again, found, less = run(model, on=True)
    assert again == pytest.approx(loss, rel=1e-6)
    assert found.keys() == wanted.keys()
    for name, gradient in wanted.items():
        torch.testing.assert_close(found[name], gradient, rtol=1e-4, atol=1e-5 * float(gradient.abs().max()), msg=name)
    assert less < 0.7 * kept
    once, _, _ = run(model, on=False)  # it can be taken off
    assert once == loss
    assert not any("forward" in vars(module) for module in model.modules())
