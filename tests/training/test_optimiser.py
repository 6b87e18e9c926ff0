"""AdamW against torch's own, not fused; what it does with bfloat16, with frozen weights and with NaN."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from potstill.errors import NonFiniteError
from potstill.training import AdamW


def modules(seed=0):
    generator = torch.Generator().manual_seed(seed)
    made = {"student": nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4)), "projections": nn.Linear(4, 2, bias=False)}
    with torch.no_grad():
        for module in made.values():
            for parameter in module.parameters():
                parameter.copy_(torch.randn(parameter.shape, generator=generator))
    return made


def named(made):
    return {f"{module}.{name}": p for module, part in made.items() for name, p in part.named_parameters()}


def draw_gradients(made, generator, size):
    return {name: size * torch.randn(p.shape, generator=generator) for name, p in named(made).items()}


@settings(max_examples=30)
@given(
    seed=st.integers(0, 2**31),
    steps=st.integers(1, 5),
    size=st.sampled_from([1e-4, 0.1, 100.0]),
    clip=st.sampled_from([None, 0.3, 1.0]),
    decay=st.sampled_from([0.0, 0.01, 0.5]),
    factor=st.sampled_from([1.0, 10.0]),
)
def test_against_torch(seed, steps, size, clip, decay, factor):
    ours, theirs = modules(seed), modules(seed)
    optimiser = AdamW(ours, learning_rates={"projections": factor}, weight_decay=decay, clip=clip)
    groups = [
        {
            "params": [p],
            "weight_decay": decay if p.ndim > 1 else 0.0,
            "lr": factor if name.startswith("projections") else 1.0,
        }
        for name, p in named(theirs).items()
    ]
    plain = torch.optim.AdamW(groups, betas=(0.9, 0.999), eps=1e-8, fused=False, foreach=False)
    generator = torch.Generator().manual_seed(seed)
    for step in range(steps):
        rate = 1e-2 / (step + 1)
        gradients = draw_gradients(ours, generator, size)
        norm = float(torch.stack([g.double().square().sum() for g in gradients.values()]).sum().sqrt())
        for name, gradient in gradients.items():
            named(ours)[name].grad = gradient.clone()
            named(theirs)[name].grad = gradient * (min(1.0, clip / norm) if clip else 1.0)
        np.testing.assert_allclose(optimiser.step(rate), norm, rtol=1e-5)
        for group, name in zip(plain.param_groups, named(theirs), strict=True):
            group["lr"] = rate * (factor if name.startswith("projections") else 1.0)
        plain.step()
        optimiser.zero_grad()
        assert all(p.grad is None for p in named(ours).values())
    for name, weight in named(ours).items():
        torch.testing.assert_close(weight, named(theirs)[name], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf"), 3e38])
def test_nothing_is_updated_on_a_gradient_that_is_not_finite(bad, dtype):
    made = modules()
    optimiser = AdamW(made, dtype=dtype)
    for name, parameter in named(made).items():
        parameter.grad = torch.full_like(parameter, 0.1)
        if name == "student.0.weight":
            parameter.grad[1] = bad
    before = {name: tensor.clone() for name, tensor in {**named(made), **optimiser.state_tensors()}.items()}
    with pytest.raises(NonFiniteError, match=r"the gradient's norm is (nan|inf) on the batch of examples 7, 9"):
        optimiser.step(0.1, "examples 7, 9")
    after = {**named(made), **optimiser.state_tensors()}
    assert after.keys() == before.keys()
    assert all(torch.equal(after[name], before[name]) for name in before)


def test_weights_without_a_gradient_and_frozen_ones_stay():
    made = modules()
    made["student"][1].requires_grad_(requires_grad=False)
    before = {name: p.detach().clone() for name, p in named(made).items()}
    optimiser = AdamW(made, weight_decay=0.5, dtype=torch.bfloat16)
    named(made)["student.0.weight"].grad = torch.ones(4, 3, dtype=torch.bfloat16)
    optimiser.step(0.1)
    optimiser.release()
    changed = {name for name, p in named(made).items() if not torch.equal(p, before[name])}
    assert changed == {"student.0.weight"}
    assert not any(name.endswith("projections.weight") for name in optimiser.state_tensors() if "exp" in name)


def test_many_tiny_updates_add_up_under_bfloat16_and_would_not_without_masters():
    made, lost = modules(), modules()
    start = named(made)["student.0.weight"].detach().clone()
    optimiser = AdamW(made, weight_decay=0.0, clip=None, dtype=torch.bfloat16)
    lost["student"].to(torch.bfloat16)
    without = torch.optim.AdamW(lost["student"].parameters(), lr=1e-5, weight_decay=0.0)
    for _ in range(300):
        for weights in (named(made), named(lost)):
            weights["student.0.weight"].grad = torch.ones(4, 3, dtype=torch.bfloat16)
        optimiser.step(1e-5)
        without.step()
        held = named(made)["student.0.weight"]
        assert held.dtype == torch.bfloat16
        assert torch.equal(held, optimiser.masters["student.0.weight"].bfloat16())
    optimiser.release()
    # Adam's step under a constant gradient is the learning rate.
    moved = start - named(made)["student.0.weight"]
    torch.testing.assert_close(moved, torch.full((4, 3), 3e-3), rtol=1e-2, atol=0)
    big = start.abs() > 0.1  # half of bfloat16's step is above 1e-5 there
    assert torch.equal(named(lost)["student.0.weight"][big], start.bfloat16()[big])
    assert named(made)["student.0.weight"].dtype == torch.float32
    assert torch.equal(named(made)["student.0.weight"], optimiser.masters["student.0.weight"])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_state_goes_on_to_the_same_bits(dtype):
    generator = torch.Generator().manual_seed(3)
    first, second = modules(), modules(seed=9)
    gradients = [draw_gradients(first, generator, 1.0) for _ in range(4)]

    def run(made, optimiser, some):
        for drawn in some:
            for name, parameter in named(made).items():
                parameter.grad = drawn[name].to(parameter.dtype)
            optimiser.step(0.01)

    whole = AdamW(first, dtype=dtype)
    run(first, whole, gradients[:2])
    saved = {name: tensor.clone() for name, tensor in whole.state_tensors().items()}
    run(first, whole, gradients[2:])
    resumed = AdamW(second, dtype=dtype)
    resumed.load_state_tensors(saved)
    run(second, resumed, gradients[2:])
    assert resumed.state_tensors().keys() == whole.state_tensors().keys()
    for name, tensor in whole.state_tensors().items():
        assert torch.equal(tensor, resumed.state_tensors()[name]), name
    whole.release()
    resumed.release()
    assert all(torch.equal(p, named(second)[name]) for name, p in named(first).items())


def test_facts_tell_every_hyper_parameter_apart():
    ways = [
        {},
        {"weight_decay": 0.1},
        {"clip": None},
        {"betas": (0.8, 0.999)},
        {"eps": 1e-6},
        {"learning_rates": {"student": 2.0}},
        {"dtype": torch.bfloat16},
    ]
    facts = [str(AdamW(modules(), **way).facts()) for way in ways]
    assert len(set(facts)) == len(ways)
