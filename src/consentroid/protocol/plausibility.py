"""Does a reply fit its query, itself and what the node said before?

A node's priced problem has the optimum  d_i(p, b) = min { f_i(m) + ⟨p, m⟩ : m ∈ b, rule },  f_i ≥ 0 being its cost.
Whatever the rows are, an honest node's numbers obey

    bound(p, b) ≤ f_i(m) + ⟨p, m⟩     for every p, every box b and every m in b that obeys the rule,

where f_i(m) is known wherever the node has attained or evaluated m. Later attained points are held against earlier
bounds and later bounds against earlier points: d_i is a minimum of affine functions of p, and this is the test that
its replies are (concavity). A reply that fails is refused with its reason; nothing of it is used. What a reply to
`PriceQuery` must obey stands in `price_rules.py`.

A node can still lie consistently, by clustering other rows than its own. No coordinator can see that; the certificate
lets every honest node re-check its own part.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..core.arrays import Array
from ..core.symmetry import Symmetry, align
from .messages import (
    Coordinates,
    Describe,
    Description,
    Evaluate,
    Evaluated,
    PriceQuery,
    PriceReply,
    Query,
    Reply,
    Solve,
    Solved,
)
from .price_rules import TOLERANCE, Contradiction, PriceRules, check_offsets, same_shape

POINTS_KEPT = 64
BOUNDS_KEPT = 256
POINTS_A_REPLY = 16  # attained points of one reply that are held against earlier bounds


@dataclass(frozen=True)
class _Bound:
    boxes: Array  # (2, K, D)
    price: Array  # (K, D)
    bound: float


class _Point:
    """Centroids with the cost that the node reported for them."""

    def __init__(self, centroids: Array, cost: float) -> None:
        self.centroids = centroids
        self.cost = cost
        self._labelled: dict[bytes, Array | None] = {}

    def labelled(self, symmetry: Symmetry) -> Array | None:
        """A labelling that obeys the rule exactly, if it is easy to find; the cost does not depend on it."""
        key = _key(symmetry)
        if key not in self._labelled:
            centroids = self.centroids
            if symmetry.rule == "order" and symmetry.references is not None:
                centroids = align(centroids, symmetry.references)
            self._labelled[key] = centroids if symmetry.satisfied(centroids) else None
        return self._labelled[key]


class ReplyChecker:
    """Judges the replies of one node; `check` raises `Contradiction` and then remembers nothing of the reply."""

    def __init__(self, node: str) -> None:
        self.node = node
        self._weight: float | None = None
        self._extent: tuple[Array, Array] | None = None  # a box that holds the node's rows
        self._coordinates: Coordinates | None = None  # the last ones sent
        self._points: deque[_Point] = deque(maxlen=POINTS_KEPT)
        self._bounds: dict[bytes, tuple[Symmetry, deque[_Bound]]] = {}  # by symmetry rule and references

    def check_description(self, request: Describe, description: Description) -> None:
        self._check_sender(description.node)
        d = description
        if d.n_points < 1 or d.n_features < 1 or not 1 <= d.n_distinct <= request.n_clusters or not d.weight > 0:
            raise Contradiction(
                f"describes {d.n_points} rows of weight {d.weight:g} with {d.n_features} features and "
                f"{d.n_distinct} distinct rows for {request.n_clusters} clusters"
            )
        if d.features and len(d.features) != d.n_features:
            raise Contradiction(f"names {len(d.features)} of its {d.n_features} features")
        if request.features and d.features and d.features != request.features:
            raise Contradiction("agreed to other features than its own")
        lower, upper = (d.lower, d.upper) if request.lower is None else (request.lower, request.upper)
        if lower is None or upper is None:
            raise Contradiction("reported no extremes although no domain was agreed")
        if len(lower) != d.n_features or np.any(lower > upper):
            raise Contradiction("reported extremes that do not enclose a row")
        if d.allowed is not None and not np.all(d.allowed >= 0.0):
            raise Contradiction("allows less than nothing")
        self._weight, self._extent = d.weight, (lower, upper)

    def check(self, query: Query, reply: Reply) -> None:
        self._check_sender(reply.node)
        if reply.round != query.round:
            raise Contradiction(f"answered round {reply.round} in round {query.round}")
        _only_what_was_asked(
            solved=(query.solve, reply.solved),
            evaluated=(query.evaluate, reply.evaluated),
        )
        symmetry = Symmetry(query.rule, query.references)
        points: list[_Point] = []
        bounds: list[_Bound] = []
        if query.evaluate is not None and reply.evaluated is not None:
            points += self._check_evaluated(query.evaluate, reply.evaluated)
        if query.solve is not None and reply.solved is not None:
            attained, bounds = self._check_solved(query.solve, reply.solved, symmetry)
            points += attained
            _check_bounds_against_points(bounds, [*self._points, *points], symmetry)
        for earlier, proven in self._bounds.values():
            _check_bounds_against_points(list(proven), points, earlier)
        self._points.extend(points)
        self._bounds.setdefault(_key(symmetry), (symmetry, deque(maxlen=BOUNDS_KEPT)))[1].extend(bounds)

    def check_prices(self, query: PriceQuery, reply: PriceReply) -> None:
        self._check_sender(reply.node)
        if (reply.round, reply.step) != (query.round, query.step):
            raise Contradiction(
                f"answered round {reply.round}, step {reply.step} in round {query.round}, step {query.step}"
            )
        _only_what_was_asked(
            moments=(query.moments, reply.moments),
            located=(query.coordinates, reply.located),
            priced=(query.start or query.move, reply.priced),
            columns=(query.columns, reply.columns),
            triples=(query.triples, reply.triples),
            trimmed=(query.trim, reply.trimmed),
            boxes=(query.examine, reply.boxes),
            claimed=(query.claim, reply.claimed),
            evaluated=(query.evaluate, reply.evaluated),
            kept=(query.keep, reply.kept),
            pairs=(query.pairs, reply.pairs),
        )
        if self._weight is None or self._extent is None:
            raise Contradiction("answered about prices before it described itself")
        PriceRules(self._weight, self._extent, query.coordinates or self._coordinates).check(query, reply)
        if query.evaluate is not None and reply.evaluated is not None:
            self._check_evaluated(query.evaluate, reply.evaluated)
        self._coordinates = query.coordinates or self._coordinates

    # ------------------------------------------------------------------ parts of a reply

    def _check_sender(self, name: str) -> None:
        if name != self.node:
            raise Contradiction(f"answered under the name '{name}'")

    def _check_solved(self, asked: Solve, got: Solved, symmetry: Symmetry) -> tuple[list[_Point], list[_Bound]]:
        same_shape("centroids", got.centroids, asked.prices.shape)
        for name, array in (("bounds", got.bounds), ("values", got.values), ("optimal", got.optimal)):
            same_shape(name, array, asked.prices.shape[:1])
        lower, upper = asked.boxes[:, 0], asked.boxes[:, 1]
        attained = np.isfinite(got.values)
        room = TOLERANCE * np.maximum(np.abs(lower), np.abs(upper)).max(axis=(1, 2), initial=1e-300)
        outside = (got.centroids < lower - room[:, None, None]) | (got.centroids > upper + room[:, None, None])
        b = _first(attained & outside.any(axis=(1, 2)))
        if b is not None:
            raise Contradiction(f"box {b}: its centroids lie outside the box")
        price_parts = asked.prices * got.centroids
        priced = price_parts.sum(axis=(1, 2))
        with np.errstate(invalid="ignore"):
            costs = got.values - priced
            scale = np.abs(got.values) + np.abs(price_parts).sum(axis=(1, 2))
            b = _first(attained & (costs < -TOLERANCE * scale))
        if b is not None or np.any(got.values == -np.inf):
            raise Contradiction(f"box {b or 0}: its value {got.values[b or 0]:g} would need a negative cost")
        b = _first(np.isfinite(got.bounds) & attained & (got.bounds > got.values + TOLERANCE * scale))
        if b is not None:
            raise Contradiction(f"box {b}: bound {got.bounds[b]:.12g} exceeds its own value {got.values[b]:.12g}")
        for empty in np.nonzero(got.bounds == np.inf)[0]:
            if attained[empty] or not box_is_empty(asked.boxes[empty], symmetry):
                raise Contradiction(f"box {empty}: called empty, but the box holds centroids that obey the rule")
        some = np.nonzero(attained)[0][:POINTS_A_REPLY]
        reach = 1.0 if symmetry.references is None else float(np.abs(symmetry.references).max())
        for i in some if symmetry.valid else ():  # what the rule 'nearest' yields is replayed, never part of a proof
            if not symmetry.satisfied(got.centroids[i], 10 * TOLERANCE * reach * np.abs(got.centroids[i]).max()):
                raise Contradiction(f"box {i}: its centroids break the symmetry rule '{symmetry.rule}'")
        points = [_Point(got.centroids[i], float(costs[i])) for i in some]
        proven = [
            _Bound(boxes, price, float(bound))
            for boxes, price, bound in zip(asked.boxes, asked.prices, got.bounds, strict=True)
            if np.isfinite(bound)
        ]
        return points, proven

    def _check_evaluated(self, asked: Evaluate, got: Evaluated) -> list[_Point]:
        n, k, d = asked.candidates.shape
        same_shape("costs", got.costs, (n,))
        same_shape("counts", got.counts, (n, k))
        same_shape("offsets", got.offsets, (n, k, d))
        same_shape("spreads", got.spreads, (n, k))
        if np.any(got.spreads < 0):
            raise Contradiction("reports a negative spread")
        if np.any(got.costs < 0):
            raise Contradiction(f"reports a negative cost, {got.costs.min():g}")
        self._check_counts(got.counts, got.counts.sum(axis=1))
        if self._extent is not None:
            check_offsets(got.offsets, got.counts, asked.candidates, self._extent, self._weight or 0.0)
        return [_Point(m, cost) for m, cost in zip(asked.candidates, got.costs.tolist(), strict=True)]

    def _check_counts(self, counts: Array, totals: Array) -> None:
        if np.any(counts < 0):
            raise Contradiction("reports a negative count")
        if self._weight is not None and np.any(totals > (1.0 + TOLERANCE) * self._weight):  # small groups are left out
            raise Contradiction(f"reports counts of {totals.max():g} in all for rows of weight {self._weight:g}")


def _check_bounds_against_points(bounds: list[_Bound], points: list[_Point], symmetry: Symmetry) -> None:
    """bound(p, b) ≤ f(m) + ⟨p, m⟩ for every known m in b that obeys the rule."""
    if not bounds:
        return
    shape = bounds[0].price.shape
    same = [(point.labelled(symmetry), point.cost) for point in points if point.centroids.shape == shape]
    known = [(m, cost) for m, cost in same if m is not None]
    if not known:
        return
    m = np.array([centroids for centroids, _ in known])  # (P, K, D)
    f = np.array([cost for _, cost in known])
    boxes = np.array([bound.boxes for bound in bounds])  # (B, 2, K, D)
    prices = np.array([bound.price for bound in bounds])
    proven = np.array([bound.bound for bound in bounds])
    inside = np.all((boxes[:, None, 0] <= m) & (m <= boxes[:, None, 1]), axis=(2, 3))  # (B, P)
    if not inside.any():
        return
    value = f + np.einsum("bkd,pkd->bp", prices, m)
    scale = np.abs(f) + np.einsum("bkd,pkd->bp", np.abs(prices), np.abs(m)) + np.abs(proven)[:, None]
    broken = inside & (proven[:, None] > value + TOLERANCE * scale)
    if broken.any():
        b, p = (int(i[0]) for i in np.nonzero(broken))
        raise Contradiction(
            f"breaks concavity: it proved {proven[b]:.12g} for prices at which centroids of its own have the value "
            f"{value[b, p]:.12g}"
        )


def _only_what_was_asked(**parts: tuple[object, object]) -> None:
    for name, (asked, answered) in parts.items():
        if (asked is None) != (answered is None):
            raise Contradiction(f"'{name}' was {'not ' if asked is None else ''}asked for, but the reply differs")


def _key(symmetry: Symmetry) -> bytes:
    return symmetry.rule.encode() + (b"" if symmetry.references is None else symmetry.references.tobytes())


def box_is_empty(boxes: Array, symmetry: Symmetry) -> bool:
    """Whether no centroids in the boxes obey the rule, but for a hair; public geometry, so it needs no trust."""
    lower, upper = boxes
    if np.any(lower > upper):
        return True
    if symmetry.rule != "order":
        return symmetry.rule == "nearest"  # not convex, and never part of a proof: taken on trust
    k, d = lower.shape
    normals = symmetry.normals(k)
    rows = []
    for i in range(k):
        for j in range(i + 1, k):
            row = np.zeros((k, d))
            row[i], row[j] = -normals[i, j], normals[i, j]
            rows.append(row.ravel())
    if not rows:
        return False
    matrix = np.array(rows)
    size = np.abs(matrix).sum(axis=1)
    from scipy.optimize import linprog  # here, since no site needs it and it takes a third of a second

    # the largest common slack t of  n·(m_i − m_j) ≥ t ‖n‖₁
    result = linprog(
        np.r_[np.zeros(k * d), -1.0],
        A_ub=np.c_[matrix, size],
        b_ub=np.zeros(len(rows)),
        bounds=[*zip(lower.ravel(), upper.ravel(), strict=True), (None, None)],
        method="highs",
    )
    room = TOLERANCE * max(float(np.abs(boxes).max()), 1e-300)
    return bool(result.status == 0 and -result.fun <= room)


def _first(mask: NDArray[np.bool_]) -> int | None:
    found = np.nonzero(mask)[0]
    return int(found[0]) if len(found) else None
