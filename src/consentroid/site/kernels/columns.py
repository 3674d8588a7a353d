"""Clusters that rows offer to pay for: trimmed Lloyd steps, first prices, costs of candidates.

Rows lie in blocks of neighbours (`site/blocks.py`); a block none of whose rows can be nearer to a point than its price
is passed over, so that a step costs what is near the point. None of these numbers proves anything by itself.
"""

from __future__ import annotations

import numpy as np

from ...core.compile import entry, kernel


@kernel
def block_distance(m, low, high):
    total = 0.0
    for d in range(len(m)):
        outside = max(max(low[d] - m[d], m[d] - high[d]), 0.0)
        total += outside * outside
    return total


@entry
def trim_step(y, w, lam, starts, low, high, dearest, points, first, last, values, weights, offsets):
    """f, weight and offset Σ w (y − m) of the rows with |y − m|² < λ, for points first..last."""
    n_features = y.shape[1]
    by = np.empty(n_features)
    for p in range(first, last):
        m = points[p]
        value, weight = 0.0, 0.0
        offsets[p] = 0.0
        for b in range(len(starts) - 1):
            if block_distance(m, low[b], high[b]) >= dearest[b]:
                continue
            for j in range(starts[b], starts[b + 1]):
                squared = 0.0
                for d in range(n_features):
                    by[d] = y[j, d] - m[d]
                    squared += by[d] * by[d]
                if squared < lam[j]:
                    value += w[j] * (squared - lam[j])
                    weight += w[j]
                    for d in range(n_features):
                        offsets[p, d] += w[j] * by[d]
        values[p], weights[p] = value, weight


@entry
def two_nearest(y, centroids, least, second):
    """Least and second least squared distance to the centroids."""
    for j in range(len(y)):
        a, b = np.inf, np.inf
        for k in range(len(centroids)):
            squared = 0.0
            for d in range(y.shape[1]):
                squared += (y[j, d] - centroids[k, d]) ** 2
            if squared < a:
                a, b = squared, a
            elif squared < b:
                b = squared
        least[j], second[j] = a, b


@entry
def assign_rows(x, w, stride, candidates, first, last, costs, counts, offsets, spreads):
    """Cost (not yet rounded up), spread, counts and offsets Σ w (x − m_k) of candidates first..last."""
    n_features, n_clusters = x.shape[1], candidates.shape[1]
    for c in range(first, last):
        centroids, cost = candidates[c], 0.0
        counts[c] = 0.0
        offsets[c] = 0.0
        spreads[c] = 0.0
        for j in range(0, len(x), stride):
            best, at = np.inf, 0
            for k in range(n_clusters):
                squared = 0.0
                for d in range(n_features):
                    squared += (x[j, d] - centroids[k, d]) ** 2
                if squared < best:
                    best, at = squared, k
            term = w[j] * best
            if not term > 1e-290:  # underflow: a row that is not its centroid costs something
                for d in range(n_features):
                    if x[j, d] != centroids[at, d]:
                        term += (n_features * w[j] + 1.0) * 1e-322
                        break
            cost += term
            counts[c, at] += w[j]
            spreads[c, at] += w[j] * best
            for d in range(n_features):
                offsets[c, at, d] += w[j] * (x[j, d] - centroids[at, d])
        costs[c] = cost
