"""Losses on sets of labels, value and gradient, against the equations written out in numpy, float64."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional

from potstill.losses import binary_cross_entropy, binary_kl, logits_kl, soft_binary_cross_entropy, soft_cross_entropy

cases = given(
    seed=st.integers(0, 2**32 - 1),
    examples=st.integers(1, 7),
    labels=st.integers(1, 9),
    spread=st.sampled_from([0.1, 1.0, 10.0]),
    temperature=st.sampled_from([0.5, 1.0, 2.0, 7.5]),
)


def scores(seed, examples, labels, spread):
    generator = np.random.default_rng(seed)
    return tuple((spread * generator.normal(size=(examples, labels))).astype(np.float32) for _ in range(2))


def run(fn, student, other, **options):
    student = torch.tensor(student, requires_grad=True)
    total, count = fn(student, torch.tensor(other), **options)
    total.backward()
    assert total.dtype == torch.float32
    return total.item(), count, student.grad.numpy()


def sigmoid(z):
    return 1 / (1 + np.exp(-z))


@cases
def test_soft_binary_cross_entropy(seed, examples, labels, spread, temperature):
    ours, theirs = scores(seed, examples, labels, spread)
    wanted, got = sigmoid(theirs / np.float64(temperature)), sigmoid(ours / np.float64(temperature))
    lacking, absent = sigmoid(-theirs / np.float64(temperature)), sigmoid(-ours / np.float64(temperature))
    value = -(wanted * np.log(got) + lacking * np.log(absent)).sum() / labels
    total, count, gradient = run(soft_binary_cross_entropy, ours, theirs, temperature=temperature)
    assert count == examples
    np.testing.assert_allclose(total, value, rtol=1e-5, atol=1e-12)
    np.testing.assert_allclose(gradient, (got - wanted) / temperature / labels, rtol=1e-4, atol=1e-7)


@cases
def test_binary_kl(seed, examples, labels, spread, temperature):
    ours, theirs = scores(seed, examples, labels, spread)
    p, q = sigmoid(theirs / np.float64(temperature)), sigmoid(ours / np.float64(temperature))
    not_p, not_q = sigmoid(-theirs / np.float64(temperature)), sigmoid(-ours / np.float64(temperature))
    value = temperature**2 * (p * np.log(p / q) + not_p * np.log(not_p / not_q)).sum() / labels
    total, count, gradient = run(binary_kl, ours, theirs, temperature=temperature)
    assert count == examples
    np.testing.assert_allclose(total, value, rtol=1e-5, atol=1e-9)
    np.testing.assert_allclose(gradient, temperature * (q - p) / labels, rtol=1e-4, atol=1e-7 * temperature)


@cases
def test_they_are_the_losses_of_two_classes_for_each_label(seed, examples, labels, spread, temperature):
    """A softmax over (z, 0) is (σ(z), 1 − σ(z)): an implementation that shares nothing with theirs."""
    ours, theirs = (
        torch.stack([part, torch.zeros_like(part)], -1).flatten(0, 1)
        for part in map(torch.from_numpy, scores(seed, examples, labels, spread))
    )
    for own, other in ((binary_kl, logits_kl), (soft_binary_cross_entropy, soft_cross_entropy)):
        total, count = own(
            *(torch.from_numpy(part) for part in scores(seed, examples, labels, spread)), temperature=2.0
        )
        wanted, rows = other(ours, theirs, temperature=2.0)
        assert total.item() / count == pytest.approx(wanted.item() / rows, rel=1e-5, abs=1e-9)


@given(seed=st.integers(0, 2**32 - 1), examples=st.integers(1, 7), labels=st.integers(1, 9))
def test_binary_cross_entropy(seed, examples, labels):
    ours, other = scores(seed, examples, labels, 3.0)
    marks = (other > 0).astype(np.int8)
    total, count, gradient = run(binary_cross_entropy, ours, marks)
    p = sigmoid(ours.astype(float))
    np.testing.assert_allclose(total, -np.log(np.where(marks == 1, p, 1 - p)).sum() / labels, rtol=1e-5)
    np.testing.assert_allclose(gradient, (p - marks) / labels, rtol=1e-4, atol=1e-7)
    double = torch.from_numpy(ours).double(), torch.from_numpy(marks).double()
    plain = functional.binary_cross_entropy_with_logits(*double)
    assert total / count == pytest.approx(plain.item(), rel=1e-5)


def test_examples_whose_labels_are_not_known_count_for_nothing():
    logits = torch.tensor([[1.0, -2.0], [50.0, 50.0]], requires_grad=True)
    total, count = binary_cross_entropy(logits, torch.tensor([[1, 0], [-1, -1]], dtype=torch.int8))
    alone, one = binary_cross_entropy(logits[:1], torch.tensor([[1, 0]], dtype=torch.int8))
    assert (total.item(), count) == (alone.item(), one) == (total.item(), 1.0)
    (slope,) = torch.autograd.grad(total, logits)
    assert slope[1].tolist() == [0.0, 0.0]
    nothing, none = binary_cross_entropy(logits, torch.full((2, 2), -1, dtype=torch.int8))
    assert (nothing.item(), none) == (0.0, 0.0)
    # A text without a label is no text whose labels are not known.
    assert binary_cross_entropy(logits, torch.zeros(2, 2, dtype=torch.int8))[1] == 2.0


def test_extreme_scores_stay_finite_and_a_perfect_student_has_no_divergence():
    far = torch.tensor([[800.0, -800.0, 30.0]], requires_grad=True)
    total, _ = binary_kl(far, -far.detach())
    (slope,) = torch.autograd.grad(total, far)
    assert total.item() == pytest.approx((800 + 800 + 30) / 3, rel=1e-4)
    assert torch.isfinite(slope).all()
    assert binary_kl(far, far.detach())[0].item() == 0.0
    assert torch.isfinite(soft_binary_cross_entropy(far, -far.detach())[0])


def test_no_gradient_flows_into_the_teacher():
    teacher = torch.ones(2, 3, requires_grad=True)
    for fn in (binary_kl, soft_binary_cross_entropy):
        fn(torch.zeros(2, 3, requires_grad=True), teacher)[0].backward()
    assert teacher.grad is None
