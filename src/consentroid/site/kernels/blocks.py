"""Order rows so that neighbours stand together: halve along the widest coordinate until the parts are small."""

from __future__ import annotations

import numpy as np

from ...core.compile import entry, kernel


@kernel
def select(keys, order, first, last, place):
    """Reorder order[first:last] so that the key at `place` is where sorting would put it (Hoare's quickselect)."""
    low, high = first, last - 1
    while low < high:
        pivot = keys[order[(low + high) // 2]]
        i, j = low, high
        while i <= j:
            while keys[order[i]] < pivot:
                i += 1
            while keys[order[j]] > pivot:
                j -= 1
            if i <= j:
                order[i], order[j] = order[j], order[i]
                i += 1
                j -= 1
        if place <= j:
            high = j
        elif place >= i:
            low = i
        else:
            return


@entry
def halve(y, most, order, starts):
    """Fill `order` (0..n at first) and the starts of the parts; how many parts there are."""
    n, n_features = y.shape
    stack = np.empty((128, 2), np.int64)
    stack[0, 0], stack[0, 1] = 0, n
    depth, parts = 1, 0
    while depth > 0:
        depth -= 1
        first, last = stack[depth, 0], stack[depth, 1]
        if last - first <= most:
            starts[parts] = first
            parts += 1
            continue
        widest, axis = -1.0, 0
        for d in range(n_features):
            low, high = np.inf, -np.inf
            for i in range(first, last):
                low, high = min(low, y[order[i], d]), max(high, y[order[i], d])
            if high - low > widest:
                widest, axis = high - low, d
        middle = first + (last - first) // 2
        select(y[:, axis], order, first, last, middle)
        stack[depth, 0], stack[depth, 1] = middle, last
        stack[depth + 1, 0], stack[depth + 1, 1] = first, middle
        depth += 2
    starts[parts] = n
    return parts
