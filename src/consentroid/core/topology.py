"""Consensus between nodes: topologies, λ → prices, residual (`Consensus_Matrix_Compact`).

| paper        | code          | shape      | meaning                                                        |
|--------------|---------------|------------|----------------------------------------------------------------|
| N_s, n_y, K  | `N`, `D`, `K` |            | nodes, features, clusters                                      |
| y_j, j ∈ J_i | `points`      | (J_i, D)   | private rows of node i                                         |
| m_ik         | `centroids`   | (K, D)     | node i's copy of the centroids                                 |
| λ            | `lam`         | (E, K, D)  | dual variables, one block a consensus edge                     |
| A_iᵀ λ       | `price`       | (K, D)     | what node i pays per unit of each centroid; prices sum to 0    |
| 𝒴            | `domain`      | (2, D)     | the box that holds every centroid                              |
| d(λ)         | `value`/`bound` |          | dual function: attained value and proven bound                 |
| z_i          | `cost`        |            | node i's cost at candidate centroids                           |
| g            | `subgradient` | as `lam`   | consensus residual Σ_i A_i m_i                                 |

An edge (i, j) states m_i − m_j = 0, so A_i carries +1 and A_j −1 in its block. Any connected graph makes the nodes
agree, and every connected graph reaches the same set of prices {p : Σ_i p_i = 0}: the best bound does not depend on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from .arrays import Array
from .errors import InvalidInput
from .symmetry import round_to_grid

Edge = tuple[int, int]

NAMED: dict[str, object] = {
    "line": lambda n: [(i, i + 1) for i in range(n - 1)],
    "ring": lambda n: [(i, (i + 1) % n) for i in range(n)] if n > 2 else [(0, 1)][: n - 1],
    "star": lambda n: [(0, i) for i in range(1, n)],
    "complete": lambda n: [(i, j) for i in range(n) for j in range(i + 1, n)],
}


@dataclass(frozen=True)
class Topology:
    """A connected graph over the nodes; `line` is the paper's."""

    n_nodes: int
    edges: tuple[Edge, ...]

    @classmethod
    def of(cls, kind: str | Sequence[Edge], n_nodes: int) -> Topology:
        """`kind` is one of line, ring, star, complete, or a sequence of pairs of node numbers."""
        if isinstance(kind, str):
            if kind not in NAMED:
                raise InvalidInput(f"unknown topology '{kind}'; choose one of {', '.join(NAMED)} or give edges")
            edges = NAMED[kind](n_nodes)  # type: ignore[operator]
        else:
            edges = [(int(i), int(j)) for i, j in kind]
        return cls(n_nodes, tuple(edges))

    def __post_init__(self) -> None:
        for i, j in self.edges:
            if i == j or not (0 <= i < self.n_nodes and 0 <= j < self.n_nodes):
                raise InvalidInput(f"edge ({i}, {j}) does not join two of the nodes 0..{self.n_nodes - 1}")
        heads, tails = np.array(self.edges, dtype=int).reshape(-1, 2).T
        graph = coo_array((np.ones(len(heads)), (heads, tails)), shape=(self.n_nodes, self.n_nodes))
        parts, label = connected_components(graph, directed=False)
        if parts > 1:
            apart = [int(i) for i in np.nonzero(label != label[0])[0]]
            raise InvalidInput(f"the topology is not connected: nodes {apart} cannot be reached from node 0")

    @property
    def n_edges(self) -> int:
        return len(self.edges)

    @property
    def incidence(self) -> Array:
        """(N, E): column e has +1 at the first node of edge e and −1 at the second."""
        matrix = np.zeros((self.n_nodes, self.n_edges))
        for e, (i, j) in enumerate(self.edges):
            matrix[i, e], matrix[j, e] = 1.0, -1.0
        return matrix

    def exact(self, lam: Array) -> Array:
        """λ on the grid where prices are exact and sum to exactly zero; weak duality then holds to the last bit."""
        return round_to_grid(lam)

    def prices(self, lam: Array) -> Array:
        """A_iᵀ λ for every node, shape (N, K, D)."""
        return np.tensordot(self.incidence, lam, axes=1)

    def residual(self, centroids: Array) -> Array:
        """g = Σ_i A_i m_i (`Subgradient_Consensus`) from the nodes' centroids (N, K, D), shape (E, K, D)."""
        return np.tensordot(self.incidence.T, centroids, axes=1)

    def lam_for(self, prices: Array) -> Array:
        """A λ whose prices are the given ones (they must sum to zero); least squares over the edges."""
        flat = np.linalg.lstsq(self.incidence, prices.reshape(self.n_nodes, -1), rcond=None)[0]
        return np.asarray(flat.reshape(self.n_edges, *prices.shape[1:]))


def balanced(prices: Array) -> Array:
    """The nearest prices (N, K, D) that sum to exactly zero over the nodes, so that weak duality needs no tolerance."""
    if len(prices) == 1:
        return np.zeros_like(prices)
    result = round_to_grid(prices - prices.mean(axis=0))
    result[-1] = -result[:-1].sum(axis=0)  # exact: all entries lie on one grid
    return result
