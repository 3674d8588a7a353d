"""The site's side of the protocol: holds the rows, answers requests, tells nothing else."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..core.arrays import Array
from ..core.errors import ConsentroidError, NodeRefused
from ..core.kernel_cache import drop_stale
from ..core.problem import Domain, NodeData, count_distinct
from ..protocol.messages import (
    Describe,
    Description,
    Evaluate,
    Evaluated,
    Failure,
    Moments,
    MomentSums,
    PriceQuery,
    PriceReply,
    Query,
    Reply,
    Request,
    Response,
)
from .cloud import fair_stride
from .guard import Guard
from .kernels.boxes import EPS
from .kernels.columns import assign_rows
from .pairs.site import SitePairs
from .parallel import in_parallel
from .price_files import SitePrices
from .prices import PricedRows, fewest_rows

drop_stale("site")


class SiteWorker:
    """Answers for one data holder. A lost or repeated message corrupts nothing: queries that change prices or columns
    are numbered, a repeated one is answered from memory, and one that does not follow is refused as out of step."""

    def __init__(
        self,
        data: NodeData,
        features: Sequence[str] = (),
        price_file: Path | None = None,
        guard: Guard | None = None,
        first_prices: Array | None = None,
        threads: int | None = None,
    ) -> None:
        self._data = data
        self._features = tuple(features)
        self.price_file = price_file
        kept = slice(None) if data.weights.all() else data.weights > 0  # a slice copies nothing
        self._x, self._w = np.ascontiguousarray(data.points[kept]), np.ascontiguousarray(data.weights[kept])
        width = threads or os.cpu_count() or 1
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="site") if width > 1 else None
        self.guard = guard or Guard()
        self.guard.see_rows(self._x, self._w)
        self._prices = PricedRows(self._x, self._w, self._pool, self.guard, first_prices)
        self._pairs = SitePairs(self._x, self._w, self._pool, self.guard)
        self._step = 0
        self._last: PriceReply | None = None

    @property
    def name(self) -> str:
        return self._data.name

    @property
    def rows(self) -> NodeData:
        return self._data

    def answered(self, request: Request) -> Response:
        """The answer, or why there is none: a failing site is a value to the coordinator, never a crash."""
        try:
            return self.answer(request)
        except Exception as error:
            final = isinstance(error, ConsentroidError)  # refused on purpose: it would be again
            reason = f"{type(error).__name__}: {error}"
            return Failure(self.name, reason, -1 if isinstance(request, Describe) else request.round, final)

    def prices(self, slots: NDArray[np.int64]) -> SitePrices:
        """In the order of the rows of positive weight: they stay with the site's owner."""
        return self._prices.prices_of(slots)

    def distinct(self, most: int) -> Array:
        """Distinct rows, as many as there are up to `most`: the same."""
        for size in (max(1000, 4 * most), len(self._x)):
            found = np.unique(self._x[:size], axis=0)
            if len(found) >= most:
                break
        return np.asarray(found[:most])

    def answer(self, request: Request) -> Response:
        if isinstance(request, Describe):
            return self._describe(request)
        if isinstance(request, PriceQuery):
            return self._price(request)
        return self._reply(request)

    # ------------------------------------------------------------------ who takes part

    def _describe(self, request: Describe) -> Description:
        data = self._data
        if request.features and self._features and tuple(request.features) != self._features:
            raise NodeRefused(
                f"features {list(self._features)} differ from those agreed, {list(request.features)}; "
                "select and order the columns alike at every node"
            )
        points = self._x
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
            n_distinct=count_distinct(points, request.n_clusters),
            weight=float(data.weights.sum()),
            features=self._features,
            lower=None if known else points.min(axis=0),
            upper=None if known else points.max(axis=0),
        )

    # ------------------------------------------------------------------ row prices

    def _price(self, query: PriceQuery) -> PriceReply | Failure:
        started = time.perf_counter()
        changes = query.changes
        if changes and query.step == self._step and self._last is not None and self._last.round == query.round:
            return self._last
        begins = query.coordinates is not None
        if not begins and query.step != self._step + changes:
            return Failure(self.name, f"out of step: at {self._step}, asked for {query.step}", query.round)
        prices = self._prices
        reply = PriceReply(
            round=query.round,
            node=self.name,
            step=query.step,
            moments=None if query.moments is None else self._moments(query.moments),
            located=None if query.coordinates is None else prices.locate(query.coordinates),
            priced=self._new_prices(query),
            columns=None if query.columns is None else prices.make_columns(query.columns),
            triples=None if query.triples is None else prices.find_triples(query.triples),
            trimmed=None if query.trim is None else prices.trim(query.trim),
            boxes=None if query.examine is None else prices.examine(query.examine),
            claimed=None if query.claim is None else prices.claim(query.claim),
            evaluated=None if query.evaluate is None else self._evaluate(query.evaluate),
            kept=None if query.keep is None else prices.keep(query.keep, self.price_file),
            pairs=None if query.pairs is None else self._pairs.improve(query.pairs, self.price_file),
            seconds=time.perf_counter() - started,
        )
        if changes:
            self._step, self._last = query.step, reply
        return reply

    def _new_prices(self, query: PriceQuery):  # type: ignore[no-untyped-def]
        if query.start is not None:
            return self._prices.start(query.start)
        return None if query.move is None else self._prices.move(query.move)

    def _moments(self, request: Moments) -> MomentSums:
        offset = self._x - request.reference
        weighted = self._w[:, None] * offset
        return MomentSums(float(self._w.sum()), weighted.sum(axis=0), weighted.T @ offset)

    # ------------------------------------------------------------------ candidate centroids

    def _reply(self, query: Query) -> Reply:
        if query.solve is not None:
            raise NodeRefused("this site answers for its rows only; it solves no node problems")
        started = time.perf_counter()
        evaluated = None if query.evaluate is None else self._evaluate(query.evaluate)
        return Reply(query.round, self.name, evaluated=evaluated, seconds=time.perf_counter() - started)

    def _evaluate(self, request: Evaluate) -> Evaluated:
        candidates, stride = np.ascontiguousarray(request.candidates), fair_stride(request.stride, len(self._x))
        n, n_clusters, n_features = candidates.shape
        shape = (n, n_clusters)
        out = Evaluated(np.empty(n), np.empty(shape), np.empty((*shape, n_features)), np.empty(shape))

        def work(first: int, last: int) -> None:
            assign_rows(
                self._x, self._w, stride, candidates, first, last, out.costs, out.counts, out.offsets, out.spreads
            )

        in_parallel(work, n, self._pool, self._x.size * n * n_clusters // stride)
        # All terms are positive: the relative error of a cost is below (rows + features + 8) units in the last place.
        np.multiply(out.costs, 1.0 + (len(self._x) + n_features + 8) * EPS, out=out.costs)
        return self.guard.evaluated(request, out, fewest_rows(out.counts, self._w))
