"""The clustering problem: nodes with private rows, a domain box for every centroid, K clusters.

    min_m  Σ_i f_i(m),   f_i(m) = Σ_{j∈J_i} w_j min_k ‖y_j − m_k‖²,   m_k ∈ domain     (`Clustering_MILP_Central`)

The domain is the paper's box 𝒴 (`big_M`), taken over all nodes: it loses nothing, because optimal centroids lie in
the hull of the rows, and without it a cluster that is empty at a node makes that node's priced problem unbounded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from .arrays import Array, squared_distances
from .errors import InvalidInput


@dataclass(frozen=True)
class Domain:
    """An axis-parallel box that contains every row and every centroid."""

    lower: Array
    upper: Array

    def __post_init__(self) -> None:
        lower, upper = (np.array(side, dtype=float, ndmin=1) for side in (self.lower, self.upper))
        if lower.shape != upper.shape or lower.ndim != 1:
            raise InvalidInput(
                f"domain bounds have shapes {lower.shape} and {upper.shape}; give one number per feature"
            )
        if not (np.isfinite(lower).all() and np.isfinite(upper).all()):
            raise InvalidInput("domain bounds must be finite numbers")
        if np.any(lower > upper):
            d = int(np.argmax(lower > upper))
            raise InvalidInput(f"domain of feature {d} is empty: lower {lower[d]:g} exceeds upper {upper[d]:g}")
        object.__setattr__(self, "lower", lower)
        object.__setattr__(self, "upper", upper)

    @property
    def n_features(self) -> int:
        return len(self.lower)

    def boxes(self, n_clusters: int) -> Array:
        """The domain once per cluster, shape (2, K, D)."""
        return np.stack([np.tile(self.lower, (n_clusters, 1)), np.tile(self.upper, (n_clusters, 1))])

    def check(self, name: str, points: Array) -> None:
        """Raise an error that names the first row outside."""
        outside = (points < self.lower) | (points > self.upper)
        if outside.any():
            j, d = (int(i[0]) for i in np.nonzero(outside))
            raise InvalidInput(
                f"node '{name}': row {j + 1} has {points[j, d]:g} in feature {d}, outside the domain "
                f"[{self.lower[d]:g}, {self.upper[d]:g}]; widen the domain or leave the row out"
            )


@dataclass(frozen=True)
class NodeData:
    """The private rows of one node."""

    name: str
    points: Array
    weights: Array

    @classmethod
    def checked(cls, name: str, points: ArrayLike, weights: ArrayLike | None = None) -> NodeData:
        """Validate rows; every error names the node."""
        try:
            rows = np.array(points, dtype=float)
        except (TypeError, ValueError) as error:
            raise InvalidInput(f"node '{name}': rows are not numeric ({error}); encode or drop such columns") from None
        if rows.ndim != 2:
            raise InvalidInput(f"node '{name}': rows must form a table, got an array of {rows.ndim} dimension(s)")
        if len(rows) == 0:
            raise InvalidInput(f"node '{name}' has no rows; leave the node out")
        if rows.shape[1] == 0:
            raise InvalidInput(f"node '{name}' has rows without features")
        if not np.isfinite(rows).all():
            j, d = (int(i[0]) for i in np.nonzero(~np.isfinite(rows)))
            raise InvalidInput(
                f"node '{name}': row {j + 1} has {rows[j, d]} in feature {d}; impute or drop rows that are not finite"
            )
        try:
            mass = np.ones(len(rows)) if weights is None else np.array(weights, dtype=float)
        except (TypeError, ValueError) as error:
            raise InvalidInput(f"node '{name}': weights are not numeric ({error})") from None
        if mass.shape != (len(rows),):
            raise InvalidInput(f"node '{name}': {mass.size} weights for {len(rows)} rows")
        if not np.isfinite(mass).all() or np.any(mass < 0):
            raise InvalidInput(f"node '{name}': weights must be finite and not negative, the least is {mass.min()}")
        if not np.any(mass > 0):
            raise InvalidInput(f"node '{name}': all weights are zero; leave the node out")
        return cls(name, np.ascontiguousarray(rows), np.ascontiguousarray(mass))

    @property
    def n_features(self) -> int:
        return int(self.points.shape[1])


@dataclass(frozen=True)
class Problem:
    """All nodes on one machine: what tests, benchmarks and in-process runs start from."""

    nodes: tuple[NodeData, ...]
    n_clusters: int
    domain: Domain

    @classmethod
    def checked(
        cls,
        rows: Mapping[str, ArrayLike] | Sequence[ArrayLike],
        n_clusters: int,
        domain: Domain | None = None,
        weights: Mapping[str, ArrayLike] | None = None,
    ) -> Problem:
        """Validate everything at once; a sequence of tables gets the names node1, node2, ..."""
        if not isinstance(rows, Mapping):
            rows = {f"node{i + 1}": table for i, table in enumerate(rows)}
        if not rows:
            raise InvalidInput("a problem needs at least one node")
        if weights is not None and not isinstance(weights, Mapping):
            raise InvalidInput("give weights as a mapping from node to the weights of its rows")
        for name in weights or {}:
            if name not in rows:
                raise InvalidInput(f"weights name an unknown node '{name}'; there are {', '.join(map(str, rows))}")
        nodes = tuple(NodeData.checked(n, t, None if weights is None else weights.get(n)) for n, t in rows.items())
        check_n_clusters(n_clusters)
        first = nodes[0]
        for node in nodes[1:]:
            if node.n_features != first.n_features:
                raise InvalidInput(
                    f"node '{node.name}' has {node.n_features} features, node '{first.name}' has {first.n_features}"
                )
        pooled = np.concatenate([node.points[node.weights > 0] for node in nodes])
        distinct = count_distinct(pooled, int(n_clusters))
        if distinct < n_clusters:
            raise InvalidInput(f"n_clusters={n_clusters} exceeds the {distinct} distinct rows of all nodes")
        if domain is None:
            domain = Domain(pooled.min(axis=0), pooled.max(axis=0))
        if domain.n_features != first.n_features:
            raise InvalidInput(f"the domain has {domain.n_features} features, the rows have {first.n_features}")
        for node in nodes:
            domain.check(node.name, node.points[node.weights > 0])
        return cls(nodes, int(n_clusters), domain)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(node.name for node in self.nodes)

    @property
    def n_features(self) -> int:
        return self.domain.n_features

    @property
    def pooled(self) -> NodeData:
        """All rows in one table, for central comparisons and oracles only."""
        points = np.concatenate([node.points for node in self.nodes])
        return NodeData("pooled", points, np.concatenate([node.weights for node in self.nodes]))


def count_distinct(points: Array, most: int) -> int:
    """How many distinct rows there are, at most `most`: mostly the first few tell."""
    size = max(1000, 4 * most)
    while True:
        found = len(np.unique(points[:size], axis=0))
        if found >= most or size >= len(points):
            return min(found, most)
        size *= 8


def check_n_clusters(n_clusters: int) -> None:
    try:
        good = int(n_clusters) == n_clusters and n_clusters >= 1
    except (TypeError, ValueError, OverflowError):
        good = False
    if not good:
        raise InvalidInput(f"n_clusters={n_clusters} must be an integer of at least 1")


def clustering_cost(points: Array, weights: Array, centroids: Array) -> float:
    """f_i(m) of `Node_Objective`, from the rows."""
    return float(weights @ squared_distances(points, centroids).min(axis=1))
