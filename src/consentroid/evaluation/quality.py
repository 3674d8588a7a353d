"""Quality of a clustering over all nodes from sums, equal to what scikit-learn gives on pooled rows.

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
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..core.arrays import Array
from ..core.errors import InvalidInput
from ..core.problem import NodeData
from ..legacy.certificate import relative_gap


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
        squared = _squared_distances(points, clusters.means)
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


def nearest(points: Array, centroids: Array) -> NDArray[np.int64]:
    """Number of the nearest centroid of each row, the first one on ties."""
    return _squared_distances(points, centroids).argmin(axis=1)


def _squared_distances(points: Array, centroids: Array) -> Array:
    # Differences rather than ‖y‖² − 2⟨y, m⟩ + ‖m‖²: rows far from zero keep their digits. One column a cluster bounds
    # the memory by the table's own size.
    return np.stack([((points - centroid) ** 2).sum(axis=1) for centroid in centroids], axis=1)


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
    apart = np.sqrt(_squared_distances(clusters.means, clusters.means))
    if np.allclose(radius, 0) or np.allclose(apart, 0):
        return 0.0
    apart[apart == 0] = np.inf
    ratio = (radius[:, None] + radius[None, :]) / apart
    return float(ratio.max(axis=1).mean())


@dataclass(frozen=True)
class Choice:
    """What is known about one number of clusters."""

    n_clusters: int
    lower: float  # proven: no clustering with so many clusters costs less
    upper: float  # attained
    gap: float
    certified: bool
    quality: Quality


@dataclass(frozen=True)
class Selection:
    """One `Choice` for each K; the truth about the least inertia lies between `lower` and `upper`."""

    choices: tuple[Choice, ...]

    def best(self, index: str = "silhouette") -> Choice:
        """The choice with the best index: silhouette, calinski_harabasz (largest) or davies_bouldin (smallest)."""
        if index not in ("silhouette", "calinski_harabasz", "davies_bouldin"):
            raise InvalidInput(f"unknown index '{index}'; choose silhouette, calinski_harabasz or davies_bouldin")
        sign = -1.0 if index == "davies_bouldin" else 1.0
        defined = [choice for choice in self.choices if not math.isnan(getattr(choice.quality, index))]
        if not defined:
            raise InvalidInput(f"{index} needs at least two clusters; include a larger number of clusters")
        return max(defined, key=lambda choice: sign * getattr(choice.quality, index))

    def plot(self, path: str | Path) -> Path:
        """The elbow with its band of uncertainty, and the silhouette beside it."""
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        figure = Figure(figsize=(9, 3.6), layout="constrained")
        elbow, index = figure.subplots(1, 2)
        k = [choice.n_clusters for choice in self.choices]
        lower, upper = [c.lower for c in self.choices], [c.upper for c in self.choices]
        elbow.fill_between(k, lower, upper, color="#3366cc", alpha=0.2, lw=0, label="what is not known")
        elbow.plot(k, upper, color="#dc5b2e", marker="o", label="attained")
        elbow.plot(k, lower, color="#3366cc", marker="o", ms=4, label="proven lower bound")
        elbow.set(xlabel="number of clusters", ylabel="inertia", xticks=k, ylim=(0, None))
        elbow.legend()
        index.plot(k, [choice.quality.silhouette for choice in self.choices], color="#2c9c69", marker="o")
        index.set(xlabel="number of clusters", ylabel="silhouette (squared Euclidean)", xticks=k)
        for axes in (elbow, index):
            axes.spines[["top", "right"]].set_visible(False)
        FigureCanvasAgg(figure).print_figure(str(path), dpi=150)
        return Path(path)


def select_k(
    rows: Mapping[str, ArrayLike],
    n_clusters: Iterable[int],
    *,
    weights: Mapping[str, ArrayLike] | None = None,
    **options: Any,
) -> Selection:
    """Cluster with each number of clusters; `options` go to `fit`, and `time_limit` holds for each number alone.

    More clusters never cost more, so a cost attained with fewer clusters bounds those with more from above, and a bound
    proven for more clusters bounds those with fewer from below: the band uses both.
    """
    from ..fitting import fit

    found = [(k, fit(rows, k, weights=weights, **options)) for k in sorted(set(n_clusters))]
    if not found:
        raise InvalidInput("select_k needs at least one number of clusters, as in range(2, 7)")
    uppers = np.minimum.accumulate([result.upper_bound for _, result in found])
    lowers = np.maximum.accumulate([result.lower_bound for _, result in found][::-1])[::-1]
    choices = []
    for (k, result), lower, upper in zip(found, lowers.tolist(), uppers.tolist()):
        gap = relative_gap(lower, upper)
        judged = quality(rows, result.centroids, weights=weights)
        choices.append(Choice(k, lower, upper, gap, gap <= result.settings.gap, judged))
    return Selection(tuple(choices))
