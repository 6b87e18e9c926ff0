"""Random numbers by counter."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from potstill.data.counter import mix, seed_key, uniform

MASK = (1 << 64) - 1


def plain_mix(value):
    value = (value + 0x9E3779B97F4A7C15) & MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & MASK
    return value ^ (value >> 31)


@given(st.lists(st.integers(0, MASK)))
def test_mix_is_splitmix64(values):
    assert mix(np.array(values, np.uint64)).tolist() == [plain_mix(value) for value in values]


def test_the_first_numbers_that_splitmix64_is_known_by():
    # Seed 0 of the reference generator: its state grows by the constant that `mix` adds.
    states = (np.arange(3, dtype=np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
    assert mix(states).tolist() == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]


@given(st.integers(-(2**70), 2**70))
def test_any_integer_is_a_seed(seed):
    assert seed_key(seed).tolist() == [plain_mix(seed % 2**64)]


def test_uniform():
    values = uniform(np.array([0, MASK, 1 << 63], np.uint64))
    assert values.tolist() == [0.0, 1 - 2.0**-53, 0.5]
    drawn = uniform(mix(seed_key(3) ^ np.arange(20_000, dtype=np.uint64)))
    assert stats.kstest(drawn, "uniform").pvalue > 1e-4
    assert abs(np.corrcoef(drawn[:-1], drawn[1:])[0, 1]) < 0.03
