"""One feature, no price, boxes that hold all rows: exact by dynamic programming over sorted rows.

Optimal clusters are intervals. With D_c(j) the least cost of the first j rows in c clusters and C(i, j) the cost of
rows i..j−1 about their mean,

    D_c(j) = min_i D_{c−1}(i) + C(i, j),

whose least minimiser does not decrease with j (C obeys the quadrangle inequality), so that each layer takes n log n
steps by divide and conquer. `docs/numerics.md`, section 5: with costs accurate to ε every layer loses at most
2 ε (1 + log₂ n), and compensated prefix sums make ε independent of n.
"""

from __future__ import annotations

import math

import numpy as np

from ...core.compile import entry, kernel
from ._kernels import ROUNDING, TINY
from ._recover import recover
from ._scaling import scaled_model, unscale_down


@kernel
def _prefix(terms, out):
    """out[i] = Σ_{j<i} terms[j], compensated (Neumaier)."""
    total, error = 0.0, 0.0
    out[0] = 0.0
    for j in range(len(terms)):
        x = terms[j]
        new = total + x
        error += (total - new) + x if abs(total) >= abs(x) else (x - new) + total
        total = new
        out[j + 1] = total + error


@kernel
def _layer(before, weight, total, square, now, choice):
    """One cluster more: `now[j]` from `before`, for all j at least 1, with its minimiser in `choice`."""
    n = len(now) - 1
    pending = np.empty((128, 4), np.int64)
    pending[0, 0], pending[0, 1], pending[0, 2], pending[0, 3] = 1, n, 0, n
    now[0], choice[0] = 0.0, 0
    top = 1
    while top > 0:
        top -= 1
        first, last, low, high = pending[top, 0], pending[top, 1], pending[top, 2], pending[top, 3]
        j = (first + last) // 2
        least, where = np.inf, low
        for i in range(low, min(high, j - 1) + 1):
            w, s = weight[j] - weight[i], total[j] - total[i]
            cost = before[i] + max(square[j] - square[i] - s * s / w, 0.0)
            if cost < least:
                least, where = cost, i
        now[j], choice[j] = least, where
        if first < j:
            pending[top, 0], pending[top, 1], pending[top, 2], pending[top, 3] = first, j - 1, low, where
            top += 1
        if j < last:
            pending[top, 0], pending[top, 1], pending[top, 2], pending[top, 3] = j + 1, last, where, high
            top += 1


@entry
def cluster_line(rows, price, box, rule, references, out, labels):
    """(bound, value) in original units; fills centroids and labels. Needs at least one row."""
    n_clusters, n = len(price), len(rows.w)
    order = np.argsort(rows.y[:, 0])
    weight, total, square = np.empty(n + 1), np.empty(n + 1), np.empty(n + 1)
    y, w = np.empty(n), np.empty(n)
    for j in range(n):
        y[j], w[j] = rows.y[order[j], 0], rows.w[order[j]]
    _prefix(w, weight)
    _prefix(w * y, total)
    _prefix(w * y * y, square)
    choice = np.zeros((n_clusters, n + 1), np.int64)
    before, now = np.full(n + 1, np.inf), np.empty(n + 1)
    before[0] = 0.0
    used = min(n_clusters, n)
    for c in range(used):
        _layer(before, weight, total, square, now, choice[c])
        for j in range(n + 1):
            before[j] = now[j]
    best = np.full((n_clusters, 1), y[0])  # clusters without rows share the first row's place
    last = n
    for c in range(used - 1, -1, -1):
        first = choice[c, last]
        if first < last:
            best[c, 0] = (total[last] - total[first]) / (weight[last] - weight[first])
        last = first
    model, _ = scaled_model(rows, price, box, rule, references)
    largest = max(abs(y[0]), abs(y[n - 1]))
    error = 64.0 * ROUNDING * weight[n] * largest * largest
    margin = n_clusters * (4.0 + 2.0 * math.log2(n + 1.0)) * error + TINY
    bound = max(unscale_down(rows, price, before[n] - margin), 0.0)
    value, _ = recover(rows, price, box, rule, references, model, best, out, labels)
    return min(bound, value), value
