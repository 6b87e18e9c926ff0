"""Losses on hidden states, value and gradient, token by token."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from potstill.losses import hidden_mse, hidden_mse_reference


@given(
    seed=st.integers(0, 2**32 - 1),
    lengths=st.lists(st.integers(1, 6), min_size=1, max_size=5),
    more=st.integers(0, 3),
    width=st.integers(1, 5),
)
def test_against_loops(seed, lengths, more, width):
    generator = np.random.default_rng(seed)
    longest = max(lengths) + more
    ours, theirs = generator.normal(size=(2, len(lengths), longest, width)).astype(np.float32)
    mask = np.array([[place < length for place in range(longest)] for length in lengths])
    value = padding = 0.0
    gradient = np.zeros(ours.shape)
    for row, length in enumerate(lengths):
        for place in range(longest):
            for feature in range(width):
                difference = float(ours[row, place, feature]) - float(theirs[row, place, feature])
                if place < length:
                    value += difference**2
                    gradient[row, place, feature] = 2 * difference
                else:
                    padding += difference**2
    student = torch.tensor(ours, requires_grad=True)
    given_mask = torch.tensor(mask) if seed % 2 else torch.tensor(mask).long()
    total, count = hidden_mse(student, torch.tensor(theirs), given_mask)
    total.backward()
    np.testing.assert_allclose(total.item(), value, rtol=1e-5)
    np.testing.assert_allclose(student.grad, gradient, rtol=1e-5)
    assert count == sum(lengths) * width
    # The released code averages over padding too, and so does the paper's form where nothing is padded.
    for fn, given_mask in ((hidden_mse_reference, torch.tensor(mask)), (hidden_mse, None)):
        total, count = fn(student, torch.tensor(theirs), given_mask)
        np.testing.assert_allclose(total.item(), value + padding, rtol=1e-5)
        assert count == len(lengths) * longest * width


def test_what_stands_in_padding_is_never_looked_at():
    student = torch.randn(1, 3, 2, requires_grad=True)
    teacher = torch.randn(1, 3, 2)
    teacher[0, 2] = float("nan")
    total, _ = hidden_mse(student, teacher, torch.tensor([[1, 1, 0]]))
    total.backward()
    assert torch.isfinite(total)
    assert torch.isfinite(student.grad).all()


def test_no_gradient_reaches_the_teacher_and_sums_are_float32():
    student = torch.randn(2, 3, 4).bfloat16().requires_grad_()
    teacher = torch.randn(2, 3, 4).bfloat16().requires_grad_()
    total, _ = hidden_mse(student, teacher, None)
    total.backward()
    assert total.dtype == torch.float32
    assert teacher.grad is None
    np.testing.assert_allclose(
        total.item(), float((student.detach().double() - teacher.detach().double()).square().sum()), rtol=1e-6
    )
