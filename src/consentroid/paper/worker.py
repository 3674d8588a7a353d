"""The paper's worker: beyond what every site answers, it solves the node's priced problem."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ..core.problem import NodeData
from ..core.symmetry import Rule, Symmetry
from ..protocol.messages import Query, Reply, Solve, Solved
from ..site.worker import SiteWorker
from .node.base import BatchSolver, Budget, NodeProblem, NodeSolver, Status
from .solvers import solver_named


class PaperWorker(SiteWorker):
    """Answers all parts of a query. Keeps no state that a lost message could corrupt, only caches."""

    def __init__(self, data: NodeData, features: Sequence[str] = (), price_file: Path | None = None) -> None:
        super().__init__(data, features, price_file)
        self._solvers: dict[tuple[str, Rule], NodeSolver] = {}

    def _reply(self, query: Query) -> Reply:
        started = time.perf_counter()
        symmetry = Symmetry(query.rule, query.references)
        solved = None if query.solve is None else self._solve(query.solve, symmetry, query.solver)
        evaluated = None if query.evaluate is None else self._evaluate(query.evaluate)
        return Reply(query.round, self.name, solved, evaluated, time.perf_counter() - started)

    def _solver(self, name: str, rule: Rule = "none") -> NodeSolver:
        """Solvers are kept: they remember what depends on the rows alone."""
        key: tuple[str, Rule] = (name, "nearest" if rule == "nearest" else "none")
        if key not in self._solvers:
            self._solvers[key] = solver_named(*key)
        return self._solvers[key]

    def _solve(self, request: Solve, symmetry: Symmetry, solver: str) -> Solved:
        data, back_end = self._data, self._solver(solver, symmetry.rule)
        if isinstance(back_end, BatchSolver):
            budget = Budget(request.seconds, request.gap, request.search_nodes)
            many = back_end.solve_many(data.points, data.weights, request.prices, request.boxes, symmetry, budget)
            return Solved(many.bounds, many.values, many.centroids, many.optimal)
        deadline = time.perf_counter() + request.seconds
        solutions = []
        for boxes, price in zip(request.boxes, request.prices, strict=True):
            budget = Budget(max(deadline - time.perf_counter(), 0.0), request.gap, request.search_nodes)
            problem = NodeProblem(data.points, data.weights, price, boxes, symmetry)
            solutions.append(back_end.solve(problem, budget))
        return Solved(
            bounds=np.array([s.bound for s in solutions]),
            values=np.array([s.value for s in solutions]),
            centroids=np.array([s.centroids for s in solutions]).reshape(request.prices.shape),
            optimal=np.array([s.status in (Status.OPTIMAL, Status.INFEASIBLE) for s in solutions], dtype=bool),
        )
