"""Which rows go into which batch: every row once, like lengths together, by counter."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from potstill.data.batching import length_batches, row_keys

problems = given(
    lengths=st.lists(st.integers(1, 40), max_size=60).map(lambda values: np.array(values, dtype=np.int64)),
    batch_size=st.integers(1, 9),
    seed=st.integers(0, 2**31),
    epoch=st.integers(0, 1000),
    max_tokens=st.none() | st.integers(1, 200),
)


def batches_of(lengths, ids=None, *, batch_size=4, seed=0, epoch=0, max_tokens=None):
    ids = np.arange(len(lengths), dtype=np.int64) if ids is None else ids
    return length_batches(lengths, ids, batch_size=batch_size, seed=seed, epoch=epoch, max_tokens=max_tokens)


@problems
def test_every_row_once_and_no_batch_too_large(lengths, batch_size, seed, epoch, max_tokens):
    batches = batches_of(lengths, batch_size=batch_size, seed=seed, epoch=epoch, max_tokens=max_tokens)
    rows = np.concatenate([np.zeros(0, dtype=np.int64), *batches])
    assert np.array_equal(np.sort(rows), np.arange(len(lengths)))
    for batch in batches:
        assert 1 <= len(batch) <= batch_size
        if max_tokens is not None and len(batch) > 1:
            assert len(batch) * lengths[batch].max() <= max_tokens
    if max_tokens is None:
        assert len(batches) == -(-len(lengths) // batch_size)


@problems
def test_the_same_key_gives_the_same_batches(lengths, batch_size, seed, epoch, max_tokens):
    options = {"batch_size": batch_size, "seed": seed, "epoch": epoch, "max_tokens": max_tokens}
    first, second = batches_of(lengths, **options), batches_of(lengths, **options)
    assert [batch.tolist() for batch in first] == [batch.tolist() for batch in second]


def test_order_and_company_depend_on_seed_and_epoch():
    lengths = np.repeat(np.array([5, 9, 12], dtype=np.int64), 40)
    seen = {}
    for seed in range(3):
        for epoch in range(5):
            batches = batches_of(lengths, batch_size=8, seed=seed, epoch=epoch)
            seen[seed, epoch] = batches
            assert all(len(set(lengths[batch].tolist())) == 1 for batch in batches)  # lengths divide evenly here
    orders = {tuple(int(lengths[batch[0]]) for batch in batches) for batches in seen.values()}
    companies = {frozenset(frozenset(batch.tolist()) for batch in batches) for batches in seen.values()}
    assert len(companies) == 15
    assert len(orders) > 10
    assert all(order != tuple(sorted(order)) for order in orders)  # batches are shuffled, not short ones first


def test_batches_hold_near_lengths():
    generator = np.random.default_rng(0)
    lengths = generator.integers(4, 60, 1000)
    batches = batches_of(lengths, batch_size=32)
    padded = sum(len(batch) * int(lengths[batch].max()) for batch in batches)
    assert padded < 1.05 * lengths.sum()


def test_a_row_longer_than_the_budget_stands_alone():
    batches = batches_of(np.array([3, 50, 3, 70]), max_tokens=10)
    assert sorted(batch.tolist() for batch in batches if len(batch) == 1) == [[1], [3]]


def test_the_order_is_keyed_by_ids_not_by_places():
    lengths = np.full(50, 7)
    ids = np.random.default_rng(0).permutation(1000)[:50].astype(np.int64)
    first = [ids[batch].tolist() for batch in batches_of(lengths, ids)]
    moved = ids[::-1].copy()
    second = [moved[batch].tolist() for batch in batches_of(lengths, moved)]
    assert first == second


def test_windows_of_one_text_share_an_id_and_are_all_read():
    ids = np.repeat(np.arange(10, dtype=np.int64), 5)
    rows = np.concatenate(batches_of(np.full(50, 7), ids))
    assert sorted(rows.tolist()) == list(range(50))


def splitmix64(value):
    """The published finaliser (Steele, Lea & Flood 2014), in Python's own integers."""
    mask = 2**64 - 1
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & mask
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & mask
    return value ^ (value >> 31)


@given(
    seed=st.integers(0, 2**40),
    epoch=st.integers(0, 2**20),
    ids=st.lists(st.integers(0, 2**62), min_size=1, max_size=5),
)
def test_keys_are_splitmix64_of_seed_epoch_and_id(seed, epoch, ids):
    start = (seed * 0xD1342543DE82EF95 + epoch * 0xF1357AEA2E62A9C5 + 0x632BE59BD9B4E019) % 2**64
    wanted = [splitmix64(((number * 0x9E3779B97F4A7C15) % 2**64) ^ start) for number in ids]
    keys = row_keys(seed, epoch, np.array(ids, dtype=np.int64))
    assert keys.tolist() == wanted
    assert keys.dtype == np.uint64


@pytest.mark.parametrize("epoch", [0, 1, 7])
def test_keys_look_random(epoch):
    keys = row_keys(3, epoch, np.arange(20_000)).astype(float) / 2**64
    assert len(set(keys.tolist())) == 20_000
    assert keys.mean() == pytest.approx(0.5, abs=0.01)
    assert abs(np.corrcoef(keys[:-1], keys[1:])[0, 1]) < 0.03
    assert abs(np.corrcoef(keys, row_keys(3, epoch + 1, np.arange(20_000)).astype(float))[0, 1]) < 0.03
