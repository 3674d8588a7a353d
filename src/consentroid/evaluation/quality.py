"""Quality of a clustering over all sites from sums, equal to what scikit-learn gives on pooled rows.

Rows carry the label of their nearest centroid. Two exchanges suffice. In the first each node sends, for each cluster,
the weight n_k, the sum and the sum of squares of its rows relative to the centroid; that gives the cluster means μ_k
and the scatters S_k = Σ_j ‖y_j − μ_k‖² of all nodes together. In the second, knowing (n, μ, S), each node sends the
distances of its rows to μ_k summed by cluster, and the sum of its rows' silhouettes:

    mean squared distance of row y to cluster l:   ‖y − μ_l‖² + S_l / n_l
    and to the others of its own cluster k:        (n_k ‖y − μ_k‖² + S_k) / (n_k − 1)

A weight counts as that many copies of the row.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..core.arrays import Array, nearest, squared_distances
from ..core.errors import InvalidInput
from ..core.problem import NodeData


@dataclass(frozen=True)
class ClusterSums:
    """First exchange: what a node tells about each cluster."""

    counts: Array  # (K,) weight
    sums: Array  # (K, D) relative to the centroid
    squares: Array  # (K,) squared distances to the centroid

    @classmethod
    def of(cls, points: Array, weights: Array, centroids: Array) -> ClusterSums:
        labels = nearest(points, centroids)
        offset = points - centroids[labels]
        counts, sums = np.zeros(len(centroids)), np.zeros(centroids.shape)
        squares = np.zeros(len(centroids))
        np.add.at(counts, labels, weights)
        np.add.at(sums, labels, weights[:, None] * offset)
        np.add.at(squares, labels, weights * (offset**2).sum(axis=1))
        return cls(counts, sums, squares)

    @classmethod
    def combined(cls, parts: Iterable[ClusterSums]) -> ClusterSums:
        parts = list(parts)
        return cls(*(np.sum([getattr(part, name) for part in parts], axis=0) for name in ("counts", "sums", "squares")))


@dataclass(frozen=True)
class Clusters:
    """What all nodes together know after the first exchange; clusters without rows are left out."""

    counts: Array  # (K,)
    means: Array  # (K, D)
    scatters: Array  # (K,) about the means
    filled: NDArray[np.int64]  # numbers of the clusters that have rows

    @classmethod
    def of(cls, total: ClusterSums, centroids: Array) -> Clusters:
        filled = np.nonzero(total.counts > 0)[0]
        counts = total.counts[filled]
        shift = total.sums[filled] / counts[:, None]
        scatters = np.maximum(total.squares[filled] - counts * (shift**2).sum(axis=1), 0.0)
        return cls(counts, centroids[filled] + shift, scatters, filled)


@dataclass(frozen=True)
class SpreadSums:
    """Second exchange."""

    distances: Array  # (K,) Σ ‖y_j − μ_k‖, not squared
    silhouette: float  # Σ of the rows' silhouettes

    @classmethod
    def of(cls, points: Array, weights: Array, centroids: Array, clusters: Clusters) -> SpreadSums:
        position = np.zeros(len(centroids), dtype=int)
        position[clusters.filled] = np.arange(len(clusters.filled))
        labels = position[nearest(points, centroids)]
        squared = squared_distances(points, clusters.means)
        own = squared[np.arange(len(points)), labels]
        distances = np.zeros(len(clusters.counts))
        np.add.at(distances, labels, weights * np.sqrt(own))
        if len(clusters.counts) < 2:
            return cls(distances, math.nan)
        n, scatter = clusters.counts[labels], clusters.scatters[labels]
        within = (n * own + scatter) / np.where(n > 1, n - 1, 1.0)
        others = squared + clusters.scatters / clusters.counts
        others[np.arange(len(points)), labels] = np.inf
        between = others.min(axis=1)
        larger = np.maximum(within, between)
        scores = np.where((n > 1) & (larger > 0), (between - within) / np.where(larger > 0, larger, 1.0), 0.0)
        return cls(distances, float(weights @ scores))

    @classmethod
    def combined(cls, parts: Iterable[SpreadSums]) -> SpreadSums:
        parts = list(parts)
        return cls(np.sum([part.distances for part in parts], axis=0), math.fsum(part.silhouette for part in parts))


@dataclass(frozen=True)
class Quality:
    """NaN where an index is not defined: fewer than two clusters with rows, or as many clusters as rows."""

    inertia: float
    calinski_harabasz: float  # larger is better
    davies_bouldin: float  # smaller is better
    silhouette: float  # squared Euclidean, in [-1, 1], larger is better
    counts: Array  # (K,) weight of each cluster, zeros included


def quality(
    rows: Mapping[str, ArrayLike], centroids: ArrayLike, *, weights: Mapping[str, ArrayLike] | None = None
) -> Quality:
    """All indices for all nodes together; only `ClusterSums` and `SpreadSums` cross a node's border."""
    nodes = [
        NodeData.checked(name, table, None if weights is None else weights.get(name)) for name, table in rows.items()
    ]
    centres = np.array(centroids, dtype=float, ndmin=2)
    for node in nodes:
        if node.n_features != centres.shape[1]:
            raise InvalidInput(
                f"node '{node.name}' has {node.n_features} features, the centroids have {centres.shape[1]}"
            )
    total = ClusterSums.combined(ClusterSums.of(node.points, node.weights, centres) for node in nodes)
    clusters = Clusters.of(total, centres)
    spread = SpreadSums.combined(SpreadSums.of(node.points, node.weights, centres, clusters) for node in nodes)
    return Quality(
        inertia=math.fsum(total.squares),
        calinski_harabasz=_calinski_harabasz(clusters),
        davies_bouldin=_davies_bouldin(clusters, spread),
        silhouette=spread.silhouette / float(clusters.counts.sum()) if _defined(clusters) else math.nan,
        counts=total.counts,
    )


def _defined(clusters: Clusters) -> bool:
    return 2 <= len(clusters.counts) <= clusters.counts.sum() - 1


def _calinski_harabasz(clusters: Clusters) -> float:
    if not _defined(clusters):
        return math.nan
    n, k = float(clusters.counts.sum()), len(clusters.counts)
    centre = clusters.counts @ clusters.means / n
    between = float(clusters.counts @ ((clusters.means - centre) ** 2).sum(axis=1))
    within = math.fsum(clusters.scatters)
    return 1.0 if within == 0 else between * (n - k) / (within * (k - 1))


def _davies_bouldin(clusters: Clusters, spread: SpreadSums) -> float:
    if not _defined(clusters):
        return math.nan
    radius = spread.distances / clusters.counts
    apart = np.sqrt(squared_distances(clusters.means, clusters.means))
    if np.allclose(radius, 0) or np.allclose(apart, 0):
        return 0.0
    apart[apart == 0] = np.inf
    ratio = (radius[:, None] + radius[None, :]) / apart
    return float(ratio.max(axis=1).mean())
