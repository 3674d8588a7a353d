"""A kd-tree over a node's rows: one look settles all rows of a cell."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...core.compile import bare, entry


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
