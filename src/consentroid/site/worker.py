"""The node's side of the protocol: holds the rows, answers requests, tells nothing else."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from ..core.errors import NodeRefused
from ..core.problem import Domain, NodeData
from ..protocol.messages import (
    Describe,
    Description,
    Evaluate,
    Evaluated,
    Query,
    Reply,
    Request,
    Response,
)


class SiteWorker:
    """Answers for one data holder. Keeps no state that a lost message could corrupt, only caches."""

    def __init__(self, data: NodeData, features: Sequence[str] = ()) -> None:
        self._data = data
        self._features = tuple(features)

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
        if query.solve is not None or query.statistics is not None:
            raise NodeRefused("this site answers for its rows only; it solves no node problems")
        started = time.perf_counter()
        evaluated = None if query.evaluate is None else self._evaluate(query.evaluate)
        return Reply(query.round, self.name, evaluated=evaluated, seconds=time.perf_counter() - started)

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
