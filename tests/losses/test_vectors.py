"""Losses on vectors, value and gradient, against numpy and scikit-learn, text by text."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics.pairwise import cosine_similarity

from potstill.losses import (
    cls_mse,
    cosine_distance,
    mean_pooled,
    pairwise_similarity_mse,
    vector_cosine,
    vector_mse,
)

shapes = given(
    seed=st.integers(0, 2**32 - 1),
    lengths=st.lists(st.integers(1, 5), min_size=1, max_size=4),
    more=st.integers(0, 3),
    width=st.integers(2, 5),
)


def draw(seed, lengths, more, width):
    generator = np.random.default_rng(seed)
    longest = max(lengths) + more
    own, theirs = generator.normal(size=(2, len(lengths), longest, width))
    mask = torch.tensor([[place < length for place in range(longest)] for length in lengths])
    return own, theirs, mask


def pooled(array, lengths):
    return np.stack([row[:length].mean(axis=0) for row, length in zip(array, lengths, strict=True)])


def cosine(a, b):
    return float(np.dot(a, b) / np.linalg.norm(a) / np.linalg.norm(b))


def wanted_of(name, own, theirs, lengths):
    if name == "cosine_distance":
        pairs = [(own[b, i], theirs[b, i]) for b, length in enumerate(lengths) for i in range(length)]
        return sum(1 - cosine(*pair) for pair in pairs), sum(lengths)
    if name == "cls_mse":
        unit = [[v / np.linalg.norm(v) for v in part[:, 0]] for part in (own, theirs)]
        return float(np.square(np.subtract(*unit)).sum()), len(lengths)
    a, b = pooled(own, lengths), pooled(theirs, lengths)
    if name == "vector_mse":
        return float(np.square(a - b).sum()), a.size
    if name == "vector_cosine":
        return sum(1 - cosine(*pair) for pair in zip(a, b, strict=True)), len(lengths)
    difference = cosine_similarity(a) - cosine_similarity(b)
    return float(np.square(difference[~np.eye(len(a), dtype=bool)]).sum()), len(a) * (len(a) - 1)


FUNCTIONS = [cosine_distance, cls_mse, vector_mse, vector_cosine, pairwise_similarity_mse]


@pytest.mark.parametrize("fn", FUNCTIONS)
@settings(max_examples=20)
@shapes
def test_against_numpy(fn, seed, lengths, more, width):
    own, theirs, mask = draw(seed, lengths, more, width)
    value, count = wanted_of(fn.__name__, own, theirs, lengths)
    student = torch.tensor(own, dtype=torch.float32, requires_grad=True)
    teacher = torch.tensor(theirs, dtype=torch.float32, requires_grad=True)
    total, found = fn(student, teacher, mask)
    total.backward()
    assert total.dtype == torch.float32
    assert found == count
    assert total.item() == pytest.approx(value, rel=1e-4, abs=1e-5)
    assert teacher.grad is None
    assert not student.grad[~mask].any()
    step, direction = 1e-6, np.random.default_rng(1).normal(size=own.shape)
    ends = [wanted_of(fn.__name__, own + sign * step * direction, theirs, lengths)[0] for sign in (1, -1)]
    slope = float((student.grad.double() * torch.tensor(direction)).sum())
    assert slope == pytest.approx((ends[0] - ends[1]) / (2 * step), rel=1e-3, abs=1e-3)


@pytest.mark.parametrize("fn", FUNCTIONS)
def test_a_copy_loses_nothing_and_no_mask_means_all_real(fn):
    torch.manual_seed(0)
    hidden, other = torch.randn(3, 4, 5), torch.randn(3, 4, 5)
    assert fn(hidden, hidden, None)[0] == pytest.approx(0.0, abs=1e-5)
    whole, masked = fn(other, hidden, None), fn(other, hidden, torch.ones(3, 4))
    assert whole[1] == masked[1]
    torch.testing.assert_close(whole[0], masked[0])


def test_similarities_of_other_widths():
    torch.manual_seed(0)
    total, count = pairwise_similarity_mse(torch.randn(4, 3, 2), torch.randn(4, 3, 7), None)
    assert count == 12
    assert total > 0


def test_one_text_has_no_pair():
    total, count = pairwise_similarity_mse(torch.randn(1, 3, 2), torch.randn(1, 3, 2), None)
    assert (float(total), count) == (0.0, 0.0)


def test_pooling_leaves_padding_out():
    hidden = torch.arange(12.0).reshape(1, 4, 3)
    assert torch.equal(mean_pooled(hidden, torch.tensor([[1, 1, 0, 0]])), hidden[:, :2].mean(dim=1))
    assert torch.equal(mean_pooled(hidden.bfloat16(), None), hidden.mean(dim=1))
