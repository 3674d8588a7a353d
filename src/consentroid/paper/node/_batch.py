"""Many priced problems on the same rows in one call: scale, reduce, start, search, map back.

For each box: rows whose cluster the boxes decide are merged first (row j cannot go to l if its farthest distance to box
k is below its least distance to box l for some k), a few priced Lloyd runs give the incumbent, and the search of
`_search` proves it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...core.compile import bare, entry, kernel
from ._kernels import ROUNDING, copy_into, least_payment
from ._order import SQUARE, TOTAL, WEIGHT, price_margin, shift_price
from ._order_interior import pairs_exclude
from ._recover import recover
from ._scaling import base_margin, excluded, scaled_model, unscale_down
from ._search import Left, Stack, new_stack, open_bound, run_search
from ._separation import first_cones
from ._start import find_incumbent
from ._state import BEST, BEST_COST, FINISHED, INFEASIBLE, NODES, NONE, OPTIMAL, RUNNING, STATE, THRESHOLD, UNFINISHED


class Workspace(NamedTuple):
    """What a search over assignments works in, for n rows, K clusters and D features."""

    left: Left
    stack: Stack
    root: np.ndarray  # (K, D+2) decided rows, merged
    cursor: np.ndarray  # box under way, whether it has begun, how many rows are left to its search


def make_workspace(n: int, n_clusters: int, n_features: int) -> Workspace:
    """Made by Python, which hands arrays to kernels faster than it takes them back."""
    k, d = n_clusters, n_features
    left = Left(np.zeros((n, d)), np.zeros(n), np.zeros((n, k), np.bool_), np.zeros((n, k)), np.zeros(n + 1))
    return Workspace(left, new_stack(n, k, d), np.zeros((k, d + 2)), np.zeros(3, np.int64))


@kernel
def reduce_rows(rows, model, left, root):
    """Candidates of each row; merges decided rows into `root` (K, D+2). Returns the number of rows left.

    Where few rows are decided they stay in place instead, with one candidate: the price-free tails then still apply.
    """
    n, n_features = rows.y.shape
    n_clusters = len(model.price)
    near, far = np.empty(n_clusters), np.empty(n_clusters)
    only = np.empty(n, np.int64)
    decided = 0
    for j in range(n):
        smallest_far = np.inf
        for k in range(n_clusters):
            near[k], far[k] = 0.0, 0.0
            for d in range(n_features):
                below, above = model.lo[k, d] - rows.y[j, d], rows.y[j, d] - model.hi[k, d]
                gap = max(below, above)
                if gap > 0.0:
                    near[k] += gap * gap
                reach = max(-below, -above)
                far[k] += reach * reach
            smallest_far = min(smallest_far, far[k])
        threshold = smallest_far * (1.0 + 64.0 * ROUNDING * (n_features + 1))
        count = 0
        for k in range(n_clusters):
            allowed = near[k] <= threshold
            left.allowed[j, k] = allowed
            left.near[j, k] = rows.w[j] * near[k]
            if allowed:
                count += 1
                only[j] = k
        if count == 1:
            decided += 1
        else:
            only[j] = -1
    for k in range(n_clusters):
        for i in range(n_features + 2):
            root[k, i] = 0.0
    merge = 3 * decided > n
    kept = 0
    for j in range(n):
        k = only[j]
        if merge and k >= 0:
            root[k, WEIGHT] += rows.w[j]
            for d in range(n_features):
                root[k, SQUARE] += rows.w[j] * rows.y[j, d] * rows.y[j, d]
                root[k, TOTAL + d] += rows.w[j] * rows.y[j, d]
            continue
        left.w[kept] = rows.w[j]
        for d in range(n_features):
            left.y[kept, d] = rows.y[j, d]
        for k in range(n_clusters):
            left.allowed[kept, k] = left.allowed[j, k]
            left.near[kept, k] = left.near[j, k]
        kept += 1
    left.tail[kept] = 0.0
    for s in range(kept - 1, -1, -1):
        least = np.inf
        for k in range(n_clusters):
            if left.allowed[s, k]:
                least = min(least, left.near[s, k])
        left.tail[s] = left.tail[s + 1] + least
    if kept == n:
        for s in range(n):
            left.tail[s] = max(left.tail[s], rows.tail[s])
    return kept


@kernel
def start_root(model, u, root, stack):
    """Depth 0 from the merged rows, with the order rule's multipliers of the incumbent."""
    copy_into(stack.state[0], root)
    first_cones(model.references, model.rule != NONE, stack.cones[0])
    for p in range(len(u)):
        stack.multipliers[0, p] = u[p]
    stack.bounds[0, len(model.price)] = 0.0
    if shift_price(model.price, model.pairs, u, stack.price[0]) > 0.0:
        margin = model.rounding * price_margin(model.price, model.pairs, u, model.magnitudes)
        stack.bounds[0, len(model.price)] = margin
    stack.counters[STATE] = RUNNING
    stack.counters[NODES] = 0


@bare
def middle_of(box, out):
    """Where nothing is feasible, the boxes' centres stand in for centroids."""
    for k in range(out.shape[0]):
        for d in range(out.shape[1]):
            out[k, d] = 0.5 * (box[0, k, d] + box[1, k, d])


@entry
def solve_batch(
    rows, prices, boxes, rule, references, start, n_seeds, gap, node_limit, quota, workspace, bounds, values, centroids,
    states, nodes, labels,
):  # fmt: skip
    """Solve boxes from workspace.cursor[0] on until `quota` search nodes are spent.

    Call again with the same arrays to go on. `states`: OPTIMAL, UNFINISHED or INFEASIBLE for each box.
    """
    left, stack, root, cursor = workspace
    spent = 0
    n_boxes, n_clusters, n_features = prices.shape
    while cursor[0] < n_boxes and spent < quota:
        b = cursor[0]
        if states[b] != UNFINISHED:
            cursor[0] += 1
            continue
        price, box = prices[b], boxes[b]
        if cursor[1] == 0 and excluded(rule, references, box):
            middle_of(box, centroids[b])
            bounds[b], values[b], states[b], nodes[b] = np.inf, np.inf, INFEASIBLE, 0
            cursor[0] += 1
            continue
        model, fine = scaled_model(rows, price, box, rule, references)
        margin, bound = np.inf, -np.inf
        if fine:
            margin = base_margin(model)
        if margin < 1e200:
            offset = 0.0
            for k in range(n_clusters):
                for d in range(n_features):
                    offset += model.price[k, d] * (rows.centre[d] / rows.scale)
            if cursor[1] == 0:
                u = np.zeros(len(model.pairs.first))
                value, cost = find_incumbent(rows, model, start, n_seeds, np.int64(50), stack.best, u)
                if value == np.inf and len(u) > 0 and pairs_exclude(model.pairs, model.lo, model.hi):
                    middle_of(box, centroids[b])
                    bounds[b], values[b], states[b], nodes[b] = np.inf, np.inf, INFEASIBLE, 0
                    cursor[0] += 1
                    continue
                stack.numbers[BEST], stack.numbers[BEST_COST] = value, cost
                stack.numbers[THRESHOLD] = value
                if value < np.inf:
                    stack.numbers[THRESHOLD] -= 0.5 * gap * max(abs(value + offset), cost)
                cursor[2] = reduce_rows(rows, model, left, root)
                start_root(model, u, root, stack)
                cursor[1] = 1
                spent += 20
            quota_left = max(quota - spent, 1)
            spent += run_search(np.int64(0), cursor[2], left, model, offset, gap, node_limit, quota_left, stack)
            if stack.counters[STATE] != FINISHED and stack.counters[NODES] < node_limit:
                return
            bound = unscale_down(rows, price, open_bound(np.int64(0), n_clusters, stack) - margin)
        else:
            copy_into(stack.best, np.zeros((n_clusters, n_features)))
        bound = max(bound, least_payment(price, box[0], box[1]))
        value, cost = recover(rows, price, box, rule, references, model, stack.best, centroids[b], labels)
        bounds[b] = min(bound, value)
        values[b] = value
        nodes[b] = stack.counters[NODES]
        states[b] = OPTIMAL if value < np.inf and value - bound <= gap * max(abs(value), cost) else UNFINISHED
        if margin < 1e200 and stack.counters[STATE] == FINISHED and states[b] == UNFINISHED and value < np.inf:
            # complete, but the margin alone exceeds the gap asked for: more work would change nothing
            best = stack.numbers[BEST]
            rounding = unscale_down(rows, price, best) - unscale_down(rows, price, best - 3.0 * margin)
            if value - bound <= gap * max(abs(value), cost) + 2.0 * rounding:
                states[b] = OPTIMAL
        cursor[0] += 1
        cursor[1] = 0
