"""The attention loss, value and gradient: every form against scores written out pair by pair in numpy, float64."""

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from potstill.losses import attention, attention_mse, attention_mse_reference

FORMS = ("gram", "materialised", "auto")

shapes = given(
    seed=st.integers(0, 2**32 - 1),
    lengths=st.lists(st.integers(1, 9), min_size=1, max_size=4),
    more=st.integers(0, 4),
    heads=st.integers(1, 4),
    widths=st.tuples(st.integers(1, 6), st.integers(1, 6)),
)


def tensors(seed, lengths, more, heads, widths, spread=1.0):
    generator = np.random.default_rng(seed)
    longest = max(lengths) + more
    made = [
        (spread * generator.normal(size=(len(lengths), heads, longest, width))).astype(np.float32)
        for width in (widths[0], widths[0], widths[1], widths[1])
    ]
    mask = np.array([[place < length for place in range(longest)] for length in lengths])
    return made, mask


def score(q, k, b, h, i, j):
    """Q·Kᵀ/√d of one pair of places."""
    return float(np.dot(q[b, h, i].astype(float), k[b, h, j].astype(float))) / np.sqrt(q.shape[-1])


def written_out(made, mask, differences):
    """Sum of squares and its gradient to the student's Q and K, from each pair's difference."""
    q_s, k_s, _, _ = (part.astype(float) for part in made)
    total, slope_q, slope_k = 0.0, np.zeros(q_s.shape), np.zeros(k_s.shape)
    batch, heads, length, width = q_s.shape
    for b in range(batch):
        for h in range(heads):
            for i in range(length):
                for j in range(length):
                    difference, moves = differences(b, h, i, j)
                    total += difference**2
                    if moves:  # the student's score is a function of Q and K here, not the constant 0
                        slope_q[b, h, i] += 2 * difference * k_s[b, h, j] / np.sqrt(width)
                        slope_k[b, h, j] += 2 * difference * q_s[b, h, i] / np.sqrt(width)
    return total, slope_q, slope_k


def run(fn, made, mask, **options):
    q_s, k_s, q_t, k_t = (torch.tensor(part) for part in made)
    q_s.requires_grad_()
    k_s.requires_grad_()
    scales = made[0].shape[-1] ** -0.5, made[2].shape[-1] ** -0.5
    total, count = fn((q_s, k_s), (q_t, k_t), scales, None if mask is None else torch.tensor(mask), **options)
    total.backward()
    return total, count, q_s.grad.numpy(), k_s.grad.numpy()


def all_scores(made):
    return [q.astype(float) @ k.astype(float).swapaxes(-1, -2) / np.sqrt(q.shape[-1]) for q, k in (made[:2], made[2:])]


def sizes(made, mask):
    """‖S_T‖² over real pairs: differences of less than a tenth of it (δ < 0.1) are below float32's 1e-5."""
    return float((np.square(all_scores(made)[1]) * (mask[:, None, :, None] & mask[:, None, None, :])).sum())


def near(got, wanted, tolerance=1e-5):
    """By the norm: single entries of a gradient may cancel."""
    assert np.linalg.norm(np.subtract(got, wanted)) <= tolerance * np.linalg.norm(wanted)


@settings(max_examples=25)
@shapes
def test_every_form_is_equation_7(seed, lengths, more, heads, widths):
    made, mask = tensors(seed, lengths, more, heads, widths)

    def difference(b, h, i, j):
        if i >= lengths[b] or j >= lengths[b]:
            return 0.0, False
        return score(*made[:2], b, h, i, j) - score(*made[2:], b, h, i, j), True

    wanted = written_out(made, mask, difference)
    assume(wanted[0] >= 0.01 * sizes(made, mask))
    for form in FORMS:
        total, count, slope_q, slope_k = run(attention_mse, made, mask, form=form)
        near(total.item(), wanted[0])
        near(slope_q, wanted[1])
        near(slope_k, wanted[2])
        assert count == heads * sum(length**2 for length in lengths)
        assert total.dtype == torch.float32


@settings(max_examples=25)
@shapes
def test_the_released_codes_form(seed, lengths, more, heads, widths):
    """Scores with the mask's −10,000 added to padded columns; then, on each side, all ≤ −100 become 0."""
    made, mask = tensors(seed, lengths, more, heads, widths, spread=9.0)

    def cleaned(q, k, b, h, i, j):
        value = score(q, k, b, h, i, j) + (0.0 if j < lengths[b] else -10_000.0)
        return (0.0, False) if value <= -100.0 else (value, True)

    def difference(b, h, i, j):
        own, moves = cleaned(*made[:2], b, h, i, j)
        return own - cleaned(*made[2:], b, h, i, j)[0], moves

    wanted = written_out(made, mask, difference)
    assume(wanted[0] >= 0.01 * sizes(made, mask))
    assume(not any((np.abs(scores + 100) < 1e-3).any() for scores in all_scores(made)))  # on either side by rounding
    total, count, slope_q, slope_k = run(attention_mse_reference, made, mask)
    near(total.item(), wanted[0])
    near(slope_q, wanted[1])
    near(slope_k, wanted[2])
    assert count == len(lengths) * heads * mask.shape[1] ** 2


def test_the_released_codes_form_does_cut_at_minus_100():
    q = np.full((1, 1, 2, 1), 20.0, dtype=np.float32)
    k = np.array([-5.0, -4.99], dtype=np.float32).reshape(1, 1, 2, 1)
    zero = np.zeros_like(q)
    total, count, *_ = run(attention_mse_reference, [q, k, zero, zero], None)
    near(total.item(), 2 * 99.8**2)
    assert count == 4


@pytest.mark.parametrize("mask", [None, True])
def test_without_padding_a_mask_changes_nothing(mask):
    made, full = tensors(3, [7, 7], 0, 2, (3, 5))
    for form in FORMS:
        left = run(attention_mse, made, full if mask else None, form=form)
        near(left[0].item(), run(attention_mse, made, None, form="materialised")[0].item(), 1e-6)
        assert left[1] == 2 * 2 * 49


@settings(max_examples=20)
@given(
    seed=st.integers(0, 2**32 - 1),
    delta=st.sampled_from([0.001, 0.1, 0.21, 0.23, 0.3, 1.0, 3.0]),
    heads=st.integers(1, 3),
)
def test_gram_and_materialised_agree(seed, delta, heads):
    """Value and gradient to 1e-5 of float64's, both sides of the δ = ‖ΔS‖/‖S_T‖ where products become float64."""
    generator = np.random.default_rng(seed)
    lengths, width = [40, 128, 97], 16
    q_t, k_t, q_n, k_n = generator.normal(size=(4, 3, heads, 128, width))
    mask = np.arange(128)[None] < np.array(lengths)[:, None]
    kept = mask[:, None, :, None] * mask[:, None, None, :]

    def difference(step):
        moved = (q_t + step * q_n) @ (k_t + step * k_n).swapaxes(-1, -2)
        own = q_t @ k_t.swapaxes(-1, -2)
        return float(np.linalg.norm(kept * (moved - own)) / np.linalg.norm(kept * own))

    low, high = 0.0, 4.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if difference(middle) < delta else (low, middle)
    made = [part.astype(np.float32) for part in (q_t + high * q_n, k_t + high * k_n, q_t, k_t)]
    scale = width**-0.5
    exact = [torch.tensor(part, dtype=torch.float64, requires_grad=index < 2) for index, part in enumerate(made)]
    gap = exact[0] @ exact[1].mT * scale - exact[2] @ exact[3].mT * scale
    wanted = (gap * torch.tensor(kept)).square().sum()
    wanted.backward()
    for form in ("gram", "materialised") if delta >= 0.1 else ("gram",):
        total, _, slope_q, slope_k = run(attention_mse, made, mask, form=form)
        near(total.item(), wanted.item())
        near(slope_q, exact[0].grad.numpy())
        near(slope_k, exact[1].grad.numpy())


def test_a_copy_has_no_loss_in_any_form_and_no_gradient_lost_to_rounding():
    made, mask = tensors(5, [128, 90], 0, 2, (8, 8))
    made[2:] = [part.copy() for part in made[:2]]
    for form in FORMS:
        total, count, slope_q, _ = run(attention_mse, made, mask, form=form)
        assert 0 <= total.item() / count < 1e-6
        assert np.abs(slope_q).max() / count < 1e-6
    # A step away, where the Gram form's value may round below zero, its gradient still points back.
    made[0] = made[0] + np.float32(1e-4)
    _, _, slope_q, _ = run(attention_mse, made, mask, form="gram")
    _, _, wanted, _ = run(attention_mse, made, mask, form="materialised")
    assert np.vdot(slope_q, wanted) > 0.9 * np.linalg.norm(slope_q) * np.linalg.norm(wanted)


def test_gram_products_are_float32_under_bfloat16_inputs():
    made, mask = tensors(1, [150, 120], 0, 2, (16, 16))
    rounded = [torch.tensor(part).bfloat16() for part in made]
    scales = (0.25, 0.25)
    total, _ = attention_mse(
        (rounded[0], rounded[1]), (rounded[2], rounded[3]), scales, torch.tensor(mask), form="gram"
    )
    wanted, *_ = run(attention_mse, [part.float().numpy() for part in rounded], mask, form="materialised")
    near(total.item(), wanted.item())


def test_no_score_matrix_is_formed_from_512_on(monkeypatch):
    def refuse(*_):
        raise AssertionError("formed")

    monkeypatch.setattr(attention, "_materialised", refuse)
    for length in (512, 600):
        made, mask = tensors(0, [length], 0, 1, (2, 2))
        run(attention_mse, made, mask)
    made, mask = tensors(0, [8], 0, 1, (2, 2))
    with pytest.raises(AssertionError, match="formed"):
        run(attention_mse, made, mask)


@pytest.mark.parametrize("fn", [attention_mse, attention_mse_reference])
def test_no_gradient_reaches_the_teacher(fn):
    made = [torch.randn(1, 2, 3, 4, requires_grad=True) for _ in range(4)]
    fn((made[0], made[1]), (made[2], made[3]), (0.5, 0.5), None)[0].backward()
    assert made[2].grad is None
    assert made[3].grad is None


@pytest.mark.parametrize("form", FORMS)
def test_what_stands_in_padding_is_never_looked_at(form):
    made, mask = tensors(2, [3, 5], 1, 2, (3, 4))
    for part in made:
        part[0, :, 3:] = np.nan
    total, _, slope_q, slope_k = run(attention_mse, made, mask, form=form)
    assert np.isfinite([total.item(), *slope_q.ravel(), *slope_k.ravel()]).all()


@settings(max_examples=15)
@given(
    seed=st.integers(0, 2**32 - 1),
    lengths=st.lists(st.integers(1, 12), min_size=1, max_size=3),
    windows=st.tuples(st.one_of(st.none(), st.integers(1, 13)), st.integers(1, 13)),
)
def test_local_attention_is_compared_where_both_models_look(seed, lengths, windows):
    """Pair by pair; each text's sum times its pairs over those compared, so that layers weigh alike."""
    made, mask = tensors(seed, lengths, 2, 2, (3, 5))
    window = min(window for window in windows if window is not None)
    share = [n**2 / sum(abs(i - j) <= window for i in range(n) for j in range(n)) for n in lengths]

    def difference(b, h, i, j):
        if i >= lengths[b] or j >= lengths[b] or abs(i - j) > window:
            return 0.0, False
        return share[b] ** 0.5 * (score(*made[:2], b, h, i, j) - score(*made[2:], b, h, i, j)), True

    wanted = written_out(made, mask, difference)
    total, count, slope_q, slope_k = run(attention_mse, made, mask, windows=windows)
    near(total.item(), wanted[0])
    # The slopes of `written_out` are those of the unweighted differences.
    for b, factor in enumerate(share):
        near(slope_q[b], factor**0.5 * wanted[1][b])
        near(slope_k[b], factor**0.5 * wanted[2][b])
    assert count == 2 * sum(n**2 for n in lengths)


@pytest.mark.parametrize("window", [40, 100, 300])
def test_bands_of_long_texts_are_the_same_pairs(window):
    made, mask = tensors(4, [299, 170], 0, 2, (3, 4))
    scores = all_scores(made)
    places = np.arange(299)
    kept = mask[:, None, :, None] & mask[:, None, None, :] & (abs(places[:, None] - places) <= window)
    sums = (np.square(scores[0] - scores[1]) * kept).sum(axis=(1, 2, 3))
    wanted = (sums * np.square(mask.sum(axis=1)) / kept[:, 0].sum(axis=(1, 2))).sum()
    near(run(attention_mse, made, mask, windows=(None, window))[0].item(), wanted)
    if window == 300:
        near(run(attention_mse, made, mask)[0].item(), wanted)


def test_the_released_codes_form_zeroes_each_sides_own_window():
    made, mask = tensors(6, [5], 0, 1, (2, 2))
    ours, theirs = all_scores(made)
    far = abs(np.arange(5)[:, None] - np.arange(5))
    wanted = np.square(ours * (far <= 1) - theirs * (far <= 3)).sum()
    total, count, *_ = run(attention_mse_reference, made, mask, windows=(1, 3))
    near(total.item(), wanted)
    assert count == 25
