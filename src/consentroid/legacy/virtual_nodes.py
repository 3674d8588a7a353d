"""Splitting rows of one machine into virtual nodes whose bounds add up to a tight one.

Without prices the bound of N nodes is Σ_i min_m f_i(m). Let c_k be the centroid of cluster k over all rows, and n_ik
and c_ik weight and mean of its rows in part i. A part that keeps the clusters as they are loses

    Σ_k n_ik ‖c_ik − c_k‖²

against the pooled cost, so the parts should be *anticlusters*: alike within each cluster, not compact. Each cluster is
dealt out in hands of N neighbouring rows, one row a part; then rows change places between parts while that sum falls.
Any split gives a valid bound; a good one gives a far tighter bound.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..core.arrays import Array
from ..core.errors import InvalidInput
from ..core.problem import NodeData, Problem
from ..evaluation.local_kmeans import local_kmeans
from ..evaluation.quality import nearest

Labels = NDArray[np.int64]

CANDIDATES = 64
"""Rows of other parts that are tried as partners of one row; more gains little and costs time."""


def virtual_nodes(
    rows: ArrayLike,
    n_parts: int,
    *,
    centroids: ArrayLike | None = None,
    n_clusters: int = 1,
    weights: ArrayLike | None = None,
    passes: int = 4,
    seed: int = 0,
) -> Labels:
    """Part number of each row: sizes differ by at most one, and each cluster's parts have nearly the same mean.

    The clusters are those of `centroids`, or of scikit-learn's K-means with `n_clusters` if none are given.
    """
    data = NodeData.checked("rows", rows, weights)
    n_rows = len(data.points)
    if int(n_parts) != n_parts or not 1 <= n_parts <= n_rows:
        raise InvalidInput(f"n_parts={n_parts} must be an integer from 1 to the number of rows, {n_rows}")
    rng = np.random.default_rng(seed)
    clusters = nearest(data.points, _centroids(data, centroids, n_clusters, seed))
    part = np.empty(n_rows, dtype=np.int64)
    dealt = 0
    for k in np.unique(clusters):
        members = np.nonzero(clusters == k)[0]
        order = members[_walk(data.points[members])]
        part[order] = _deal(len(order), int(n_parts), dealt, rng)
        dealt += len(order)
        for _ in range(passes):
            if not _exchange(data.points[members], data.weights[members], part, members, int(n_parts), rng):
                break
    return part


def _centroids(data: NodeData, centroids: ArrayLike | None, n_clusters: int, seed: int) -> Array:
    if centroids is not None:
        return np.array(centroids, dtype=float, ndmin=2)
    return local_kmeans(data.points, data.weights, n_clusters, seed)


def _walk(points: Array) -> Labels:
    """An order in which neighbours are close: halve along the widest feature until few are left."""
    order = np.arange(len(points))
    pending, ordered = [order], []
    while pending:
        part = pending.pop()
        if len(part) <= 2:
            ordered.append(part)
            continue
        feature = int(np.argmax(np.ptp(points[part], axis=0)))
        part = part[np.argsort(points[part, feature], kind="stable")]
        pending += [part[len(part) // 2 :], part[: len(part) // 2]]
    return np.concatenate(ordered)


def _deal(n_rows: int, n_parts: int, dealt: int, rng: np.random.Generator) -> Labels:
    """Parts for consecutive rows: each hand of `n_parts` rows is one permutation, continued from earlier clusters."""
    # Hands start where the last cluster stopped, so that the parts' sizes never differ by more than one.
    start = np.arange(dealt % n_parts, n_parts) if dealt % n_parts else np.empty(0, dtype=np.int64)
    n_hands = -(-max(n_rows - len(start), 0) // n_parts)
    hands = rng.permuted(np.tile(np.arange(n_parts), (n_hands, 1)), axis=1)
    if n_hands and (n_rows - len(start)) % n_parts:
        hands[-1] = np.arange(n_parts)  # a hand that is cut short leaves the last parts for the next cluster
    return np.concatenate([start, hands.ravel()])[:n_rows]


def _exchange(
    points: Array, weights: Array, part: Labels, members: Labels, n_parts: int, rng: np.random.Generator
) -> bool:
    """One pass of swaps between parts that lower Σ_i n_i ‖c_i − c‖² of one cluster; whether any was found.

    Only rows of equal weight change places: n_i then stays, and the sum changes through the parts' sums alone.
    """
    if n_parts < 2 or len(members) < 2:
        return False
    centred = weights[:, None] * (points - (weights @ points) / weights.sum())
    mine = part[members]
    mass = np.bincount(mine, weights, n_parts)
    sums = np.zeros((n_parts, points.shape[1]))
    np.add.at(sums, mine, centred)
    inverse = 1.0 / np.where(mass > 0, mass, 1.0)
    improved = False
    for j in rng.permutation(len(members)):
        others = rng.integers(len(members), size=min(CANDIDATES, len(members)))
        others = others[(mine[others] != mine[j]) & (weights[others] == weights[j])]
        if not len(others):
            continue
        a, b = mine[j], mine[others]
        step = centred[others] - centred[j]
        # ‖s + δ‖² − ‖s‖² for the part that gains δ and for the one that loses it.
        change = inverse[a] * (step * (2 * sums[a] + step)).sum(axis=1)
        change += inverse[b] * (step * (step - 2 * sums[b])).sum(axis=1)
        best = int(np.argmin(change))
        if change[best] < -1e-12 * max(float((centred**2).sum()), 1e-300):
            partner = others[best]
            sums[a] += step[best]
            sums[mine[partner]] -= step[best]
            mine[j], mine[partner] = mine[partner], mine[j]
            improved = True
    part[members] = mine
    return improved


def split_nodes(
    rows: Mapping[str, ArrayLike],
    n_clusters: int,
    *,
    most_rows: int = 20,
    weights: Mapping[str, ArrayLike] | None = None,
    seed: int = 0,
) -> tuple[dict[str, Array], dict[str, Array] | None]:
    """Let every node with more than `most_rows` rows appear as several, named node/1, node/2, ...

    Each node can do this alone and before anything is sent: the clusters within which its parts are alike are its own.
    Small problems are solved in milliseconds, and what the split costs in the bound, prices and boxes win back. A node
    discloses as much as that many small nodes would.
    """
    if most_rows < 1:
        raise InvalidInput(f"most_rows={most_rows} must be at least 1")
    tables: dict[str, Array] = {}
    masses: dict[str, Array] = {}
    for name, table in rows.items():
        data = NodeData.checked(name, table, None if weights is None else weights.get(name))
        n_parts = -(-len(data.points) // most_rows)
        if n_parts == 1:
            tables[name], masses[name] = data.points, data.weights
            continue
        part = virtual_nodes(data.points, n_parts, n_clusters=n_clusters, weights=data.weights, seed=seed)
        for i in range(n_parts):
            if np.any(data.weights[part == i] > 0):
                tables[f"{name}/{i + 1}"], masses[f"{name}/{i + 1}"] = data.points[part == i], data.weights[part == i]
    return tables, None if weights is None else masses


def split_problem(problem: Problem, most_rows: int) -> tuple[Problem, tuple[str, ...]]:
    """The same problem with every large node as several small ones, and the owner of each of them."""
    rows = {node.name: node.points for node in problem.nodes}
    weights = {node.name: node.weights for node in problem.nodes}
    parts, masses = split_nodes(rows, problem.n_clusters, most_rows=most_rows, weights=weights)
    assert masses is not None
    nodes = tuple(NodeData(name, points, masses[name]) for name, points in parts.items())
    owners = tuple(name if name in rows else name.rpartition("/")[0] for name in parts)
    return Problem(nodes, problem.n_clusters, problem.domain), owners


def split_again(name: str, rows: Array, names: Sequence[str], n_clusters: int) -> dict[str, Array]:
    """The parts of a node by the names they have in a certificate: the split follows from the rows alone."""
    parts = [other for other in names if other.rpartition("/")[0] == name]
    if name in names or not parts:
        return {name: rows}
    part = virtual_nodes(rows, len(parts), n_clusters=n_clusters)
    return {f"{name}/{i + 1}": rows[part == i] for i in range(len(parts))}
