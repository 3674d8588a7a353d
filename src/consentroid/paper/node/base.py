"""The node problem and what every solver of it must report.

    min_m  Σ_j w_j min_k ‖y_j − m_k‖² + Σ_k ⟨price_k, m_k⟩      (`Individual_Clustering_Problem`)
    s.t.   boxes[0, k] ≤ m_k ≤ boxes[1, k],  symmetry rule

Solvers know nothing of messages; `paper/worker.py` turns what they return into replies.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from ...core.arrays import Array
from ...core.problem import clustering_cost
from ...core.symmetry import Symmetry


class Status(StrEnum):
    OPTIMAL = "optimal"  # the gap asked for was reached
    TIME_LIMIT = "time limit"
    NODE_LIMIT = "node limit"
    INFEASIBLE = "infeasible"  # boxes and rule exclude each other; bound is +inf


@dataclass(frozen=True)
class Budget:
    """When a solver may stop early. Whenever it does, bound ≤ optimum ≤ value."""

    seconds: float = math.inf
    gap: float = 1e-9  # (value − bound) / max(|value|, cost at the centroids)
    search_nodes: int = 2**60


@dataclass(frozen=True)
class NodeProblem:
    points: Array  # (J, D)
    weights: Array  # (J,)
    price: Array  # (K, D)
    boxes: Array  # (2, K, D)
    symmetry: Symmetry = field(default_factory=Symmetry)

    @property
    def n_clusters(self) -> int:
        return int(self.price.shape[0])

    def value(self, centroids: Array) -> float:
        """Cost plus price at given centroids, from the rows."""
        return clustering_cost(self.points, self.weights, centroids) + float(np.sum(self.price * centroids))


@dataclass(frozen=True)
class NodeSolution:
    bound: float  # proven lower bound on the node problem
    value: float  # attained by the centroids, recomputed from the rows
    centroids: Array  # (K, D)
    status: Status
    seconds: float
    labels: NDArray[np.int64] | None = None  # stays at the node


@dataclass(frozen=True)
class NodeSolutions:
    """One problem per box."""

    bounds: Array  # (B,)
    values: Array  # (B,)
    centroids: Array  # (B, K, D)
    optimal: NDArray[np.bool_]  # (B,) whether the gap asked for was reached, or the box is empty


class NodeSolver(Protocol):
    """Back ends import their library inside `solve` and name the remedy when it is missing."""

    name: str

    def solve(self, problem: NodeProblem, budget: Budget, start: Array | None = None) -> NodeSolution: ...


@runtime_checkable
class BatchSolver(NodeSolver, Protocol):
    """A solver that answers many boxes in one call."""

    def solve_many(
        self, points: Array, weights: Array, prices: Array, boxes: Array, symmetry: Symmetry, budget: Budget
    ) -> NodeSolutions:
        """prices (B, K, D), boxes (B, 2, K, D); `budget.seconds` is for all of them together."""
        ...
