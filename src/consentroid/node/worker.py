"""The node's side of the protocol: holds the rows, answers requests, tells nothing else."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from ..errors import NodeRefused
from ..messages import (
    Counted,
    Describe,
    Description,
    Evaluate,
    Evaluated,
    Query,
    Reply,
    Request,
    Response,
    Solve,
    Solved,
    Statistics,
)
from ..problem import Domain, NodeData
from ..symmetry import Symmetry
from .base import BatchSolver, Budget, NodeProblem, NodeSolver, Status
from .registry import solver_named


class NodeWorker:
    """Answers for one data holder. Keeps no state that a lost message could corrupt, only caches."""

    def __init__(self, data: NodeData, features: Sequence[str] = ()) -> None:
        self._data = data
        self._features = tuple(features)
        self._solvers: dict[str, NodeSolver] = {}

    @property
    def name(self) -> str:
        return self._data.name

    def answer(self, request: Request) -> Response:
        if isinstance(request, Describe):
            return self._describe(request)
        return self._reply(request)

    def _describe(self, request: Describe) -> Description:
        data = self._data
        if request.features and self._features and tuple(request.features) != self._features:
            raise NodeRefused(
                f"features {list(self._features)} differ from those agreed, {list(request.features)}; "
                "select and order the columns alike at every node"
            )
        points = data.points[data.weights > 0]
        known = request.lower is not None and request.upper is not None
        if known:
            domain = Domain(np.asarray(request.lower), np.asarray(request.upper))
            if domain.n_features != data.n_features:
                raise NodeRefused(f"rows have {data.n_features} features, the domain has {domain.n_features}")
            outside = np.any((points < domain.lower) | (points > domain.upper), axis=0)
            if outside.any():  # which feature, but not which value: that would tell part of a row
                named = self._features or tuple(f"feature {d}" for d in range(data.n_features))
                where = ", ".join(name for name, out in zip(named, outside, strict=True) if out)
                raise NodeRefused(f"rows lie outside the domain in {where}; widen the domain or leave those rows out")
        return Description(
            node=self.name,
            n_points=len(data.points),
            n_features=data.n_features,
            n_distinct=min(request.n_clusters, len(np.unique(points, axis=0))),
            weight=float(data.weights.sum()),
            features=self._features,
            lower=None if known else points.min(axis=0),
            upper=None if known else points.max(axis=0),
        )

    def _reply(self, query: Query) -> Reply:
        started = time.perf_counter()
        symmetry = Symmetry(query.rule, query.references)
        solved = None if query.solve is None else self._solve(query.solve, symmetry, query.solver)
        counted = None if query.statistics is None else self._count(query.statistics)
        evaluated = None if query.evaluate is None else self._evaluate(query.evaluate)
        return Reply(query.round, self.name, solved, counted, evaluated, time.perf_counter() - started)

    def _solver(self, name: str) -> NodeSolver:
        if name not in self._solvers:
            self._solvers[name] = solver_named(name)
        return self._solvers[name]

    def _solve(self, request: Solve, symmetry: Symmetry, solver: str) -> Solved:
        data, back_end = self._data, self._solver(solver)
        if isinstance(back_end, BatchSolver):
            budget = Budget(request.seconds, request.gap, request.search_nodes)
            return back_end.solve_many(data.points, data.weights, request.prices, request.boxes, symmetry, budget)
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

    def _count(self, request: Statistics) -> Counted:
        exact = self._solver("exact")
        assert isinstance(exact, BatchSolver)
        return exact.count_many(self._data.points, self._data.weights, request.boxes)

    def _evaluate(self, request: Evaluate) -> Evaluated:
        data = self._data
        n_candidates, n_clusters, n_features = request.candidates.shape
        costs = np.empty(n_candidates)
        counts, sums = np.zeros((n_candidates, n_clusters)), np.zeros((n_candidates, n_clusters, n_features))
        for c, centroids in enumerate(request.candidates):
            squared = ((data.points[:, None, :] - centroids[None, :, :]) ** 2).sum(axis=2)
            labels = squared.argmin(axis=1)
            costs[c] = data.weights @ squared[np.arange(len(labels)), labels]
            np.add.at(counts[c], labels, data.weights)
            np.add.at(sums[c], labels, data.weights[:, None] * data.points)
        # All terms are positive: the relative error of a cost is below (rows + features + 4) units in the last place.
        costs *= 1.0 + (len(data.points) + n_features + 4) * np.finfo(float).eps
        return Evaluated(costs, counts, sums)
