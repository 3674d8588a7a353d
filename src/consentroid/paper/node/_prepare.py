"""A node's rows as the searches want them: shifted, scaled, equal ones merged, from the outside in."""

from __future__ import annotations

import math

import numpy as np

from ...core.compile import bare, entry, kernel
from ._tree import select


@bare
def power_above(x):
    """The power of two just above x, kept away from the ends of the range."""
    return math.ldexp(1.0, min(max(math.frexp(x)[1], -1000), 1000)) if x > 0.0 else 1.0


@kernel
def _shifted(points, weights, centre):
    """Rows that weigh something, less their centre, which is filled in; zero is the centre if differences overflow.

    Each coordinate of the centre is the median row's own: y − centre is then exact for rows close together, however far
    from zero.
    """
    n, n_features = np.int64(0), points.shape[1]
    index = np.empty(len(weights), np.int64)
    for j in range(len(weights)):
        if weights[j] > 0.0:
            index[n] = j
            n += 1
    kept = index[:n].copy()
    y, finite = np.empty((n, n_features)), True
    for d in range(n_features if n > 0 else 0):
        select(points, index, np.int64(0), np.int64(n), np.int64(n // 2), np.int64(d))
        centre[d] = points[index[n // 2], d]
        for i in range(n):
            y[i, d] = points[kept[i], d] - centre[d]
            finite = finite and abs(y[i, d]) < np.inf
    if not finite:
        for d in range(n_features):
            centre[d] = 0.0
            for i in range(n):
                y[i, d] = points[kept[i], d]
    return y, kept


@entry
def prepare_few(points, weights):
    """(y, w, centre, scale, weight scale); each next row is the one farthest from those taken, times its weight.

    Quadratic in the rows. A row equal to one taken adds its weight there.
    """
    n_features = points.shape[1]
    centre = np.zeros(n_features)
    shifted, kept = _shifted(points, weights, centre)
    n, largest = len(kept), 0.0
    mean = np.zeros(n_features)
    for i in range(n):
        for d in range(n_features):
            largest = max(largest, abs(shifted[i, d]))
    scale = power_above(largest)
    for i in range(n):
        for d in range(n_features):
            shifted[i, d] /= scale
            mean[d] += shifted[i, d] / n
    following, farthest = 0, -1.0
    for i in range(n):
        squared = 0.0
        for d in range(n_features):
            squared += (shifted[i, d] - mean[d]) ** 2
        if squared > farthest:
            following, farthest = i, squared
    y, w, taken, nearest = np.empty((n, n_features)), np.empty(n), np.zeros(n, np.bool_), np.full(n, np.inf)
    used = 0
    while following >= 0 and n > 0:
        row = following
        for d in range(n_features):
            y[used, d] = shifted[row, d]
        w[used] = 0.0
        following, best = -1, -1.0
        for i in range(n):
            if taken[i]:
                continue
            squared, equal = 0.0, True
            for d in range(n_features):
                squared += (shifted[i, d] - shifted[row, d]) ** 2
                equal = equal and points[kept[i], d] == points[kept[row], d]
            if equal:
                taken[i] = True
                w[used] += weights[kept[i]]
                continue
            nearest[i] = min(nearest[i], squared)
            if nearest[i] * weights[kept[i]] > best:
                following, best = i, nearest[i] * weights[kept[i]]
        used += 1
    heaviest = 0.0
    for i in range(used):
        heaviest = max(heaviest, w[i])
    weight_scale = power_above(heaviest)
    for i in range(used):
        w[i] /= weight_scale
    return y[:used].copy(), w[:used].copy(), centre, scale, weight_scale
