"""Which rows belong to which columns: one bit a row, 64 rows a word, and sums over them.

Neighbours stand together (`site/blocks.py`), so most words are empty or full and are dealt with at once. None of these
numbers proves anything by itself.
"""

from __future__ import annotations

import numpy as np

from ...core.compile import entry, kernel
from .columns import block_distance

NONE, ONE, FULL = np.uint64(0), np.uint64(1), np.uint64(2**64 - 1)


@entry
def members_of(y, w, lam, centre, starts, low, high, dearest, points, first, last, bits, sums):
    """For points first..last: rows with |y − m|² < λ into their row of `bits` (zero before); how many, and over them
    Σ w |y − m|², Σ w, Σ w λ and Σ w λ̂ into `sums`."""
    n_features = y.shape[1]
    for p in range(first, last):
        m, found, cost, size, price, centre_price = points[p], 0.0, 0.0, 0.0, 0.0, 0.0
        for b in range(len(starts) - 1):
            if block_distance(m, low[b], high[b]) >= dearest[b]:
                continue
            for j in range(starts[b], starts[b + 1]):
                squared = 0.0
                for d in range(n_features):
                    squared += (y[j, d] - m[d]) ** 2
                if squared < lam[j]:
                    bits[p, j >> 6] |= ONE << np.uint64(j & 63)
                    found += 1.0
                    cost += w[j] * squared
                    size += w[j]
                    price += w[j] * lam[j]
                    centre_price += w[j] * centre[j]
        sums[0, p], sums[1, p], sums[2, p], sums[3, p], sums[4, p] = found, cost, size, price, centre_price


@kernel
def sum_over(values, word, j, n):
    """Σ of values[j + i] over the bits i that are set."""
    total = 0.0
    if word == FULL:
        for i in range(j, min(j + 64, n)):
            total += values[i]
        return total
    while word != NONE:
        if word & ONE:
            total += values[j]
        word >>= ONE
        j += 1
    return total


@kernel
def how_many(word):
    """Bits that are set, by halves."""
    word -= (word >> ONE) & np.uint64(0x5555555555555555)
    word = (word & np.uint64(0x3333333333333333)) + ((word >> np.uint64(2)) & np.uint64(0x3333333333333333))
    word = (word + (word >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return np.int64((word * np.uint64(0x0101010101010101)) >> np.uint64(56))


@entry
def overlaps_of(w, equal, bits, new, first, last, out):
    """Σ_{S_c ∩ S'} w of the new columns first..last (their rows of `bits`: `new` and on) with all columns c; weights
    that are all equal are counted."""
    for q in range(first, last):
        own = bits[new + q]
        for c in range(len(bits)):
            total, count = 0.0, 0
            for i in range(len(own)):
                both = own[i] & bits[c, i]
                if both == NONE:
                    continue
                if equal:
                    count += how_many(both)
                else:
                    total += sum_over(w, both, 64 * i, len(w))
            out[q, c] = w[0] * count if equal else total


@entry
def priced_columns(weighted, bits, first, last, out):
    """Σ_{S_c} w λ for columns first..last; `weighted` is w λ."""
    for c in range(first, last):
        total = 0.0
        for i in range(bits.shape[1]):
            if bits[c, i] != NONE:
                total += sum_over(weighted, bits[c, i], 64 * i, len(weighted))
        out[c] = total


@entry
def move_prices(centre, bits, z, tau, first, last, out):
    """λ_j = max(0, λ̂_j + τ (1 − Σ_{c∋j} z_c)) for the rows of words first..last."""
    begin, end = 64 * first, min(64 * last, len(centre))
    for j in range(begin, end):
        out[j] = 0.0
    for c in range(len(bits)):
        if z[c] == 0.0:
            continue
        for i in range(first, last):
            word, j = bits[c, i], 64 * i
            if word == FULL:
                for k in range(j, min(j + 64, end)):
                    out[k] += z[c]
                continue
            while word != NONE:
                if word & ONE:
                    out[j] += z[c]
                word >>= ONE
                j += 1
    for j in range(begin, end):
        out[j] = max(0.0, centre[j] + tau * (1.0 - out[j]))
