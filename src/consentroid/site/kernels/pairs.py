"""Sums over pairs of rows and triangles of groups of rows (`site/pairs/prices.py` says why).

Matrices of all pairs are symmetric: of W and of the pair prices only what lies below the diagonal is kept, of W with
the diagonal. Rows stand group by group, φ_i = q_i / (weight of i's group). A triangle of groups (g, h, k) is

    B_gh + B_gk − B_hk ≤ τ_g,      B_gh = Σ_{i∈g, j∈h} φ_i φ_j W_ij,      τ_g = Σ_{i∈g} W_ii / (weight of g),

so its prices change W_ij by a number of the two groups times φ_i φ_j (`between`), and W_ii by one of the group (`of`).
"""

from __future__ import annotations

import numpy as np

from ...core.compile import entry

TILE = 64


@entry
def mirror(w, prices, first, last, out):
    """W + prices with both halves, W alone on the diagonal; rows first..last times TILE."""
    n = len(w)
    for tile in range(first, last):
        top, bottom = tile * TILE, min((tile + 1) * TILE, n)
        for left in range(0, bottom, TILE):
            for i in range(top, bottom):
                for j in range(left, min(left + TILE, i)):
                    value = w[i, j] + prices[i, j]
                    out[i, j] = value
                    out[j, i] = value
        for i in range(top, bottom):
            out[i, i] = w[i, i]


@entry
def sweep_pairs(w, prices, fresh, z, kept, phi, group, starts, weights, between, of, first, last, b, tau):
    """For the rows of groups first..last: W becomes `kept` W + Z if there is a `fresh` Z; then as triangles change it;
    then each pair in turn: W_ij moves to where it is not negative, its price says how far it was moved in all. B below
    the diagonal, and τ, of what comes of it."""
    zero = np.float32(0.0)
    change, sums = np.empty(len(w), np.float32), np.empty(len(w), np.float32)
    for g in range(first, last):
        end = starts[g + 1]
        for j in range(end):
            change[j] = between[g, group[j]] * phi[j]
            sums[j] = zero
        tau[g] = zero
        for i in range(starts[g], end):
            by, row, row_z, row_prices = phi[i], w[i], z[i], prices[i]
            if fresh:
                for j in range(i + 1):
                    row[j] = kept * row[j] + row_z[j]
            for j in range(i):
                moved = row[j] - by * change[j]
                price = max(zero, row_prices[j] - moved)
                moved += price - row_prices[j]
                row_prices[j] = price
                row[j] = moved
                sums[j] += by * moved
            row[i] += of[g]
            tau[g] += row[i] / weights[g]
        for h in range(g):
            total = zero
            for j in range(starts[h], starts[h + 1]):
                total += phi[j] * sums[j]
            b[g, h] = total


@entry
def sweep_triangles(b, tau, triangles, prices, weights, sizes):
    """Each triangle in turn: B and τ move to where its inequality holds, its price says how far in all."""
    for t in range(len(triangles)):
        g, h, k = triangles[t, 0], triangles[t, 1], triangles[t, 2]
        gh, gk, hk = 0.5 / (weights[g] * weights[h]), 0.5 / (weights[g] * weights[k]), 0.5 / (weights[h] * weights[k])
        own = sizes[g] / (weights[g] * weights[g])
        above = b[g, h] + b[g, k] - tau[g] - b[h, k]
        price = max(0.0, prices[t] + above / (gh + gk + hk + own))
        by = price - prices[t]
        if by != 0.0:
            prices[t] = price
            b[g, h] -= by * gh
            b[h, g] = b[g, h]
            b[g, k] -= by * gk
            b[k, g] = b[g, k]
            b[h, k] += by * hk
            b[k, h] = b[h, k]
            tau[g] += by * own


@entry
def spread_triangles(triangles, prices, weights, between, of):
    """What triangles with these prices take off W, divided by φφ, and what they add to its diagonal."""
    between[:] = 0.0
    of[:] = 0.0
    for t in range(len(triangles)):
        g, h, k, half = triangles[t, 0], triangles[t, 1], triangles[t, 2], 0.5 * prices[t]
        between[g, h] += half
        between[h, g] += half
        between[g, k] += half
        between[k, g] += half
        between[h, k] -= half
        between[k, h] -= half
        of[g] += prices[t] / weights[g]


@entry
def violated_triangles(b, tau, candidates, first, last, least, third, amounts):
    """For each group g of first..last and each candidate h = candidates[g, c] the triangle (g, h, k) that B violates
    most, k among the candidates, too: k into `third` (groups, candidates), by how much into `amounts`; 0 if by less
    than `least`."""
    n = candidates.shape[1]
    near, at = np.empty(n, np.int32), np.empty(n, np.int32)
    for g in range(first, last):
        count = 0
        for c in range(n):
            amounts[g, c] = 0.0
            h = candidates[g, c]
            if h != g and b[g, h] > least:
                near[count], at[count] = h, c
                count += 1
        for a in range(count):
            h, most, best = near[a], least, 0
            of_h = b[g, h] - tau[g]
            for c in range(count):
                k = near[c]
                amount = of_h + b[g, k] - b[h, k]
                if amount > most and k != h:
                    most, best = amount, k
            if most > least:
                amounts[g, at[a]], third[g, at[a]] = most, best
