"""The pooled problem in one place, for comparison: `Clustering_MILP_Central` by SCIP or Gurobi.

The paper sets the gap of the central solver over time beside that of the decomposition. Every entry of the history is
a pair of true numbers: the lower bound carries the safe margin of `node/miqcp.py`, the upper bound is the cost of the
incumbent's centroids recomputed from the rows.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

import numpy as np

from ..core.arrays import Array
from ..core.errors import InvalidInput
from ..core.problem import Problem
from ..core.symmetry import Symmetry
from .node import scip
from .node.base import NodeProblem, NodeSolution
from .node.gurobi import GurobiSolver
from .node.miqcp import LEAST_GAP, Optimise, Programme, SolverLimits, report, state

CENTRAL_SOLVERS = ("scip", "gurobi")


@dataclass(frozen=True)
class CentralSolution:
    """History and end of one central run; `seconds` counts from the start of the model's statement."""

    solver: str
    seconds: Array  # (T,) ascending
    lower: Array  # (T,) best proven bound so far, -inf before the first
    upper: Array  # (T,) best cost so far, +inf before the first
    solution: NodeSolution

    @property
    def gap(self) -> Array:
        """(upper − lower) / upper at every entry; 1 before both are known."""
        known = np.isfinite(self.lower) & np.isfinite(self.upper) & (self.upper > 0)
        gap = np.where(self.upper == 0.0, 0.0, 1.0)
        gap[known] = (self.upper[known] - self.lower[known]) / self.upper[known]
        return np.asarray(np.clip(gap, 0.0, 1.0))


class _History:
    """Keeps an entry whenever the bound or the incumbent improves."""

    def __init__(self, problem: NodeProblem, model: Programme) -> None:
        self._problem, self._model = problem, model
        self.began = time.perf_counter()
        self.entries: list[tuple[float, float, float]] = []

    def __call__(self, bound: float | None, point: Array | None) -> None:
        lower, upper = -math.inf, math.inf
        if bound is not None and abs(bound) < 1e20:  # solvers write infinity as 1e20 or 1e100
            lower = self._model.in_units(bound) - self._model.margin(abs(self._model.in_units(bound)))
        if point is not None:
            upper = self._problem.value(np.clip(self._model.centroids(point), *self._problem.boxes))
        self.add(max(lower, 0.0), upper)

    def add(self, lower: float, upper: float) -> None:
        best = self.entries[-1][1:] if self.entries else (-math.inf, math.inf)
        lower, upper = max(lower, best[0]), min(upper, best[1])
        if (lower, upper) != best:
            self.entries.append((time.perf_counter() - self.began, min(lower, upper), upper))


def solve_central(
    problem: Problem,
    solver: str = "scip",
    seconds: float = math.inf,
    gap: float = 1e-4,
    references: Array | None = None,
) -> CentralSolution:
    """Solve the pooled problem; references (K, D) impose the order rule, which loses no optimum."""
    pooled = problem.pooled
    k, d = problem.n_clusters, problem.n_features
    symmetry = Symmetry() if references is None else Symmetry("order", references)
    node = NodeProblem(pooled.points, pooled.weights, np.zeros((k, d)), problem.domain.boxes(k), symmetry)
    optimise = _optimiser(solver)
    model = state(node)
    history = _History(node, model)
    outcome = optimise(model, SolverLimits(seconds, max(gap, LEAST_GAP), 2**60), None, history)
    elapsed = time.perf_counter() - history.began
    solution = report(node, model, outcome, elapsed)
    history.add(solution.bound, solution.value)
    times, lower, upper = np.array(history.entries).T
    return CentralSolution(solver, times, lower, upper, solution)


def _optimiser(solver: str) -> Optimise:
    if solver == "scip":
        return scip.optimise
    if solver == "gurobi":
        return GurobiSolver().optimise
    raise InvalidInput(f"the central problem is solved by {' or '.join(CENTRAL_SOLVERS)}, not by '{solver}'")
