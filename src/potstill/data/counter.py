"""Random numbers by counter: what is drawn depends on keys alone, never on how many were drawn before.

Not for secrets.
"""

import numpy as np

__all__ = ["mix", "seed_key", "uniform"]


def seed_key(seed: int) -> np.ndarray:
    """A seed (any integer, taken modulo 2^64) as uint64 (1,), mixed."""
    return mix(np.array([seed & (1 << 64) - 1], dtype=np.uint64))


def mix(values: np.ndarray) -> np.ndarray:
    """Uint64 → uint64, one to one, element by element: every bit of the result depends on every bit of the value.

    The finaliser of SplitMix64 (Steele, Lea, Flood 2014). A key is refined by `mix(key ^ counter)`.
    """
    values = values + np.uint64(0x9E3779B97F4A7C15)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: np.ndarray = values ^ (values >> np.uint64(31))
    return mixed


def uniform(values: np.ndarray) -> np.ndarray:
    """Mixed uint64 → float64 in [0, 1), a multiple of 2^-53."""
    found: np.ndarray = (values >> np.uint64(11)) * 2.0**-53
    return found
