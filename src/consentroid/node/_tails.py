"""What a node's rows cost by themselves: search order and price-free tail bounds. Done once a node and K."""

from __future__ import annotations

import numpy as np

from ._kernels import NONE, ROUNDING, TINY, copy_into, entry, kernel
from ._order import make_pairs, price_margin
from ._search import (
    BEST,
    BEST_COST,
    NODES,
    RUNNING,
    STATE,
    THRESHOLD,
    Left,
    Model,
    make_stack,
    open_bound,
    run_search,
)
from ._start import local_search


@entry
def spread_order(y, w):
    """Rows from the outside in: each next row is the one farthest from those already taken."""
    n, n_features = y.shape
    order = np.empty(n, np.int64)
    nearest = np.full(n, np.inf)
    mean = np.zeros(n_features)
    for j in range(n):
        for d in range(n_features):
            mean[d] += y[j, d] / n
    first, farthest = 0, -1.0
    for j in range(n):
        squared = 0.0
        for d in range(n_features):
            squared += (y[j, d] - mean[d]) ** 2
        if squared > farthest:
            first, farthest = j, squared
    taken = np.zeros(n, np.bool_)
    for i in range(n):
        order[i] = first
        taken[first] = True
        best = -1.0
        following = -1
        for j in range(n):
            if taken[j]:
                continue
            squared = 0.0
            for d in range(n_features):
                squared += (y[j, d] - y[first, d]) ** 2
            nearest[j] = min(nearest[j], squared)
            if nearest[j] * w[j] > best:
                best, following = nearest[j] * w[j], j
        first = following
    return order


@kernel
def _free_model(y, w, n_clusters):
    """The price-free problem in scaled units; centroids stay in the rows' hull, well inside these boxes."""
    n, n_features = y.shape
    shape = (n_clusters, n_features)
    magnitudes = np.zeros((4 + 2 * n_clusters, n_features))
    least = np.inf
    for j in range(n):
        least = min(least, w[j])
        for d in range(n_features):
            magnitudes[0, d] += w[j] * abs(y[j, d])
            magnitudes[1, d] += w[j]
            magnitudes[2, d] = max(magnitudes[2, d], abs(y[j, d]))
    for k in range(n_clusters):
        for d in range(n_features):
            magnitudes[3 + n_clusters + k, d] = 2.0
    magnitudes[3 + 2 * n_clusters, 0] = least
    return Model(
        np.zeros(shape), np.full(shape, -2.0), np.full(shape, 2.0), np.zeros(shape), make_pairs(np.zeros(shape), False),
        magnitudes, NONE, True, 0.0,
    )  # fmt: skip


@entry
def tail_bounds(y, w, n_original, n_clusters, seeds, node_limit, total_limit, tail, best):
    """Proven price-free cost of rows t, t+1, ... for every t, from the last row upwards.

    Each problem starts from the last one's solution; where a limit stops the search, its open bound stands in. `best`
    receives the solution of the whole. Fills tail (n+1,), returns the nodes spent.
    """
    n, n_features = y.shape
    stack = make_stack(n, n_clusters, n_features)
    left = Left(y, w, np.ones((n, n_clusters), np.bool_), np.zeros((n, n_clusters)), tail)
    trial, u = np.zeros((n_clusters, n_features)), np.zeros(0)
    tail[n] = 0.0
    spent = 0
    for t in range(n - 1, -1, -1):
        rows, weight = y[t:], w[t:]
        model = _free_model(rows, weight, n_clusters)
        size = price_margin(model.price, model.pairs, u, model.magnitudes)
        for d in range(n_features):
            size += model.magnitudes[0, d] * model.magnitudes[2, d]
        margin = (4 * n_original + 4 * n_clusters * n_features + 128) * ROUNDING * size + TINY
        stack.numbers[BEST] = np.inf
        copy_into(trial, best)
        for i in range(n_clusters + 1 + len(seeds)):
            if i <= n_clusters:
                copy_into(trial, best)
                if i < n_clusters:
                    for d in range(n_features):
                        trial[i, d] = y[t, d]
            else:
                copy_into(trial, seeds[i - n_clusters - 1])
            value, cost = local_search(rows, weight, model, trial, u, 100)
            if value < stack.numbers[BEST]:
                stack.numbers[BEST], stack.numbers[BEST_COST] = value, cost
                copy_into(stack.best, trial)
        stack.numbers[THRESHOLD] = stack.numbers[BEST] * (1.0 - 1e-12)
        for k in range(n_clusters):
            for i in range(n_features + 2):
                stack.state[t, k, i] = 0.0
        stack.bounds[t, n_clusters] = 0.0
        stack.counters[STATE] = RUNNING
        stack.counters[NODES] = 0
        tail[t] = tail[t + 1]  # more rows never cost less
        limit = min(node_limit, total_limit - spent)
        if limit > 0:
            spent += run_search(t, n, left, model, 0.0, 1e-12, limit, limit, stack)
            tail[t] = max(tail[t], open_bound(t, n_clusters, stack) - margin)
        copy_into(best, stack.best)
    return spent
