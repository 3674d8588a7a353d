"""What a node's rows cost by themselves: price-free tail bounds. Done once a node and K."""

from __future__ import annotations

import numpy as np

from ...core.compile import entry, kernel
from ._kernels import copy_into
from ._order import make_pairs, relative_rounding
from ._scaling import base_margin
from ._search import Left, Model, make_stack, open_bound, run_search
from ._separation import first_cones
from ._start import local_search
from ._state import (
    ABSOLUTE_SUM,
    BEST,
    BEST_COST,
    FARTHEST,
    NODES,
    NONE,
    RUNNING,
    STATE,
    THRESHOLD,
    WEIGHT_SUM,
    farthest_side,
    least_weight_row,
)

FEW_ROWS = 30  # up to which the last tail's solution is start enough


@kernel
def _free_model(y, w, n_original, n_clusters):
    """The price-free problem in scaled units; centroids stay in the rows' hull, well inside these boxes."""
    n, n_features = y.shape
    shape = (n_clusters, n_features)
    magnitudes = np.zeros((4 + 2 * n_clusters, n_features))
    least, reach = np.inf, 2.0
    for j in range(n):
        least = min(least, w[j])
        for d in range(n_features):
            magnitudes[ABSOLUTE_SUM, d] += w[j] * abs(y[j, d])
            magnitudes[WEIGHT_SUM, d] += w[j]
            magnitudes[FARTHEST, d] = max(magnitudes[FARTHEST, d], abs(y[j, d]))
            reach = max(reach, 2.0 * abs(y[j, d]))  # rows near the largest doubles cannot be scaled into [−1, 1]
    for k in range(n_clusters):
        for d in range(n_features):
            magnitudes[farthest_side(n_clusters, k), d] = reach
    magnitudes[least_weight_row(n_clusters), 0] = least
    price, lo, hi, references = np.zeros(shape), np.full(shape, -reach), np.full(shape, reach), np.zeros(shape)
    pairs, rounding = make_pairs(references, np.bool_(False)), relative_rounding(n_original, n_clusters, n_features)
    return Model(price, lo, hi, references, pairs, magnitudes, NONE, True, 0.0, rounding)


@entry
def tail_bounds(y, w, n_original, n_clusters, seeds, node_limit, total_limit, tail, best):
    """Proven price-free cost of rows t, t+1, ... for every t, from the last row upwards; needs at least one row.

    Each problem starts from the last one's solution (and the best seed, where rows are many); where a limit stops the
    search, its open bound stands in. `best` receives the solution of the whole. Fills tail (n+1,), returns
    the nodes spent.
    """
    n, n_features = y.shape
    stack = make_stack(n, n_clusters, n_features)
    left = Left(y, w, np.ones((n, n_clusters), np.bool_), np.zeros((n, n_clusters)), tail)
    trial, u = np.zeros((n_clusters, n_features)), np.zeros(0)
    model = _free_model(y, w, n_original, n_clusters)
    margin = base_margin(model)
    tail[n] = 0.0
    spent = 0
    for k in range(n_clusters):  # the last rows have a cluster each
        tail[max(n - 1 - k, 0)] = 0.0
        for d in range(n_features):
            best[k, d] = y[max(n - 1 - k, 0), d]
    for t in range(n - n_clusters - 1, -1, -1):
        stack.numbers[BEST] = np.inf
        for i in range(-1, 0 if n <= FEW_ROWS else min(len(seeds), 1)):
            copy_into(trial, best if i < 0 else seeds[i])
            value, cost = local_search(y[t:], w[t:], model, trial, u, np.int64(100))
            if value < stack.numbers[BEST]:
                stack.numbers[BEST], stack.numbers[BEST_COST] = value, cost
                copy_into(stack.best, trial)
        stack.numbers[THRESHOLD] = stack.numbers[BEST] * (1.0 - 1e-12)
        for k in range(n_clusters):
            for i in range(n_features + 2):
                stack.state[t, k, i] = 0.0
        first_cones(model.references, model.rule != NONE, stack.cones[t])
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
