"""How much a request asks: sites hold a run to so much, keep it in their logs, and the coordinator counts along."""

from __future__ import annotations

from dataclasses import dataclass, fields

from .messages import Describe, PriceQuery, Query, Request


@dataclass(frozen=True)
class Demand:
    """How much a request asks; the site's log keeps it."""

    kind: str
    n_clusters: int = 0
    boxes: int = 0
    points: int = 0


def demand_of(request: Request) -> Demand:
    """
    >>> demand_of(Describe(3))
    Demand(kind='describe', n_clusters=3, boxes=0, points=0)
    """
    if isinstance(request, Describe):
        return Demand("describe", request.n_clusters)
    if isinstance(request, PriceQuery):
        return _price_demand(request)
    if isinstance(request, Query):
        parts = [name for name in ("solve", "evaluate") if getattr(request, name) is not None]
        boxes = 0 if request.solve is None else len(request.solve.boxes)
        n_clusters, points = _candidates(request)
        return Demand("+".join(parts) or "nothing", n_clusters, boxes, points)
    return Demand(type(request).__name__.lower())


PRICE_PARTS = tuple(one.name for one in fields(PriceQuery) if one.name not in ("round", "step"))


def _price_demand(query: PriceQuery) -> Demand:
    parts = [name for name in PRICE_PARTS if getattr(query, name) is not None]
    n_clusters, points = _candidates(query)
    if query.pairs is not None:
        n_clusters = max(n_clusters, query.pairs.n_clusters)
        points += 0 if query.pairs.centroids is None else len(query.pairs.centroids)
    if query.start is not None:
        n_clusters = max(n_clusters, len(query.start.centroids))
        points += len(query.start.centroids)
    points += sum(len(part.points) for part in (query.columns, query.trim) if part is not None)
    boxes = sum(len(part.lower) for part in (query.examine, query.claim) if part is not None)
    return Demand("+".join(parts) or "nothing", n_clusters, boxes, points)


def _candidates(query: PriceQuery | Query) -> tuple[int, int]:
    """K and the number of candidate centroids."""
    if query.evaluate is None:
        return 0, 0
    n_candidates, n_clusters, _ = query.evaluate.candidates.shape
    return n_clusters, n_candidates * n_clusters
