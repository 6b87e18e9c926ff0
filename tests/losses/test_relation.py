"""MiniLM's losses, value and gradient, against the formulas written out row by row in float64."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

from potstill.errors import ModelError
from potstill.losses import attention_kl, divergence, relation_heads, relation_kl
from potstill.losses.divergence import product_kl

shapes = given(
    seed=st.integers(0, 2**32 - 1),
    lengths=st.lists(st.integers(1, 6), min_size=1, max_size=3),
    more=st.integers(0, 3),
)


def softmax(scores):
    e = np.exp(scores - scores.max())
    return e / e.sum()


def row_kl(own, theirs, lengths):
    """Σ KL over (B, H, L, L) score arrays, real rows and columns only."""
    total = 0.0
    for b, length in enumerate(lengths):
        for h in range(own.shape[1]):
            for i in range(length):
                p, q = softmax(theirs[b, h, i, :length]), softmax(own[b, h, i, :length])
                total += float((p * np.log(p / q)).sum())
    return total


def masks(lengths, longest):
    return torch.tensor([[place < length for place in range(longest)] for length in lengths])


def numeric(fn, array, step=1e-6):
    """Central differences of a float64 function."""
    slope = np.zeros_like(array)
    for index in np.ndindex(array.shape):
        moved = array.copy()
        moved[index] += step
        above = fn(moved)
        moved[index] -= 2 * step
        slope[index] = (above - fn(moved)) / (2 * step)
    return slope


@settings(max_examples=20)
@shapes
def test_relations_of_any_widths(seed, lengths, more):
    generator = np.random.default_rng(seed)
    longest, heads = max(lengths) + more, 3
    own = generator.normal(size=(len(lengths), 2, longest, 6)) * 2  # 12 wide: 3 relation heads of 4
    theirs = generator.normal(size=(len(lengths), 6, longest, 4))  # 24 wide: 3 of 8

    def scores(vectors):
        batch, _, length, _ = vectors.shape
        joined = vectors.transpose(0, 2, 1, 3).reshape(batch, length, -1)
        parts = np.split(joined, heads, axis=-1)
        return np.stack([part @ part.swapaxes(-1, -2) / np.sqrt(part.shape[-1]) for part in parts], axis=1)

    def wanted(vectors):
        return row_kl(scores(vectors), scores(theirs), lengths)

    student = torch.tensor(own, dtype=torch.float32, requires_grad=True)
    mask = masks(lengths, longest)
    total, count = relation_kl(student, torch.tensor(theirs), mask, heads=heads)
    total.backward()
    assert count == heads * sum(lengths)
    assert total.dtype == torch.float32
    assert total.item() == pytest.approx(wanted(own), rel=1e-4, abs=1e-6)
    if seed % 4 == 0:
        np.testing.assert_allclose(student.grad, numeric(wanted, own), rtol=1e-3, atol=1e-4)
    else:
        assert torch.isfinite(student.grad).all()
    assert not student.grad[~mask[:, None, :].expand(student.shape[:3])].any()


@settings(max_examples=20)
@shapes
def test_attention_distributions(seed, lengths, more):
    generator = np.random.default_rng(seed)
    longest, heads = max(lengths) + more, 2
    q_s, k_s = generator.normal(size=(2, len(lengths), heads, longest, 3))
    q_t, k_t = generator.normal(size=(2, len(lengths), heads, longest, 5))
    bias = generator.normal(size=(1, heads, longest, longest))

    def scores(q, k, added=0.0):
        return q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1]) + added

    tensors = [torch.tensor(part, dtype=torch.float32) for part in (q_s, k_s, q_t, k_t)]
    tensors[0].requires_grad_()
    scales = 3**-0.5, 5**-0.5
    mask = masks(lengths, longest)
    for added in (None, bias):
        biases = (None, None if added is None else torch.tensor(added))
        tensors[0].grad = None
        total, count = attention_kl(tuple(tensors[:2]), tuple(tensors[2:]), scales, mask, biases=biases)
        total.backward()
        theirs = scores(q_t, k_t, 0.0 if added is None else added)
        assert count == heads * sum(lengths)
        assert total.item() == pytest.approx(row_kl(scores(q_s, k_s), theirs, lengths), rel=1e-4, abs=1e-6)
        if seed % 4 == 0:
            slope = numeric(lambda q, t=theirs: row_kl(scores(q, k_s), t, lengths), q_s)
            np.testing.assert_allclose(tensors[0].grad, slope, rtol=1e-3, atol=1e-4)


def test_a_copy_loses_nothing_and_no_mask_means_all_real():
    torch.manual_seed(0)
    vectors = torch.randn(2, 3, 5, 4)
    assert relation_kl(vectors, vectors, None, heads=3)[0] == pytest.approx(0.0, abs=1e-5)
    q, k = torch.randn(2, 2, 3, 5, 4)
    assert attention_kl((q, k), (q, k), (0.5, 0.5), None)[0] == pytest.approx(0.0, abs=1e-5)
    other = torch.randn(2, 3, 5, 4)
    whole = relation_kl(other, vectors, None, heads=3)
    masked = relation_kl(other, vectors, torch.ones(2, 5), heads=3)
    assert whole[1] == masked[1]
    torch.testing.assert_close(whole[0], masked[0])


def test_relation_heads_divide_every_width():
    assert relation_heads(768, 384) == 48
    assert relation_heads(768, 312) == 24
    assert relation_heads(768, 312, most=12) == 12
    assert relation_heads(7, 9) == 1
    with pytest.raises(ModelError, match="relation heads"):
        relation_kl(torch.zeros(1, 1, 2, 6), torch.zeros(1, 1, 2, 8), None, heads=4)


def test_no_gradient_reaches_the_teacher():
    teacher = torch.randn(1, 2, 3, 4, requires_grad=True)
    student = torch.randn(1, 2, 3, 4, requires_grad=True)
    relation_kl(student, teacher, None, heads=2)[0].backward()
    attention_kl((student, student), (teacher, teacher), (1.0, 1.0), None)[0].backward()
    assert teacher.grad is None


def apart(seed, delta, made, size):
    """Vectors of a student and a teacher whose scores, `made` of them, differ by δ = ‖ΔS‖/‖S‖; float32."""
    generator = torch.Generator().manual_seed(seed)
    base, step = size * torch.randn(2, 2, 3, 14, 8, generator=generator, dtype=torch.float64)
    wanted, low, high = made(base), 0.0, 4.0
    for _ in range(50):
        middle = (low + high) / 2
        near = float((made(base + middle * step) - wanted).norm() / wanted.norm()) < delta
        low, high = (middle, high) if near else (low, middle)
    return (base + high * step).float(), base.float()


def recut(vectors):
    joined = vectors.transpose(1, 2).flatten(-2).unflatten(-1, (4, -1)).transpose(1, 2)
    return joined @ joined.mT * joined.shape[-1] ** -0.5


@pytest.mark.parametrize("size", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("delta", [0.001, 0.01, 0.05, 0.1, 0.3, 1.0])
def test_relations_of_models_however_near_are_right_to_1e_5(delta, size):
    """Value and gradient of float32 vectors against the formula in float64, down to δ = 0.001."""
    student, teacher = apart(1, delta, recut, size)
    exact = student.double().requires_grad_()
    probabilities = recut(teacher.double()).softmax(dim=-1)
    wanted = (probabilities * (probabilities.log() - recut(exact).log_softmax(dim=-1))).sum()
    wanted.backward()
    student.requires_grad_()
    total, _ = relation_kl(student, teacher, None, heads=4)
    total.backward()
    assert total.item() == pytest.approx(wanted.item(), rel=1e-5)
    assert float((student.grad - exact.grad).norm() / exact.grad.norm()) < 1e-5


@pytest.mark.parametrize("delta", [0.001, 0.01, 0.1, 1.0])
def test_biased_attention_of_models_however_near_is_right_to_1e_5(delta):
    """With what an architecture adds to its scores on either side, and windows of different sizes."""
    bias = torch.randn(1, 3, 14, 14, generator=torch.Generator().manual_seed(3))
    far = (torch.arange(14)[:, None] - torch.arange(14)).abs() > 4

    def made(vectors):
        return vectors @ vectors.mT * 8**-0.5

    student, teacher = apart(2, delta, made, 1.0)

    def distribution(vectors):
        return (made(vectors) + bias.double()).masked_fill(far, -torch.inf).softmax(dim=-1)

    exact = student.double().requires_grad_()
    theirs, ours = distribution(teacher.double())[..., ~far], distribution(exact)[..., ~far]
    wanted = (theirs * (theirs.log() - ours.log())).sum()
    wanted.backward()
    student.requires_grad_()
    scales = 8**-0.5, 8**-0.5
    total, count = attention_kl(
        (student, student), (teacher, teacher), scales, None, biases=(bias, bias), windows=(6, 4)
    )
    total.backward()
    assert count == 2 * 3 * 14
    assert total.item() == pytest.approx(wanted.item(), rel=1e-5)
    assert float((student.grad - exact.grad).norm() / exact.grad.norm()) < 1e-5


@pytest.mark.parametrize("part", [1, 40, 1 << 17])
@pytest.mark.parametrize("masked", [False, True])
def test_in_parts_as_whole_and_as_autograd_has_it(monkeypatch, part, masked):
    """Value and both gradients of product_kl, whatever the size of a part, against torch's own graph in float64."""
    monkeypatch.setattr(divergence, "PART", part)
    torch.manual_seed(1)
    queries, keys = (torch.randn(3, 4, 5, 2, dtype=torch.float64, requires_grad=True) for _ in range(2))
    theirs = torch.randn(2, 3, 4, 5, 6, dtype=torch.float64)
    mask = torch.tensor([[1] * 5, [1, 1, 1, 0, 0], [1, 0, 0, 0, 0]]) if masked else None
    far = (torch.arange(5)[:, None] - torch.arange(5)).abs() > 2 if masked else None
    made = product_kl((queries, keys), tuple(theirs), (0.7, 0.4), mask, far)
    slopes = torch.autograd.grad(made * 3, (queries, keys))
    scores = [0.7 * queries @ keys.mT, 0.4 * theirs[0] @ theirs[1].mT]
    real = torch.ones(3, 5) if mask is None else mask
    if masked:
        gone = far | ~mask.bool()[:, None, None, :]
        scores = [part.masked_fill(gone, -1e30) for part in scores]
    rows = functional.kl_div(*(part.log_softmax(-1) for part in scores), reduction="none", log_target=True).sum(-1)
    plain = (rows * real[:, None, :]).sum()
    assert float(made.detach()) == pytest.approx(float(plain.detach()), rel=1e-12)
    for slope, wanted in zip(slopes, torch.autograd.grad(plain * 3, (queries, keys)), strict=True):
        torch.testing.assert_close(slope, wanted, rtol=1e-10, atol=1e-12)
    one = torch.autograd.grad(product_kl((queries, keys.detach()), tuple(theirs), (0.7, 0.4), mask, far), queries)
    torch.testing.assert_close(3 * one[0], slopes[0])
