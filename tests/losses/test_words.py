"""The masked-LM loss against its formula in float64."""

import pytest
import torch

from potstill.losses import word_cross_entropy


def test_value_and_gradient():
    torch.manual_seed(0)
    logits, words = torch.randn(7, 50, dtype=torch.float64) * 3, torch.randint(0, 50, (7,))
    logits.requires_grad_()
    wanted = -(logits - logits.logsumexp(dim=1, keepdim=True))[torch.arange(7), words].sum()
    (slope,) = torch.autograd.grad(wanted, logits)
    ours = logits.detach().float().requires_grad_()
    sums, count = word_cross_entropy(ours, words)
    sums.backward()
    assert count == 7.0
    assert float(sums.detach()) == pytest.approx(float(wanted.detach()), rel=1e-5)
    assert torch.allclose(ours.grad.double(), slope, atol=1e-6)


def test_no_place_at_all():
    logits = torch.zeros(0, 50, requires_grad=True)
    sums, count = word_cross_entropy(logits, torch.zeros(0, dtype=torch.long))
    sums.backward()
    assert (float(sums.detach()), count) == (0.0, 0.0)
