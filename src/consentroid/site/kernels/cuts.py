"""Cuts: beyond which thresholds no minimiser with f < t lies (`boxes.py` says why)."""

from __future__ import annotations

import numpy as np

from ...core.compile import kernel
from .in_sums import EPS, OFFSET, ROOTS, TINY, WEIGHT, in_margin


@kernel
def cut_sum(y, w, lam, axis, side, at, mu, centre, kept, left, a, sums):
    """γ of one cut, rounded up."""
    n_features = len(centre)
    sign = 1.0 if side == 0 else -1.0
    total = sign * (sums[OFFSET + axis] + sums[WEIGHT] * (centre[axis] - at))
    size = 0.0
    for r in range(left):
        j = kept[r]
        reach, paid = sign * (y[j, axis] - at), mu * (lam[j] - a[r])
        size += w[j] * (abs(reach) + paid)
        if reach + paid > 0.0:
            total += w[j] * (reach + paid)
    size += abs(sums[OFFSET + axis]) + sums[WEIGHT] * abs(centre[axis] - at)
    margin = in_margin(sums, n_features) * (sums[ROOTS] + sums[WEIGHT] * abs(centre[axis] - at))
    return total + margin + (left + 32.0) * 4.0 * EPS * size + TINY


@kernel
def cut_grid(y, w, lam, lo, hi, centre, steepness, multiples, kept, left, a, sums, out):
    """γ for both sides, the thresholds edge, centre, opposite edge, and all μ (ascending) of every coordinate, rounded
    up.

    With u = y − centre a row counts max(0, ±u ∓ (T − centre) + μ gain). Where it counts at all thresholds it does so
    for all larger μ, as a linear function: three sums. Only what lies between is looked at closely."""
    n_features, n_mu = len(centre), len(multiples)
    mu, linear = np.empty(n_mu), np.empty((2, n_mu, 3))
    for d in range(n_features):
        width, middle = hi[d] - lo[d], centre[d]
        half = max(hi[d] - middle, middle - lo[d]) * (1.0 + 2.0 * EPS)
        for k in range(n_mu):
            mu[k] = multiples[k] * width * steepness
        grids = out[d]
        grids[:] = 0.0
        linear[:] = 0.0
        weight, reaches, owed = 0.0, 0.0, 0.0
        for r in range(left):
            j = kept[r]
            u, gain, mass = y[j, d] - middle, lam[j] - a[r], w[j]
            weight += mass
            reaches += mass * abs(u)
            owed += mass * abs(gain)
            for side in range(2):
                x = u if side == 0 else -u
                for k in range(n_mu):
                    v = x + mu[k] * gain
                    if v >= half and gain >= 0.0:  # a row that pays nothing (`keep_all`) may count for less
                        linear[side, k, 0] += mass
                        linear[side, k, 1] += mass * x
                        linear[side, k, 2] += mass * gain
                        break
                    if v > 0.0:
                        grids[side, 1, k] += mass * v
                    if v > -half:
                        below = v + (middle - lo[d] if side == 0 else hi[d] - middle)
                        above = v + (middle - hi[d] if side == 0 else lo[d] - middle)
                        if below > 0.0:
                            grids[side, 0, k] += mass * below
                        if above > 0.0:
                            grids[side, 2, k] += mass * above
        reaches = 3.0 * reaches + 2.0 * weight * width
        around = abs(sums[OFFSET + d]) + sums[WEIGHT] * width
        margin = in_margin(sums, n_features) * (sums[ROOTS] + sums[WEIGHT] * width)
        margin += (left + 32.0) * 8.0 * EPS * (reaches + mu[n_mu - 1] * owed + around) + TINY
        for side in range(2):
            sign = 1.0 if side == 0 else -1.0
            rows, offset, paying = sums[WEIGHT], sign * sums[OFFSET + d], 0.0
            for k in range(n_mu):
                rows += linear[side, k, 0]
                offset += linear[side, k, 1]
                paying += linear[side, k, 2]
                for i in range(3):
                    edge = lo[d] if (i == 0) == (side == 0) else hi[d]
                    shift = 0.0 if i == 1 else sign * (middle - edge)
                    grids[side, i, k] += offset + rows * shift + mu[k] * paying + margin
