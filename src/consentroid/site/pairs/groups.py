"""Groups of neighbouring rows, for triangles: with very many rows there are far too many triangles of single rows."""

from __future__ import annotations

import heapq

import numpy as np
from numpy.typing import NDArray

from ...core.arrays import Array

LLOYD = 3  # steps of each division
ALIKE = 1e-20  # of the spread of all rows: rounding


def grouped(y: Array, most: int) -> NDArray[np.int64]:
    """The group of each row; the one that is spread most is divided in two until there are as many as asked for."""
    n = len(y)
    group = np.arange(n, dtype=np.int64)
    if n <= most:
        return group
    group[:] = 0
    rows = np.arange(n)
    total = _spread(y)
    waiting: list[tuple[float, int, NDArray[np.int64]]] = [(-total, 0, rows)]
    for number in range(1, most):
        spread, old, rows = heapq.heappop(waiting)
        if -spread <= ALIKE * total:  # all rows of a group are
            break
        beyond = _divided(y[rows])
        group[rows[beyond]] = number
        for name, part in ((old, rows[~beyond]), (number, rows[beyond])):
            heapq.heappush(waiting, (-_spread(y[part]), name, part))
    return group


def _spread(y: Array) -> float:
    return float(((y - y.mean(axis=0)) ** 2).sum())


def _divided(y: Array) -> NDArray[np.bool_]:
    """Two parts, neither empty: across the principal axis, then a few steps of Lloyd's method."""
    apart = y - y.mean(axis=0)
    _, vectors = np.linalg.eigh(apart.T @ apart)
    beyond = apart @ vectors[:, -1] > 0.0
    for _ in range(LLOYD):
        if beyond.all() or not beyond.any():
            break
        low, high = apart[~beyond].mean(axis=0), apart[beyond].mean(axis=0)
        after = apart @ (high - low) > 0.5 * (high @ high - low @ low)
        if after.all() or not after.any():
            break
        beyond = after
    if beyond.all() or not beyond.any():  # rounding: rows that hardly differ
        beyond = np.arange(len(y)) >= len(y) // 2
    return np.asarray(beyond)
