"""What others do, for honest comparison: same rows, same seed, cost recomputed from the rows at the end.

=========  =============================================================================================  ===========
name       method                                                                                         rows leave?
=========  =============================================================================================  ===========
lloyd      Lloyd's steps from counts and sums of all nodes: exactly pooled Lloyd, weighted by rows        no
average    each round every node takes a Lloyd step of its own; the plain mean of the centroids is next   no
k-fed      one round (Dennis, Li, Smith 2021): local clusterings, farthest-first seeds, one Lloyd step    no
pooled     scikit-learn's KMeans (10 k-means++ starts) on all rows in one place                           yes
=========  =============================================================================================  ===========

`lloyd` and `average` start from one exchange of local centroids, clustered by the coordinator. None of the four proves
anything: their gap is known only against a bound from elsewhere, here ours. Bytes count eight for each number that a
method must send; evaluating the final cost is not charged to it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from ..core.arrays import Array, nearest, squared_distances
from ..core.errors import InvalidInput
from ..core.problem import NodeData, Problem, clustering_cost
from ..core.symmetry import canonical
from .local_kmeans import local_kmeans
from .quality import ClusterSums

NUMBER = 8  # bytes


@dataclass(frozen=True)
class BaselineResult:
    """What a method found and what it took; `rows_leave` says whether rows had to leave their node."""

    method: str
    centroids: Array
    cost: float
    rounds: int
    bytes_up: int
    bytes_down: int
    seconds: float
    rows_leave: bool = False


@dataclass
class _Run:
    """A baseline at work: the nodes, and a count of what crosses their borders."""

    nodes: tuple[NodeData, ...]
    n_clusters: int
    seed: int
    max_rounds: int
    tolerance: float
    local_clusters: int
    rounds: int = 0
    numbers_up: int = 0
    numbers_down: int = 0

    def exchange(self, up: int, down: int) -> None:
        """One round in which all nodes together send and receive so many numbers."""
        self.rounds += 1
        self.numbers_up += up
        self.numbers_down += down

    @property
    def n_features(self) -> int:
        return self.nodes[0].n_features


def run_baseline(
    method: str,
    rows: Mapping[str, ArrayLike] | Sequence[ArrayLike],
    n_clusters: int,
    *,
    weights: Mapping[str, ArrayLike] | None = None,
    seed: int = 0,
    max_rounds: int = 300,
    tolerance: float = 1e-9,
    local_clusters: int | None = None,
) -> BaselineResult:
    """Run one of `BASELINES`.

    `tolerance` is the movement of centroids, relative to the domain, that counts as none. `local_clusters` is k-FED's
    number of clusters at each node, k⁽ᶻ⁾: all of them unless given, since nobody knows how the clusters are spread.
    """
    if method not in BASELINES:
        raise InvalidInput(f"unknown baseline '{method}'; choose one of {', '.join(BASELINES)}")
    problem = Problem.checked(rows, n_clusters, weights=weights)
    width = float(np.max(problem.domain.upper - problem.domain.lower))
    run = _Run(
        problem.nodes, n_clusters, seed, max_rounds, tolerance * max(width, 1e-300), local_clusters or n_clusters
    )
    started = time.perf_counter()
    centroids = canonical(BASELINES[method](run))
    return BaselineResult(
        method=method,
        centroids=centroids,
        cost=sum(clustering_cost(node.points, node.weights, centroids) for node in problem.nodes),
        rounds=run.rounds,
        bytes_up=NUMBER * run.numbers_up,
        bytes_down=NUMBER * run.numbers_down,
        seconds=time.perf_counter() - started,
        rows_leave=method == "pooled",
    )


def _federated_lloyd(run: _Run) -> Array:
    centroids = _start_from_local_centroids(run)
    message = len(run.nodes) * run.n_clusters * run.n_features
    while run.rounds < run.max_rounds:
        run.exchange(up=message + len(run.nodes) * (run.n_clusters + 1), down=message)
        total = ClusterSums.combined(ClusterSums.of(node.points, node.weights, centroids) for node in run.nodes)
        new = centroids + total.sums / np.where(total.counts > 0, total.counts, np.inf)[:, None]
        if np.max(np.abs(new - centroids)) <= run.tolerance:
            break
        centroids = new
    return centroids


def _plain_average(run: _Run) -> Array:
    centroids = _start_from_local_centroids(run)
    message = len(run.nodes) * run.n_clusters * run.n_features
    while run.rounds < run.max_rounds:
        run.exchange(up=message, down=message)
        new = np.mean([_lloyd_step(node, centroids) for node in run.nodes], axis=0)
        if np.max(np.abs(new - centroids)) <= run.tolerance:
            break
        centroids = new
    return centroids


def _k_fed(run: _Run) -> Array:
    local = [_awasthi_sheffet(node, run.local_clusters, run.seed + i) for i, node in enumerate(run.nodes)]
    run.exchange(up=sum(part.size for part in local), down=0)
    centres = np.concatenate(local)
    seeds = local[0]
    while len(seeds) < run.n_clusters:
        farthest = squared_distances(centres, seeds).min(axis=1).argmax()
        seeds = np.concatenate([seeds, centres[farthest : farthest + 1]])
    labels = nearest(centres, seeds)
    return np.array([centres[labels == k].mean(axis=0) if np.any(labels == k) else s for k, s in enumerate(seeds)])


def _pooled(run: _Run) -> Array:
    points = np.concatenate([node.points for node in run.nodes])
    weights = np.concatenate([node.weights for node in run.nodes])
    run.exchange(up=points.size, down=0)
    return local_kmeans(points, weights, run.n_clusters, run.seed)


BASELINES: dict[str, Callable[[_Run], Array]] = {
    "lloyd": _federated_lloyd,
    "average": _plain_average,
    "k-fed": _k_fed,
    "pooled": _pooled,
}


def _start_from_local_centroids(run: _Run) -> Array:
    """Every node clusters its own rows and sends centroids with weights; the coordinator clusters those."""
    local, mass = [], []
    for i, node in enumerate(run.nodes):
        centres = local_kmeans(node.points, node.weights, run.n_clusters, run.seed + i)
        local.append(centres)
        mass.append(np.bincount(nearest(node.points, centres), node.weights, len(centres)))
    run.exchange(up=sum(part.size + len(part) for part in local), down=0)
    found = local_kmeans(np.concatenate(local), np.concatenate(mass), run.n_clusters, run.seed)
    while len(found) < run.n_clusters:  # fewer distinct local centroids than clusters: the spare ones stay empty
        found = np.concatenate([found, found[:1]])
    return found


def _lloyd_step(node: NodeData, centroids: Array) -> Array:
    """One step on a node's own rows; a cluster without rows there keeps its centroid."""
    own = ClusterSums.of(node.points, node.weights, centroids)
    return np.asarray(centroids + own.sums / np.where(own.counts > 0, own.counts, np.inf)[:, None])


def _awasthi_sheffet(node: NodeData, n_clusters: int, seed: int) -> Array:
    """The local clustering of k-FED: seed in the leading singular space, keep the clear rows, then Lloyd."""
    points = node.points[node.weights > 0]
    weights = node.weights[node.weights > 0]
    rank = min(n_clusters, *points.shape)
    u, s, vt = np.linalg.svd(points, full_matrices=False)
    projected = (u[:, :rank] * s[:rank]) @ vt[:rank]
    seeds = local_kmeans(projected, weights, n_clusters, seed)
    distance = np.sqrt(squared_distances(projected, seeds))
    centroids = []
    for r in range(len(seeds)):
        clear = np.all(3 * distance[:, [r]] <= np.delete(distance, r, axis=1), axis=1)
        chosen = clear if clear.any() else distance.argmin(axis=1) == r
        centroids.append(np.average(points[chosen], axis=0, weights=weights[chosen]) if chosen.any() else seeds[r])
    found = np.array(centroids)
    for _ in range(100):
        new = _lloyd_step(node, found)
        if np.array_equal(new, found):
            break
        found = new
    return found
