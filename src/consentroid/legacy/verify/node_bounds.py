"""One node's bounds: min f(m) + ⟨p, m⟩ over a leaf, under the order rule, is not below the number claimed.

A leaf is searched by assignments (`search.py`). Where that takes too many, the leaf is halved and each half has to
satisfy the same claim; in small boxes most rows are decided: one box is nearer than all others, whatever its centroid.

Tolerance. A claim counts as confirmed if it holds up to

    `TOLERANCE` × (Σ_j w_j (‖y_j − c‖² + min ‖m − c‖²) + Σ_kd |p_kd| max |m_kd − c_d|),

the scale of the terms that both sides add up in floating point. c is a point amid the rows, min ‖m − c‖ its distance to
the nearest of the leaf's boxes (zero, mostly).
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from scipy.optimize import linprog

from ...core.arrays import Array
from .order import Order
from .rows import Rows
from .search import ATTAINED, PROVED, Tasks, search

TOLERANCE = 1e-10
BATCH, BATCH_ROWS = 128, 200_000  # claims searched at once, and rows of all of them
FEW, MANY = 3_000, 400_000  # partial assignments: decided rows first, then all rows with their tails
MOST_HALVINGS = 400


@dataclass(frozen=True)
class Claim:
    leaf: int
    boxes: Array  # (2, K, D)
    price: Array  # (K, D)
    bound: float


@dataclass(frozen=True)
class Refuted:
    """Centroids inside the leaf that obey the rule and cost less than claimed."""

    claim: Claim
    centroids: Array
    attained: float


@dataclass(frozen=True)
class _Part:
    """A claim on a part of its leaf, in shifted coordinates."""

    claim: Claim
    lower: Array  # (K, D)
    upper: Array  # (K, D)
    cutoff: float
    halvings: int = 0

    def halves(self, widths: Array) -> tuple[_Part, _Part]:
        """Cut where the part is widest, in units of the rows' range."""
        relative = (self.upper - self.lower) / widths
        k, d = np.unravel_index(int(np.argmax(relative)), relative.shape)
        at = 0.5 * (self.lower[k, d] + self.upper[k, d])
        upper, lower = self.upper.copy(), self.lower.copy()
        upper[k, d] = lower[k, d] = at
        return (
            _Part(self.claim, self.lower, upper, self.cutoff, self.halvings + 1),
            _Part(self.claim, lower, self.upper, self.cutoff, self.halvings + 1),
        )


class NodeBounds:
    """Checks claims on the rows of one node."""

    def __init__(self, points: Array, weights: Array, n_clusters: int, references: Array | None) -> None:
        self._rows = Rows.prepared(points, weights, n_clusters)
        self._rule = Order.of(references, n_clusters, points.shape[1])
        spread = self._rows.points.max(axis=0) - self._rows.points.min(axis=0)
        self._widths = np.where(spread > 0, spread, 1.0)

    def tolerance(self, claim: Claim) -> float:
        rows, (lower, upper) = self._rows, claim.boxes - self._rows.centre
        away = float((np.maximum(np.maximum(lower, -upper), 0.0) ** 2).sum(axis=1).min())
        reach = np.maximum(np.abs(lower), np.abs(upper))
        terms = rows.variation + float(rows.weights.sum()) * away + float(np.sum(np.abs(claim.price) * reach))
        return TOLERANCE * terms

    def check(self, claims: list[Claim], deadline: float = math.inf) -> Iterator[Claim | Refuted]:
        """Yield a claim once it is confirmed, or its refutation; claims open at the deadline are not yielded."""
        waiting = [self._part(claim) for claim in reversed(claims)]
        pieces = dict.fromkeys(range(len(claims)), 1)
        number = {id(claim): i for i, claim in enumerate(claims)}
        while waiting and time.perf_counter() < deadline:
            size = max(1, min(BATCH, BATCH_ROWS // len(self._rows.points), len(waiting)))
            batch = [waiting.pop() for _ in range(size)]
            for part, status, centroids in self._search(batch, deadline):
                i = number[id(part.claim)]
                if pieces[i] == 0:
                    continue  # already refuted
                if status == ATTAINED:
                    refuted = self._exactly_refuted(part, centroids)
                    if refuted is not None:
                        pieces[i] = 0
                        yield refuted
                        continue
                if status == PROVED:
                    pieces[i] -= 1
                    if pieces[i] == 0:
                        yield part.claim
                elif part.halvings < MOST_HALVINGS:
                    pieces[i] += 1
                    waiting.extend(part.halves(self._widths))

    def _part(self, claim: Claim) -> _Part:
        """In coordinates m − c the price costs ⟨p, c⟩ less: subtracted exactly, it cannot cancel digits."""
        centre = self._rows.centre
        offset = sum(
            (Fraction(float(p)) * Fraction(float(c)) for row in claim.price for p, c in zip(row, centre)), Fraction(0)
        )
        cutoff = float(Fraction(claim.bound) - offset) - self.tolerance(claim)
        return _Part(claim, claim.boxes[0] - centre, claim.boxes[1] - centre, cutoff)

    def _search(self, parts: list[_Part], deadline: float) -> Iterator[tuple[_Part, int, Array]]:
        """Decided rows first; what stays open, again in the order for which the tails are known."""
        rows = self._rows
        outcome = search(rows.points, rows.weights, self._tasks(parts, True), self._rule, FEW, deadline=deadline)
        hard = []
        for b, part in enumerate(parts):
            if outcome.status[b] in (PROVED, ATTAINED):
                yield part, int(outcome.status[b]), outcome.centroids[b]
            else:
                hard.append(part)
        for part in hard:
            effort = MANY if part.halvings == 0 else MANY // 20
            task = self._tasks([part], False)
            single = search(rows.points, rows.weights, task, self._rule, effort, deadline=deadline)
            yield part, int(single.status[0]), single.centroids[0]

    def _tasks(self, parts: list[_Part], decided_first: bool) -> Tasks:
        rows = self._rows
        lower, upper = np.array([part.lower for part in parts]), np.array([part.upper for part in parts])
        y = rows.points[None, :, None, :]
        below, above = lower[:, None] - y, y - upper[:, None]
        nearest = (np.maximum(np.maximum(below, above), 0.0) ** 2).sum(axis=3)  # (B, J, K) squared distances to boxes
        farthest = (np.maximum(np.abs(below), np.abs(above)) ** 2).sum(axis=3)
        allowed = nearest <= farthest.min(axis=2, keepdims=True) * (1.0 + 1e-12)
        least = rows.weights * nearest.min(axis=2) * (1.0 - 1e-12)
        n_rows = len(rows.points)
        order = np.broadcast_to(np.arange(n_rows), (len(parts), n_rows))
        n_fixed = np.zeros(len(parts), np.int64)
        if decided_first:
            decided = allowed.sum(axis=2) == 1
            order, n_fixed = np.argsort(~decided, axis=1, kind="stable"), decided.sum(axis=1)
        tail = np.zeros((len(parts), n_rows + 1))
        tail[:, :-1] = np.cumsum(np.take_along_axis(least, order, axis=1)[:, ::-1], axis=1)[:, ::-1]
        if not decided_first:
            tail = np.maximum(tail, rows.tail)
        return Tasks(
            price=np.array([part.claim.price for part in parts]),
            lower=lower,
            upper=upper,
            cutoff=np.array([part.cutoff for part in parts]),
            allowed=allowed,
            order=order,
            n_fixed=n_fixed,
            tail=tail,
        )

    def _exactly_refuted(self, part: _Part, shifted: Array) -> Refuted | None:
        """Centroids found by the search violate the rule by rounding, perhaps: move them inwards a little."""
        found = np.clip(shifted + self._rows.centre, *part.claim.boxes)
        inner = found if self._rule.n_pairs == 0 else self._interior(part.claim.boxes)
        for share in (0.0, 1e-14, 1e-12, 1e-10, 1e-8, 1e-6):
            refuted = self._judged(part.claim, np.clip(found + share * (inner - found), *part.claim.boxes))
            if refuted is not None:
                return refuted
        return None

    def _interior(self, boxes: Array) -> Array:
        """Centroids in the boxes whose least slack, in units of the normals' lengths, is as large as possible."""
        rows = self._rule.coefficients.reshape(self._rule.n_pairs, -1)
        lengths = np.linalg.norm(rows, axis=1, keepdims=True)
        centre = np.tile(self._rows.centre, len(boxes[0]))
        sides = [(float(lo), float(hi)) for lo, hi in zip(boxes[0].ravel() - centre, boxes[1].ravel() - centre)]
        goal = np.append(np.zeros(len(sides)), -1.0)
        least = linprog(
            goal, A_ub=np.hstack([-rows, lengths]), b_ub=np.zeros(len(rows)), bounds=[*sides, (None, None)]
        )  # references are differences: the rule is the same in shifted coordinates
        inner = least.x[:-1] if least.status == 0 else 0.5 * (boxes[0] + boxes[1]).ravel() - centre
        return np.clip((inner + centre).reshape(boxes[0].shape), *boxes)

    def _judged(self, claim: Claim, centroids: Array) -> Refuted | None:
        """In the claim's own coordinates and in rational numbers."""
        m = [[Fraction(float(x)) for x in row] for row in centroids]
        for coefficients in self._rule.coefficients:
            slack = sum(Fraction(float(a)) * x for row, xs in zip(coefficients, m) for a, x in zip(row, xs))
            if slack < 0:
                return None
        cost = sum((Fraction(float(p)) * x for row, xs in zip(claim.price, m) for p, x in zip(row, xs)), Fraction(0))
        for y, w in zip(self._rows.points, self._rows.weights):
            point = [Fraction(float(a)) + Fraction(float(c)) for a, c in zip(y, self._rows.centre)]
            cost += Fraction(float(w)) * min(sum((a - x) ** 2 for a, x in zip(point, xs)) for xs in m)
        if cost >= Fraction(claim.bound):
            return None
        return Refuted(claim, centroids, float(cost))
