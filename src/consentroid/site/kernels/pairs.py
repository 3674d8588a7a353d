"""Sums over pairs and triangles of rows (`site/pairs/prices.py` says why).

Matrices of all pairs are symmetric: of W, of the pair prices and of what triangles take off only what lies below the
diagonal is kept, of W with the diagonal. With φ_i = 1/q_i, B_ij = φ_i φ_j W_ij, and a triangle of rows (i, j, k) is

    B_ij + B_ik − B_jk ≤ B_ii.
"""

from __future__ import annotations

import numpy as np

from ...core.compile import entry, inlined

TILE = 64


@entry
def sweep_pairs(w, prices, z, kept, first, last):
    """Rows first..last: W becomes `kept` W + Z; then each pair in turn: W_ij moves to where it is not negative, its
    price says how far it was moved in all."""
    zero = np.float32(0.0)
    for i in range(first, last):
        row, row_z, row_prices = w[i], z[i], prices[i]
        for j in range(i):
            moved = kept * row[j] + row_z[j]
            price = max(zero, row_prices[j] - moved)
            row[j] = moved + (price - row_prices[j])
            row_prices[j] = price
        row[i] = kept * row[i] + row_z[i]


@entry
def settle(w, prices, between, of, first, last, out):
    """Rows first..last times TILE: each pair once more after the triangles, then W + prices − what triangles take off,
    both halves."""
    n, zero = len(w), np.float32(0.0)
    for tile in range(first, last):
        top, bottom = tile * TILE, min((tile + 1) * TILE, n)
        for left in range(0, bottom, TILE):
            for i in range(top, bottom):
                end = min(left + TILE, i)
                for j in range(left, end):
                    moved = w[i, j]
                    price = max(zero, prices[i, j] - moved)
                    moved += price - prices[i, j]
                    w[i, j] = moved
                    prices[i, j] = price
                    out[i, j] = moved + (price - between[i, j])
                for j in range(left, end):
                    out[j, i] = out[i, j]
        for i in range(top, bottom):
            out[i, i] = w[i, i] + of[i]


@entry
def mirror(w, phi, first, last, out):
    """B, both halves; rows first..last times TILE."""
    n = len(w)
    for tile in range(first, last):
        top, bottom = tile * TILE, min((tile + 1) * TILE, n)
        for left in range(0, bottom, TILE):
            for i in range(top, bottom):
                for j in range(left, min(left + TILE, i + 1)):
                    value = phi[i] * phi[j] * w[i, j]
                    out[i, j] = value
                    out[j, i] = value


@inlined
def below(i, j):
    """The place of a pair below the diagonal."""
    return max(i, j), min(i, j)


@entry
def sweep_triangles(w, triangles, prices, phi, ease, between, of):
    """Each triangle in turn: W moves to where its inequality holds, its price says how far in all; `between` and `of`
    are kept up to date. The diagonal gives way by `ease` of what it should."""
    for t in range(len(triangles)):
        i, j, k = triangles[t, 0], triangles[t, 1], triangles[t, 2]
        ij, ik, jk = below(i, j), below(i, k), below(j, k)
        of_ij, of_ik, of_jk = phi[i] * phi[j], phi[i] * phi[k], phi[j] * phi[k]
        own = phi[i] * phi[i]
        above = w[ij] * of_ij + w[ik] * of_ik - w[jk] * of_jk - w[i, i] * own
        norm = 0.5 * (of_ij * of_ij + of_ik * of_ik + of_jk * of_jk) + ease * own * own
        price = max(0.0, prices[t] + above / norm)
        by = price - prices[t]
        if by != 0.0:
            prices[t] = price
            take = 0.5 * by
            w[ij] -= take * of_ij
            w[ik] -= take * of_ik
            w[jk] += take * of_jk
            w[i, i] += ease * by * own
            between[ij] += take * of_ij
            between[ik] += take * of_ik
            between[jk] -= take * of_jk
            of[i] += by * own


@entry
def spread_triangles(triangles, prices, phi, between, of):
    """What triangles with these prices take off W below the diagonal, and what they add to its diagonal."""
    between[:] = 0.0
    of[:] = 0.0
    for t in range(len(triangles)):
        i, j, k, half = triangles[t, 0], triangles[t, 1], triangles[t, 2], 0.5 * prices[t]
        between[below(i, j)] += half * phi[i] * phi[j]
        between[below(i, k)] += half * phi[i] * phi[k]
        between[below(j, k)] -= half * phi[j] * phi[k]
        of[i] += prices[t] * phi[i] * phi[i]


@entry
def violated_triangles(b, candidates, first, last, least, third, amounts):
    """For each row i of first..last and each candidate j = candidates[i, c] the triangle (i, j, k) that B violates
    most, k among the candidates, too: k into `third` (rows, candidates), by how much into `amounts`; 0 if by less
    than `least`."""
    n = candidates.shape[1]
    near, at = np.empty(n, np.int32), np.empty(n, np.int32)
    for i in range(first, last):
        count = 0
        for c in range(n):
            amounts[i, c] = 0.0
            j = candidates[i, c]
            if j != i and b[i, j] > least:
                near[count], at[count] = j, c
                count += 1
        for a in range(count):
            j, most, best = near[a], least, 0
            of_j = b[i, j] - b[i, i]
            for c in range(count):
                k = near[c]
                amount = of_j + b[i, k] - b[j, k]
                if amount > most and k != j:
                    most, best = amount, k
            if most > least:
                amounts[i, at[a]], third[i, at[a]] = most, best
