"""Rows dealt into anticlusters: parts that are as like each other as can be (Späth 1986).

K clusters of all rows cost no less than K clusters of each part by itself, so bounds of parts add up, and pairs within
parts are far fewer than pairs of all rows. What is lost is by how much the parts' own best clusterings cost less than
the common one: next to nothing if every part has the same mean of every cluster, and looks like the whole besides, so
that it has no better clustering of its own. So neighbours are dealt to different parts, then rows change places with
near ones until means agree.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ...core.arrays import Array, nearest
from ..kernels.dealing import exchange

SWEEPS = 200  # of exchanges
REACH = 2  # times the number of parts: how far apart in the order of neighbours two rows may change places


def deal(x: Array, w: Array, centroids: Array, most: int) -> list[NDArray[np.int64]]:
    """The rows of each anticluster, none with more than `most`, as many of each as of the others or one more."""
    n = len(x)
    n_parts = -(-n // most)
    if n_parts == 1:
        return [np.arange(n)]
    rng = np.random.default_rng(0)
    cluster = nearest(x, centroids)
    clusters = [_neighbours(x, np.flatnonzero(cluster == k), n_parts) for k in range(len(centroids))]
    rounds = rng.permuted(np.tile(np.arange(n_parts), (-(-n // n_parts), 1)), axis=1).ravel()
    dealt = np.empty(n, np.int64)
    dealt[np.concatenate(clusters)] = rounds[:n]
    for order in clusters:
        if len(order) > 1:
            _balance(x, w, order, dealt, n_parts, rng)
    return [np.flatnonzero(dealt == part) for part in range(n_parts)]


def _neighbours(x: Array, rows: NDArray[np.int64], few: int) -> NDArray[np.int64]:
    """The rows, halved across their principal axis again and again: those that are alike stand together."""
    done, waiting = [], [rows]
    while waiting:
        rows = waiting.pop()
        if len(rows) <= few:
            done.append(rows)
            continue
        apart = x[rows] - x[rows].mean(axis=0)
        scatter = apart.T @ apart
        if not np.isfinite(scatter).all():  # rows so far apart that squares overflow: they stay in their order
            done.append(rows)
            continue
        _, vectors = np.linalg.eigh(scatter)
        along = rows[np.argsort(apart @ vectors[:, -1], kind="stable")]
        waiting += [along[len(rows) // 2 :], along[: len(rows) // 2]]
    return np.concatenate(done)


def _balance(
    x: Array, w: Array, order: NDArray[np.int64], dealt: NDArray[np.int64], n_parts: int, rng: np.random.Generator
) -> None:
    """Exchanges until each anticluster has the same mean of these rows, or nearly."""
    offsets = np.zeros_like(x)
    offsets[order] = w[order, None] * (x[order] - np.average(x[order], axis=0, weights=w[order]))
    sums = np.zeros((n_parts, x.shape[1]))
    np.add.at(sums, dealt[order], offsets[order])
    for _ in range(SWEEPS):
        exchange(offsets, order, rng.integers(1, REACH * n_parts + 1, len(order)), dealt, sums)
