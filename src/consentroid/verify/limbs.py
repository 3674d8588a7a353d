"""Numbers of several sites that can be added exactly, and under masks: integers of a power of two, in two limbs.

A number is ±(h 2^b + l) of its quantum 2^q with 0 ≤ h, l ≤ 2^b, kept as the pair (±h, ±l). With b = 52 − ⌈log2 N⌉ the
sum of N sites' limbs stays within 2^52: it is recovered from its value modulo 2^64, and is a double without rounding.
The checker takes the two limbs of a total as if two sites had claimed them (`attested.py`), so that nothing is ever
rounded between a site's own number and the proof. Random words, as masks that do not cancel leave them, exceed 2^52.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..core.arrays import Array
from ..core.errors import CertificateInvalid

EXACT = 52  # bits
MOST_SITES = 2**12
LARGEST_QUANTUM = 700  # log2, either sign: scaling by it neither overflows nor rounds
DOWN, NEAREST, UP = -1, 0, 1
Limbs = NDArray[np.int64]  # (n, 2)
Exponents = NDArray[np.int64]


def limb_bits(n_sites: int) -> int:
    """
    >>> limb_bits(1), limb_bits(3), limb_bits(4)
    (52, 50, 50)
    """
    return EXACT - (n_sites - 1).bit_length()


def to_limbs(values: Array, quanta: Exponents, rounding: NDArray[np.int64], n_sites: int) -> Limbs:
    """Rounded as told where a number is no multiple of its quantum; refused if it is too large."""
    bits = limb_bits(n_sites)
    with np.errstate(over="ignore", under="ignore"):
        size = np.ldexp(np.abs(values), -quanta)  # exact: a power of two
    size = np.where((size == 0.0) & (values != 0.0), 5e-324, size)  # too small for doubles, but not nothing
    if not np.all(size < 2.0 ** (2 * bits)):  # also where it is not a number
        raise CertificateInvalid("a number of the proof is too large to be added to those of other sites")
    high = np.floor(np.ldexp(size, -bits))
    with np.errstate(under="ignore"):
        low = size - np.ldexp(high, bits)  # exact: the low bits of the same number
    away = rounding * np.sign(values) > 0
    whole = np.where(rounding == NEAREST, np.rint(low), np.where(away, np.ceil(low), np.floor(low)))
    sign = np.where(values < 0.0, -1, 1)
    return np.stack([sign * high.astype(np.int64), sign * whole.astype(np.int64)], axis=1)


def from_limbs(total: Limbs, quanta: Exponents, n_sites: int) -> Array:
    """(n, 2) doubles whose sum is the number, without rounding; `CertificateInvalid` unless the limbs can be sums."""
    if np.any(total > 2**EXACT) or np.any(total < -(2**EXACT)):
        raise CertificateInvalid("the sites' numbers do not add up: a part is missing, or made under other masks")
    powers = np.stack([quanta + limb_bits(n_sites), quanta], axis=1)
    return np.asarray(np.ldexp(total.astype(float), powers))
