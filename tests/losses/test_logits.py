"""Losses on class scores, value and gradient, against the equations written out in numpy, float64."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.utils.class_weight import compute_class_weight

from potstill.losses import (
    WeightedCrossEntropy,
    hard_cross_entropy,
    logits_kl,
    logits_mse,
    soft_cross_entropy,
    soft_cross_entropy_reference,
)
from potstill.tasks import balanced_weights

cases = given(
    seed=st.integers(0, 2**32 - 1),
    examples=st.integers(1, 7),
    classes=st.integers(2, 9),
    spread=st.sampled_from([0.1, 1.0, 10.0]),
    temperature=st.sampled_from([0.5, 1.0, 2.0, 7.5]),
)


def scores(seed, examples, classes, spread):
    generator = np.random.default_rng(seed)
    return tuple((spread * generator.normal(size=(examples, classes))).astype(np.float32) for _ in range(2))


def softmax(row):
    powers = [np.exp(value - max(row)) for value in row]
    return np.array([power / sum(powers) for power in powers])


def run(fn, student, *others, **options):
    student = torch.tensor(student, requires_grad=True)
    total, count = fn(student, *(torch.tensor(other) for other in others), **options)
    total.backward()
    return total, count, student.grad.numpy()


def near(got, wanted, scale=None):
    """1e-5 of the wanted value, or of `scale` where terms of that size cancel."""
    wanted = np.asarray(wanted)
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5 * (np.abs(wanted).max() if scale is None else scale))


@cases
def test_soft_cross_entropy(seed, examples, classes, spread, temperature):
    ours, theirs = scores(seed, examples, classes, spread)
    value, gradient = 0.0, np.zeros(ours.shape)
    for row, (own, other) in enumerate(zip(ours.astype(float), theirs.astype(float), strict=True)):
        wanted, got = softmax(other / temperature), softmax(own / temperature)
        value -= sum(wanted[c] * np.log(got[c]) for c in range(classes))
        gradient[row] = (got - wanted) / temperature
    for fn, divisor in ((soft_cross_entropy, examples), (soft_cross_entropy_reference, examples * classes)):
        total, count, slope = run(fn, ours, theirs, temperature=temperature)
        near(total.item(), value)
        near(slope, gradient, scale=1 / temperature)
        assert count == divisor
        assert total.dtype == torch.float32


@cases
def test_kl_with_the_square_of_the_temperature(seed, examples, classes, spread, temperature):
    ours, theirs = scores(seed, examples, classes, spread)
    value, gradient = 0.0, np.zeros(ours.shape)
    for row, (own, other) in enumerate(zip(ours.astype(float), theirs.astype(float), strict=True)):
        wanted, got = softmax(other / temperature), softmax(own / temperature)
        parts = [temperature**2 * wanted[c] * np.log(wanted[c] / got[c]) for c in range(classes)]
        value += sum(parts)
        gradient[row] = temperature * (got - wanted)
    total, count, slope = run(logits_kl, ours, theirs, temperature=temperature)
    near(total.item(), value)
    near(slope, gradient, scale=temperature)
    assert count == examples


@cases
def test_kl_and_soft_cross_entropy_differ_by_the_teachers_entropy(seed, examples, classes, spread, temperature):
    ours, theirs = (torch.tensor(part) for part in scores(seed, examples, classes, spread))
    cross, _ = soft_cross_entropy(ours, theirs, temperature=temperature)
    entropy = sum(-(p * np.log(p)).sum() for p in map(softmax, theirs.double().numpy() / temperature))
    divergence, _ = logits_kl(ours, theirs, temperature=temperature)
    near(float(cross) * temperature**2, float(divergence) + temperature**2 * entropy)
    assert float(cross) >= entropy * (1 - 1e-6)


@cases
def test_mse(seed, examples, classes, spread, temperature):
    ours, theirs = scores(seed, examples, classes, spread)
    difference = ours.astype(float) - theirs
    total, count, slope = run(logits_mse, ours, theirs)
    near(total.item(), sum(d * d for d in difference.ravel()))
    near(slope, 2 * difference)
    assert count == examples * classes


@cases
def test_hard_cross_entropy_skips_what_has_no_label(seed, examples, classes, spread, temperature):
    ours, _ = scores(seed, examples, classes, spread)
    labels = np.random.default_rng(seed).integers(-1, classes, examples)
    value, gradient = 0.0, np.zeros(ours.shape)
    for row, label in enumerate(labels):
        if label >= 0:
            got = softmax(ours[row].astype(float))
            value -= np.log(got[label])
            gradient[row] = got
            gradient[row, label] -= 1
    total, count, slope = run(hard_cross_entropy, ours, labels)
    near(total.item(), value, scale=max(1.0, value))
    near(slope, gradient, scale=1)
    assert count == sum(label >= 0 for label in labels)


@pytest.mark.parametrize("fn", [soft_cross_entropy, soft_cross_entropy_reference, logits_kl, logits_mse])
def test_no_gradient_reaches_the_teacher(fn):
    student, teacher = torch.randn(2, 4, 3, requires_grad=True).unbind(0)
    teacher = teacher.detach().requires_grad_()
    fn(student, teacher)[0].backward()
    assert teacher.grad is None


@pytest.mark.parametrize("fn", [soft_cross_entropy, soft_cross_entropy_reference, logits_kl, logits_mse])
def test_bfloat16_scores_are_summed_in_float32(fn):
    student, teacher = torch.randn(2, 64, 5, generator=torch.Generator().manual_seed(0)).bfloat16()
    total, _ = fn(student, teacher)
    assert total.dtype == torch.float32
    near(float(total), float(fn(student.double().float(), teacher.float())[0]))


@pytest.mark.parametrize("fn", [soft_cross_entropy, logits_kl])
def test_very_sure_models_give_finite_losses(fn):
    student = torch.tensor([[200.0, -200.0]], requires_grad=True)
    total, _ = fn(student, torch.tensor([[-200.0, 200.0]]))
    total.backward()
    near(float(total.detach()), 400.0)
    near(student.grad.numpy(), [[1.0, -1.0]])


def test_weighted_cross_entropy_with_sklearns_balanced_weights():
    draw = np.random.default_rng(3)
    labels = draw.choice(3, 40, p=[0.8, 0.15, 0.05])
    weights = compute_class_weight("balanced", classes=np.arange(3), y=labels)
    assert np.allclose(balanced_weights(labels, 3), weights)
    assert np.isclose(weights[labels].mean(), 1)
    assert balanced_weights(np.array([0, 0, 2, -1]), 4) == (0.75, 1.0, 1.5, 1.0), "classes without an example"
    loss = WeightedCrossEntropy(tuple(weights.tolist()))
    logits = draw.normal(size=(40, 3)).astype(np.float32)
    given = np.where(np.arange(40) % 7 == 0, -1, labels)
    total, count, slope = run(loss, logits, given)
    own = given >= 0
    shares = np.array([softmax(row.astype(float)) for row in logits])
    near(total.item(), -(weights[labels] * np.log(shares[np.arange(40), labels]))[own].sum())
    near(slope, np.where(own[:, None], weights[labels][:, None] * (shares - np.eye(3)[labels]), 0), scale=1)
    assert count == own.sum()
    assert loss.__name__ != WeightedCrossEntropy((1.0, 1.0, 2.0)).__name__
