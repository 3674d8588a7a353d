"""A kd-tree over a node's rows, and the decided-row statistics of centroid boxes.

A row is decided for cluster k when its farthest distance to box k is below its least distance to every other box; a
cell of rows likewise, with distances from its bounding box, so that one test settles all rows in it. Decided rows
cost exactly

    Σ_j w_j |y_j − m_k|² = n_k |m_k − c_k|² − 2 s_k·(m_k − c_k) + q_k,     s_k = Σ w (y − c_k),  q_k = Σ w |y − c_k|²

about the box centres c; the others cost at least their least distance to a box that may win them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...core.compile import bare, entry, kernel
from ._kernels import ROUNDING, TINY, down, up


class Tree(NamedTuple):
    """Cells in depth-first order: the left child of cell c is c + 1, its right child is right[c] (0 for a leaf)."""

    y: np.ndarray  # (n, D) rows in cell order
    w: np.ndarray  # (n,)
    lo: np.ndarray  # (C, D) bounding box of each cell's rows
    hi: np.ndarray
    mean: np.ndarray  # (C, D)
    weight: np.ndarray  # (C,)
    spread: np.ndarray  # (C,) Σ w |y − mean|²
    first: np.ndarray  # (C,) rows first..last−1
    last: np.ndarray
    right: np.ndarray  # (C,)
    source: np.ndarray  # (n,) position of each row before reordering


@bare
def select(y, index, first, last, middle, d):
    """Partition index[first:last] so that coordinate d of the entry at `middle` is its order statistic."""
    left, right = first, last - 1
    while left < right:
        pivot = y[index[(left + right) // 2], d]
        i, j = left, right
        while i <= j:
            while y[index[i], d] < pivot:
                i += 1
            while y[index[j], d] > pivot:
                j -= 1
            if i <= j:
                index[i], index[j] = index[j], index[i]
                i += 1
                j -= 1
        if middle <= j:
            right = j
        elif middle >= i:
            left = i
        else:
            return


@entry
def build_tree(y, w, leaf_size):
    """Median splits along the widest side of each cell's bounding box."""
    n, n_features = y.shape
    capacity = 4 * (n // max(leaf_size, 1) + 1) + 1
    lo, hi = np.empty((capacity, n_features)), np.empty((capacity, n_features))
    first, last = np.zeros(capacity, np.int64), np.zeros(capacity, np.int64)
    right = np.zeros(capacity, np.int64)
    index = np.arange(n)
    pending = np.zeros((128, 2), np.int64)  # range start and end
    parents = np.zeros(128, np.int64)  # cell whose right child the range is, −1 if it is a left child or the root
    top, cells = 1, 0
    pending[0, 1] = n
    parents[0] = -1
    while top > 0:
        top -= 1
        a, b, parent = pending[top, 0], pending[top, 1], parents[top]
        c = cells
        cells += 1
        first[c], last[c] = a, b
        if parent >= 0:
            right[parent] = c
        widest, side = -1.0, np.int64(0)
        for d in range(n_features):
            low, high = np.inf, -np.inf
            for i in range(a, b):
                x = y[index[i], d]
                low, high = min(low, x), max(high, x)
            lo[c, d], hi[c, d] = low, high
            if high - low > widest:
                widest, side = high - low, d
        if b - a > leaf_size and widest > 0.0:
            middle = (a + b) // 2
            select(y, index, a, b, middle, side)
            pending[top, 0], pending[top, 1], parents[top] = middle, b, c
            top += 1
            pending[top, 0], pending[top, 1], parents[top] = a, middle, -1
            top += 1
    rows, weights = np.empty((n, n_features)), np.empty(n)
    for i in range(n):
        rows[i] = y[index[i]]
        weights[i] = w[index[i]]
    mean, weight, spread = np.zeros((cells, n_features)), np.zeros(cells), np.zeros(cells)
    for c in range(cells):
        for i in range(first[c], last[c]):
            weight[c] += weights[i]
            for d in range(n_features):
                mean[c, d] += weights[i] * rows[i, d]
        for d in range(n_features):
            mean[c, d] /= weight[c]
        for i in range(first[c], last[c]):
            for d in range(n_features):
                spread[c] += weights[i] * (rows[i, d] - mean[c, d]) ** 2
    return Tree(
        rows, weights, lo[:cells].copy(), hi[:cells].copy(), mean, weight, spread, first[:cells].copy(),
        last[:cells].copy(), right[:cells].copy(), index,
    )  # fmt: skip


@kernel
def winner(low, high, lo, hi, near):
    """Cluster that wins every row in [low, high] whatever the centroids in their boxes, or −1.

    Fills near[k] with the least squared distance to box k, or inf where k can win none of the rows.
    """
    n_clusters, n_features = lo.shape
    smallest_far = np.inf
    for k in range(n_clusters):
        close, far = 0.0, 0.0
        for d in range(n_features):
            gap = max(lo[k, d] - high[d], low[d] - hi[k, d])
            if gap > 0.0:
                close += gap * gap
            reach = max(hi[k, d] - low[d], high[d] - lo[k, d])
            far += reach * reach
        near[k] = close
        smallest_far = min(smallest_far, far)
    threshold = smallest_far * (1.0 + 64.0 * ROUNDING * (n_features + 1))
    count, chosen = 0, -1
    for k in range(n_clusters):
        if near[k] <= threshold:
            count += 1
            chosen = k
        else:
            near[k] = np.inf
    return chosen if count == 1 else -1


@kernel
def box_statistics(tree, lo, hi, centre, counts, sums, near, pending):
    """Adds decided weights and sums; returns (constant, undecided weight), without margin, in scaled units."""
    n_features = lo.shape[1]
    constant, undecided = 0.0, 0.0
    top = 1
    pending[0] = 0
    while top > 0:
        top -= 1
        c = pending[top]
        k = winner(tree.lo[c], tree.hi[c], lo, hi, near)
        if k >= 0:
            counts[k] += tree.weight[c]
            constant += tree.spread[c]
            for d in range(n_features):
                difference = tree.mean[c, d] - centre[k, d]
                sums[k, d] += tree.weight[c] * difference
                constant += tree.weight[c] * difference * difference
        elif tree.right[c] > 0:
            pending[top] = tree.right[c]
            pending[top + 1] = c + 1
            top += 2
        else:
            for j in range(tree.first[c], tree.last[c]):
                k = winner(tree.y[j], tree.y[j], lo, hi, near)
                if k >= 0:
                    counts[k] += tree.w[j]
                    for d in range(n_features):
                        difference = tree.y[j, d] - centre[k, d]
                        sums[k, d] += tree.w[j] * difference
                        constant += tree.w[j] * difference * difference
                else:
                    undecided += tree.w[j]
                    constant += tree.w[j] * near.min()
    return constant, undecided


@entry
def count_batch(tree, row_centre, scale, weight_scale, n_rows, boxes, first, last, counts, sums, constants, undecided):
    """Decided-row statistics of boxes first..last−1, in original units; constants carry all error margins."""
    n_clusters, n_features = boxes.shape[2], boxes.shape[3]
    lo, hi = np.empty((n_clusters, n_features)), np.empty((n_clusters, n_features))
    centre, near = np.empty((n_clusters, n_features)), np.empty(n_clusters)
    pending = np.empty(256, np.int64)
    everything = tree.weight[0]
    for b in range(first, last):
        fine = True
        for k in range(n_clusters):
            for d in range(n_features):
                lo[k, d] = down((boxes[b, 0, k, d] - row_centre[d]) / scale)
                hi[k, d] = up((boxes[b, 1, k, d] - row_centre[d]) / scale)
                middle = 0.5 * (boxes[b, 0, k, d] + boxes[b, 1, k, d])
                centre[k, d] = (middle - row_centre[d]) / scale
                fine = fine and abs(lo[k, d]) < 1e140 and abs(hi[k, d]) < 1e140 and abs(centre[k, d]) < 1e140
        counts[b, :] = 0.0
        sums[b, :, :] = 0.0
        if not fine:  # nothing decided, at no cost: true whatever the numbers
            constants[b], undecided[b] = 0.0, everything * weight_scale
            continue
        constant, left = box_statistics(tree, lo, hi, centre, counts[b], sums[b], near, pending)
        # docs/numerics.md, section 5: rounding of counts, sums and squares here and when up to 1,000 nodes are summed
        size = 0.0
        for k in range(n_clusters):
            for d in range(n_features):
                reach = 1.0 + abs(centre[k, d]) + (hi[k, d] - lo[k, d])
                size += (counts[b, k] if counts[b, k] > 0.0 else 0.0) * reach * reach
        margin = (4 * n_rows + 4096) * ROUNDING * (size + constant) + TINY
        constants[b] = (constant - margin) * weight_scale * scale * scale
        if not abs(constants[b]) < np.inf:
            constants[b] = 0.0 if constants[b] > 0.0 else -np.inf
            counts[b, :] = 0.0
            sums[b, :, :] = 0.0
            undecided[b] = everything * weight_scale
            continue
        constants[b] = down(down(constants[b]))
        undecided[b] = left * weight_scale
        for k in range(n_clusters):
            counts[b, k] *= weight_scale
            for d in range(n_features):
                sums[b, k, d] *= weight_scale * scale
