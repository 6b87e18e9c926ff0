"""An embedding table updated by the rows in use against dense AdamW, float64 and one row at a time."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from potstill.training import AdamW
from potstill.training.tables import RowTable, added_rows, tables_in

ROWS, WIDTH = 40, 3


class Words(nn.Module):
    """A table, and a layer on it, so that clipping has two parameters to look at."""

    def __init__(self, seed=0, padding=None):
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.table = nn.Embedding(ROWS, WIDTH, padding_idx=padding)
        self.layer = nn.Linear(WIDTH, 2)
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.copy_(torch.randn(parameter.shape, generator=generator))

    def forward(self, ids):
        return self.layer(self.table(ids)).tanh()


def drawn(generator, steps):
    """Ids of each step, some of them often, some seldom, some never."""
    return [torch.from_numpy(np.minimum(generator.zipf(1.3, (2, 4)), ROWS - 5)) for _ in range(steps)]


def run(optimiser_of, batches, rate, *, size=1.0, seed=0, padding=None, after=None):
    model = Words(seed, padding)
    optimiser = optimiser_of(model)
    for step, ids in enumerate(batches):
        optimiser.zero_grad()
        (size * model(ids).square().sum()).backward()
        optimiser.step(rate(step))
        if after is not None:
            after(step, optimiser)
    return model, optimiser


class Dense:
    """torch's own AdamW, every row in every step."""

    def __init__(self, model, decay, clip, eps):
        self.model, self.clip = model, clip
        groups = [{"params": [p], "weight_decay": decay if p.ndim > 1 else 0.0} for p in model.parameters()]
        self.adam = torch.optim.AdamW(groups, betas=(0.9, 0.999), eps=eps, fused=False, foreach=False)
        self.zero_grad = self.adam.zero_grad

    def step(self, rate):
        if self.clip is not None:
            nn.utils.clip_grad_norm_(self.model.parameters(), self.clip)
        for group in self.adam.param_groups:
            group["lr"] = rate
        self.adam.step()


def sparse(decay, clip, eps=1e-8, dtype=torch.float32):
    return lambda model: AdamW({"model": model}, weight_decay=decay, clip=clip, eps=eps, dtype=dtype, sparse_from=ROWS)


@settings(max_examples=15, deadline=None)
@given(
    seed=st.integers(0, 2**31),
    steps=st.sampled_from([1, 2, 7, 60]),
    decay=st.sampled_from([0.0, 0.01, 0.5]),
    clip=st.sampled_from([None, 0.1]),
    padding=st.sampled_from([None, 1]),
)
def test_the_same_weights_as_dense_adamw(seed, steps, decay, clip, padding):
    batches = drawn(np.random.default_rng(seed), steps)

    def rate(step):
        return 0.02 * (steps - step) / steps

    ours, optimiser = run(sparse(decay, clip), batches, rate, seed=seed, padding=padding)
    assert list(optimiser.tables) == ["model.table.weight"]
    optimiser.release()
    theirs, _ = run(lambda model: Dense(model, decay, clip, 1e-8), batches, rate, seed=seed, padding=padding)
    for own, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(own, other, rtol=2e-5, atol=2e-6)


def test_rows_without_a_gradient_really_move():
    batches = [torch.full((2, 4), 3)] + [torch.full((2, 4), 5)] * 20
    ours, optimiser = run(sparse(0.1, None), batches, lambda _: 0.02)
    stale = ours.table.weight.detach().clone()
    optimiser.release()
    moved = (ours.table.weight - stale).abs().amax(dim=1)
    assert moved[3] > 0.01  # carried on by its momentum
    assert moved[7] > 1e-3  # never read, only decayed
    assert moved[5] == 0


@pytest.mark.parametrize("size", [1e-3, 1e-6, 1e-8])
def test_the_part_of_epsilon_is_right_where_gradients_are_as_small(size):
    """Gradients of the size of ε and far below, long after the moments' corrections have gone and from the start."""
    batches = [torch.arange(8).view(2, 4), *[torch.full((2, 4), 20)] * 30]
    ours, optimiser = run(sparse(0.0, None), batches, lambda _: 0.02, size=size)
    optimiser.release()
    theirs, _ = run(lambda model: Dense(model, 0.0, None, 1e-8), batches, lambda _: 0.02, size=size)
    start = Words().table.weight.detach()
    wanted, found = ((model.table.weight.detach() - start)[:8] for model in (theirs, ours))
    assert float(wanted.abs().max()) > 0
    assert float((wanted - found).abs().max()) < 0.05 * float(wanted.abs().max())


def test_moments_fade_as_under_dense_adamw():
    batches = drawn(np.random.default_rng(1), 25)
    _, optimiser = run(sparse(0.01, 1.0), batches, lambda _: 0.01)
    dense, other = run(lambda model: Dense(model, 0.01, 1.0, 1e-8), batches, lambda _: 0.01)
    table = optimiser.tables["model.table.weight"]
    table.flush()
    state = other.adam.state[dense.table.weight]
    torch.testing.assert_close(table.first, state["exp_avg"], rtol=1e-5, atol=1e-8)
    torch.testing.assert_close(table.second, state["exp_avg_sq"], rtol=1e-5, atol=1e-10)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_who_looks_changes_nothing_and_sees_the_weights_as_they_should_be(dtype):
    batches, ids = drawn(np.random.default_rng(2), 30), torch.arange(ROWS)[None]
    seen = []

    def look(step, optimiser):
        model = optimiser.modules["model"].eval()
        if step in (9, 20):
            with torch.no_grad():
                seen.append(model.table(ids)[0].float())
        model.train()

    looked, first = run(sparse(0.1, None, dtype=dtype), batches, lambda _: 0.02, after=look)
    alone, second = run(sparse(0.1, None, dtype=dtype), batches, lambda _: 0.02)
    for optimiser in (first, second):
        optimiser.release()
    assert all(torch.equal(p, q) for p, q in zip(looked.parameters(), alone.parameters(), strict=True))
    short, optimiser = run(sparse(0.1, None, dtype=dtype), batches[:10], lambda _: 0.02)
    optimiser.release()
    assert torch.equal(seen[0], short.table.weight.to(dtype).float())


@pytest.mark.parametrize("begin", [0, 11, 29])
def test_averages_count_every_row_in_every_step(begin):
    batches, history = drawn(np.random.default_rng(3), 30), []

    def average(step, optimiser):
        if step >= begin:
            optimiser.add_to_average()

    ours, optimiser = run(sparse(0.2, 1.0), batches, lambda step: 0.02 / (1 + step), after=average)
    optimiser.take_average()
    optimiser.release()
    keep = lambda step, dense: history.append(dense.model.table.weight.detach().double().clone())  # noqa: E731
    run(lambda model: Dense(model, 0.2, 1.0, 1e-8), batches, lambda step: 0.02 / (1 + step), after=keep)
    wanted = torch.stack(history[begin:]).mean(dim=0)
    torch.testing.assert_close(ours.table.weight.double(), wanted, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("cut", [1, 12, 25])
def test_state_goes_on_to_the_same_bits(dtype, cut):
    batches = drawn(np.random.default_rng(4), 30)

    def averaged(optimiser, step):
        if step >= 20:
            optimiser.add_to_average()

    def go_on(model, optimiser, steps):
        for step in steps:
            optimiser.zero_grad()
            model(batches[step]).square().sum().backward()
            optimiser.step(0.01)
            averaged(optimiser, step)

    whole, other = Words(), Words(seed=9)
    one = sparse(0.1, 1.0, dtype=dtype)(whole)
    go_on(whole, one, range(cut))
    saved = {name: tensor.clone() for name, tensor in one.state_tensors().items()}
    go_on(whole, one, range(cut, 30))
    two = sparse(0.1, 1.0, dtype=dtype)(other)
    two.load_state_tensors(saved, max(0, cut - 20))
    go_on(other, two, range(cut, 30))
    assert one.state_tensors().keys() == two.state_tensors().keys()
    assert all(torch.equal(t, two.state_tensors()[name]) for name, t in one.state_tensors().items())
    for optimiser in (one, two):
        optimiser.take_average()
        optimiser.release()
    assert all(torch.equal(p, q) for p, q in zip(whole.parameters(), other.parameters(), strict=True))


def test_bfloat16_copies_are_the_rounded_masters_of_the_rows_read():
    batches = drawn(np.random.default_rng(5), 6)
    model, optimiser = run(sparse(0.1, 1.0, dtype=torch.bfloat16), batches, lambda _: 0.05)
    model.table(torch.arange(ROWS))  # in training mode: all are brought up to date
    assert model.table.weight.dtype == torch.bfloat16
    assert torch.equal(model.table.weight, optimiser.masters["model.table.weight"].bfloat16())


def test_micro_batches_add_up():
    model = Words()
    optimiser = sparse(0.0, None)(model)
    for part in (torch.tensor([1, 2, 2]), torch.tensor([2, 7])):
        model(part).square().sum().backward()
        optimiser.collect()
    optimiser.step(0.1)
    optimiser.release()
    other = Words()
    dense = Dense(other, 0.0, None, 1e-8)
    other(torch.tensor([1, 2, 2, 2, 7])).square().sum().backward()
    dense.step(0.1)
    torch.testing.assert_close(model.table.weight, other.table.weight, rtol=1e-5, atol=1e-6)


def test_added_rows_against_a_dense_sum():
    rows = torch.tensor([5, 1, 5, 5, 0])
    values = torch.randn(5, 3)
    once, found = added_rows(rows, values.bfloat16())
    wanted = torch.zeros(6, 3)
    for row, value in zip(rows.tolist(), values.bfloat16().float(), strict=True):
        wanted[row] += value
    assert once.tolist() == [0, 1, 5]
    torch.testing.assert_close(found, wanted[once])


def test_tables_that_something_else_uses_or_that_are_small_stay_dense():
    model = Words()
    assert [name for name, _ in tables_in({"model": model}, ROWS)] == ["model.table.weight"]
    assert not list(tables_in({"model": model}, ROWS + 1))
    tied = nn.Linear(WIDTH, ROWS, bias=False)
    tied.weight = model.table.weight
    assert not list(tables_in({"model": nn.ModuleList([model, tied])}, ROWS))
    assert not list(tables_in({"model": model, "head": tied}, ROWS))
    assert not AdamW({"model": model}, sparse_from=None).tables
    assert not AdamW({"model": model}, betas=(0.99, 0.9), sparse_from=ROWS).tables  # no closed form
    model.table.weight.requires_grad_(requires_grad=False)
    assert not list(tables_in({"model": model}, ROWS))


def test_release_gives_the_module_back_as_it_was():
    model = Words()
    optimiser = sparse(0.1, 1.0)(model)
    assert model.table.sparse
    optimiser.release()
    model(torch.tensor([1])).sum().backward()
    assert not model.table.weight.grad.is_sparse
    assert not model.table._forward_pre_hooks
    assert not model.table._forward_hooks


def test_a_row_of_its_own_steps_by_hand():
    """Two steps on one row of one number, the formulas written out."""
    module = nn.Embedding(2, 1)
    module.weight.data.fill_(1.0)
    table = RowTable(module, module.weight.data, weight_decay=0.1, factor=2.0, betas=(0.9, 0.99), eps=0.0)
    table.step(torch.tensor([0]), torch.tensor([[2.0]]), 0.05)  # m = 0.2, v = 0.04: a step of the rate
    table.step(torch.tensor([1]), torch.tensor([[1.0]]), 0.05)
    table.flush()
    first = 1.0 * 0.99 - 0.1
    m, v = 0.18 / (1 - 0.9**2), 0.04 * 0.99 / (1 - 0.99**2)
    assert float(module.weight.detach()[0]) == pytest.approx(first * 0.99 - 0.1 * m / v**0.5, rel=1e-6)
