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
    """γ for both sides, the thresholds edge, centre, opposite edge, and all μ of every coordinate, rounded up.

    With u = y − centre a row counts max(0, ±(u + centre − T) + μ gain). All of a coordinate's sums lie side by side and
    grow at once, several in one instruction: most of a search is spent here."""
    n_features, n_mu = len(centre), len(multiples)
    n = 6 * n_mu
    sign, shift, mu = np.empty(n), np.empty((n_features, n)), np.empty((n_features, n))
    for side in range(2):
        for i in range(3):
            for k in range(n_mu):
                at = (3 * side + i) * n_mu + k
                sign[at] = 1.0 if side == 0 else -1.0
                for d in range(n_features):
                    edge = lo[d] if (i == 0) == (side == 0) else hi[d]
                    shift[d, at] = 0.0 if i == 1 else sign[at] * (centre[d] - edge)
                    mu[d, at] = multiples[k] * (hi[d] - lo[d]) * steepness
    counted, reaches = np.zeros((n_features, n)), np.zeros(n_features)
    weight, owed = 0.0, 0.0
    for r in range(left):
        j = kept[r]
        gain, mass = lam[j] - a[r], w[j]
        weight += mass
        owed += mass * abs(gain)
        for d in range(n_features):
            u = y[j, d] - centre[d]
            reaches[d] += mass * abs(u)
            for at in range(n):
                counted[d, at] += mass * max(0.0, sign[at] * u + shift[d, at] + mu[d, at] * gain)
    for d in range(n_features):
        width = hi[d] - lo[d]
        around = abs(sums[OFFSET + d]) + sums[WEIGHT] * width
        size = 3.0 * reaches[d] + 2.0 * weight * width + mu[d, n - 1] * owed + around
        margin = in_margin(sums, n_features) * (sums[ROOTS] + sums[WEIGHT] * width)
        margin += (left + 32.0) * 8.0 * EPS * size + TINY
        for side in range(2):
            for i in range(3):
                for k in range(n_mu):
                    at = (3 * side + i) * n_mu + k
                    decided = sign[at] * sums[OFFSET + d] + sums[WEIGHT] * shift[d, at]
                    out[d, side, i, k] = counted[d, at] + decided + margin
