"""Walks the tree of boxes of one cell and finds the t for which it proves: f(m) ≥ t for every m in the cell.

Each record states that no minimiser m of f over the cell with f(m) < t lies in a part of the box. `t` starts at the
certificate's target and is lowered to whatever a record really proves, so no tolerance is ever granted: a leaf that is
short by rounding lowers t by that much, and one that proves nothing lowers it to −inf. A minimiser over the cell is the
weighted mean of the rows S that it serves, except in coordinates where it lies on an *inner face* of the cell (a side
that is not a side of the root box), where the mean lies on or beyond the face.

The walk keeps one box and undoes its changes on the way back; rows decided for a box stay decided in it. Memory grows
with the records and rows, never with depth times either.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..certificate.document import (
    CLOSED,
    CLOSED_BY_CUT,
    COST_CUT,
    SHRUNK,
    SPLIT,
    STATIONARY_CUT,
    BoxTree,
    CellProof,
)
from ..core.arrays import Array
from ..core.errors import CertificateInvalid
from .kernels import FLOOR, UNIT, add_fees, box_sums, classify, cut_sums, frame, least_value, worst_excess
from .stored_prices import StoredPrices, clumps_of

CLAIM_LIMIT = 1e-9  # relative: a claim that the rows miss by more is false, by less is rounding


@dataclass(frozen=True)
class Rows:
    """Rows of all sites whose rows and prices are given, one after the other."""

    y: Array  # (n, D)
    w: Array  # (n,)
    site: NDArray[np.int64]  # (n,) index into `sites`
    sites: NDArray[np.int64]  # (P,) their place in the certificate
    absent: NDArray[np.int64]  # the other sites' places
    error: Array  # (n,) of the coordinates: another machine's may differ by so much


@dataclass(frozen=True)
class PriceVector:
    """Prices of these rows in one leaf, and fees of triples of them; each triple's rows are of one site."""

    rows: Array  # (n,)
    clumps: NDArray[np.int64]  # (C, R) places among the rows of triples that hang together, −1 where they are fewer
    masks: NDArray[np.int64]  # (C, Q) a bit for each of these that a triple has
    fees: Array  # (C, Q) 0 where triples are fewer
    tied: NDArray[np.bool_]  # (n,) whether a row is in one of them

    @classmethod
    def of(cls, prices: Sequence[StoredPrices], number: int) -> PriceVector:
        """Vector `number` of every site, one after the other."""
        vectors = [one.rows[number] for one in prices]
        before = np.cumsum([0, *(len(vector) for vector in vectors)])
        triples = [one.triples[one.fees[number] > 0.0] + at for one, at in zip(prices, before, strict=False)]
        fees = [one.fees[number][one.fees[number] > 0.0] for one in prices]
        rows = np.concatenate([*vectors, np.empty(0)])
        three = np.concatenate([*triples, np.empty((0, 3), np.int64)])
        tied = np.zeros(len(rows), np.bool_)
        tied[three.ravel()] = True
        return cls(rows, *padded(three, np.concatenate([*fees, np.empty(0)])), tied)


def padded(triples: NDArray[np.int64], fees: Array) -> tuple[NDArray[np.int64], NDArray[np.int64], Array]:
    """Clumps, masks and fees of triples."""
    found = clumps_of(triples)
    n_rows, n_triples = (max((len(part) for part in parts), default=0) for parts in (found, found.values()))
    clumps = np.full((len(found), n_rows), -1, np.int64)
    masks, due = np.zeros((len(found), n_triples), np.int64), np.zeros((len(found), n_triples))
    for c, (rows, numbers) in enumerate(found.items()):
        clumps[c, : len(rows)] = rows
        for t, number in enumerate(numbers):
            masks[c, t] = sum(1 << rows.index(j) for j in triples[number].tolist())
            due[c, t] = fees[number]
    return clumps, masks, due


@dataclass(frozen=True)
class CheckScales:
    """Per site, what claims are compared by: its Σ w λ, and what the rounding of coordinates can do to them.

    Nothing that is proven depends on these: they only say what counts as a false claim.
    """

    quadratic: Array  # (P,)
    linear: Array  # (P,) for Σ w (y − T)
    priced: Array  # (P,) for Σ w (λ − a), times μ

    @classmethod
    def of(cls, rows: Rows, prices: PriceVector, totals: Array) -> CheckScales:
        mass = 4.0 / CLAIM_LIMIT * rows.w * rows.error
        linear, priced = np.zeros(len(rows.sites)), np.zeros(len(rows.sites))
        np.add.at(linear, rows.site, mass)
        np.add.at(priced, rows.site, mass * np.sqrt(prices.rows))
        return cls(np.maximum(totals + 2.0 * priced, 1e-300), linear, priced)


class CellCheck:
    """One cell's tree of boxes under one vector of prices."""

    def __init__(
        self, cell: CellProof, tree: BoxTree, root: Array, shift: float, rows: Rows, prices: PriceVector,
        scales: CheckScales, place: str, tick: Callable[[], None],
    ) -> None:  # fmt: skip
        n_features = len(cell.lower)
        self.tree, self.rows, self.scales = tree, rows, scales
        self.prices, self.vector = prices.rows, prices
        self.shift, self.place, self.tick = shift, place, tick
        self.cell = np.stack([cell.lower, cell.upper])
        self.inner = np.stack([cell.lower > root[0], cell.upper < root[1]])
        self.t = cell.target
        self.box = self.cell.copy()  # the box that the walk is at
        self.order = np.arange(len(rows.y), dtype=np.int64)
        self.first, self.last = 0, len(rows.y)  # undecided rows are order[first:last]
        self.least = np.zeros(len(rows.y))
        self.frame = np.empty((4, n_features))
        self.width = n_features + 2
        self.own = np.zeros((len(rows.sites), 2 * self.width))
        self.numbers = np.zeros((len(rows.sites) + len(rows.absent), 2 * self.width))
        self.minorants, self.insides = self.numbers[:, : self.width], self.numbers[:, self.width :]
        self.gamma, self.size = np.zeros(len(rows.sites)), np.zeros(len(rows.sites))
        self.worst = np.full(len(rows.sites), -np.inf)  # relative excess of each site's claims over its own numbers
        self.above = np.zeros(len(rows.sites))  # of the claimed in-rows' quadratic over its own, on the present box
        self.at, self.n_boxes = 0, 0
        # plain lists: an entry of an array takes ten times as long to look up
        self.kind, self.axis, self.side = tree.kind.tolist(), tree.axis.tolist(), tree.side.tolist()
        self.value, self.mu = tree.value.tolist(), tree.mu.tolist()

    def run(self) -> float:
        """The proven t; raises `CertificateInvalid` where the records are no proof at all."""
        pending: list[tuple[int, int, float, int, int]] = []  # upper children: trail, axis, value, rows
        trail: list[tuple[int, int, float]] = []  # changes of the box: side, axis, what was there
        while True:
            self.tick()
            closed = self._is_empty()
            if closed:
                self._next(CLOSED)  # cuts crossed, nothing is left: the record is about no point at all
                self.n_boxes += 1
            else:
                kind = self._next()
                if kind == SPLIT:
                    axis, value = self._axis(), self._inside_box()
                    self._classify()
                    pending.append((len(trail), axis, value, self.first, self.last))
                    self._move(trail, 1, axis, value)
                elif kind == CLOSED:
                    self._sums()
                    self.t = min(self.t, least_value(self.minorants, self.frame, True, -1, 0.0, 0.0))
                    self._count(0)
                    closed = True
                elif kind == CLOSED_BY_CUT:
                    self._closed_by_cut()
                    closed = True
                elif kind in (STATIONARY_CUT, COST_CUT):
                    self._run_of_cuts(trail)
                else:
                    raise self._invalid("ends a run of cuts that did not begin")
            if closed:
                if not pending:
                    break
                length, axis, value, self.first, self.last = pending.pop()
                while len(trail) > length:
                    side, changed, before = trail.pop()
                    self.box[side, changed] = before
                self._move(trail, 0, axis, value)
        if self.at != len(self.kind):
            raise CertificateInvalid(f"{self.place}: {len(self.kind) - self.at} records follow the end of the tree")
        if self.tree.claims is not None and self.n_boxes != len(self.tree.claims):
            raise CertificateInvalid(
                f"{self.place}: claims for {len(self.tree.claims)} boxes, there are {self.n_boxes}"
            )
        return self.t

    # ------------------------------------------------------------------ records

    def _next(self, expected: int | None = None) -> int:
        if self.at >= len(self.kind):
            raise CertificateInvalid(f"{self.place}: the records end before the tree does")
        self.at += 1
        kind: int = self.kind[self.at - 1]
        if expected is not None and kind != expected:
            raise self._invalid(f"is of kind {kind}, {expected} is due")
        return kind

    def _invalid(self, what: str) -> CertificateInvalid:
        return CertificateInvalid(f"{self.place}: record {self.at - 1} {what}")

    def _axis(self) -> int:
        axis: int = self.axis[self.at - 1]
        return axis

    def _inside_box(self) -> float:
        """The record's value, which must lie within the box."""
        axis, value = self.axis[self.at - 1], self.value[self.at - 1]
        if not self.box[0, axis] <= value <= self.box[1, axis]:
            raise self._invalid(f"has the value {value!r}, outside its box")
        return float(value)

    def _is_empty(self) -> bool:
        return bool((self.box[0] > self.box[1]).any())

    def _move(self, trail: list[tuple[int, int, float]], side: int, axis: int, value: float) -> None:
        trail.append((side, axis, float(self.box[side, axis])))
        self.box[side, axis] = value

    def _run_of_cuts(self, trail: list[tuple[int, int, float]]) -> None:
        """All cuts are judged on the box as it was; then what they remove is taken away together."""
        self._sums()
        inside = least_value(self.insides, self.frame, False, -1, 0.0, 0.0)
        cuts, n_sums = [], 0
        kind = self.kind[self.at - 1]
        while kind != SHRUNK:
            self.tick()
            axis, side, value = self._axis(), self.side[self.at - 1], self._inside_box()
            if kind == STATIONARY_CUT:
                # what is left includes the value itself, so nothing on a face is ever removed here
                self._stationary(axis, side, value, self.mu[self.at - 1], inside, n_sums)
                n_sums += 1
            elif kind == COST_CUT:
                offset = value - self.frame[0, axis]
                slack = abs(offset) * 4.0 * UNIT + FLOOR
                low, high = (offset - slack, math.inf) if side == 0 else (-math.inf, offset + slack)
                self.t = min(self.t, least_value(self.minorants, self.frame, True, axis, low, high))
            else:
                raise self._invalid(f"of kind {kind} stands in a run of cuts")
            cuts.append((axis, side, value))
            kind = self._next()
        self._count(n_sums)
        for axis, side, value in cuts:
            if side == 0 and value < self.box[1, axis]:
                self._move(trail, 1, axis, value)
            elif side == 1 and value > self.box[0, axis]:
                self._move(trail, 0, axis, value)

    def _closed_by_cut(self) -> None:
        axis, side = self._axis(), self.side[self.at - 1]
        on_face = self.box[side, axis] == self.cell[side, axis] and self.inner[side, axis]
        if on_face:
            raise self._invalid("closes a box by a cut at an inner face of its cell, where minimisers may lie")
        self._sums()
        inside = least_value(self.insides, self.frame, False, -1, 0.0, 0.0)
        self._stationary(axis, side, float(self.box[side, axis]), self.mu[self.at - 1], inside, 0)
        self._count(1)

    def _stationary(self, axis: int, side: int, value: float, mu: float, inside: float, number: int) -> None:
        """No minimiser beyond the value has f < t, if Σ γ − μ (inside − t) < 0; t is lowered until that holds."""
        rows = self.rows
        sign = 1.0 if side == 0 else -1.0
        cut_sums(rows.y, rows.w, self.prices, rows.site, self.order, self.first, self.last, self.least,
                 axis, sign, value, mu, self.gamma, self.size)  # fmt: skip
        terms = self.gamma.tolist()
        claims = self.tree.claims
        if claims is not None:
            place = 2 * self.width + number
            if place >= claims.shape[2]:
                raise self._invalid("has no stationarity sum among the claims")
            of_box = (
                claims[self.n_boxes, :, place] if self.n_boxes < len(claims) else np.full(len(self.numbers), np.inf)
            )
            terms += of_box[rows.absent].tolist()
            # γ − μ · (in-rows) is what must not be less than the rows say
            with np.errstate(over="ignore", invalid="ignore"):
                more = (self.gamma - of_box[rows.sites] + (mu * self.above if mu > 0.0 else 0.0)) / (
                    self.size + self.scales.linear + mu * (self.scales.priced + self.scales.quadratic) + FLOOR
                )
            self.worst = np.where(more <= self.worst, self.worst, np.where(more == more, more, np.inf))
        if any(not math.isfinite(term) for term in terms):
            raise self._invalid("has a stationarity sum that is no number")
        total = math.fsum(terms)
        for _ in range(3):
            g = total - mu * (inside - self.t)
            error = 8.0 * UNIT * (abs(total) + mu * (abs(inside) + abs(self.t))) + FLOOR
            if math.isfinite(g) and math.isfinite(error) and g + error < 0.0:
                return
            if not (mu > 0.0 and math.isfinite(g + error)):
                break
            self.t -= (g + 2.0 * error) / mu * (1.0 + 1e-12) + abs(self.t) * 2.0 * UNIT + FLOOR
        raise self._invalid("is a stationarity cut that does not hold")

    # ------------------------------------------------------------------ sums over rows

    def _classify(self) -> None:
        self.first, self.last = classify(
            self.rows.y, self.prices, self.vector.tied, self.box[0], self.box[1], self.order, self.first, self.last,
            self.least,
        )  # fmt: skip

    def _sums(self) -> None:
        """`numbers`: what the rows say where they are given, what is claimed for the other sites."""
        rows, claims = self.rows, self.tree.claims
        frame(self.box[0], self.box[1], self.cell, self.inner, self.shift, self.frame)
        self._classify()
        box_sums(rows.y, rows.w, self.prices, rows.site, self.order, self.first, self.last, self.frame, self.own)
        add_fees(rows.y, rows.w, self.prices, rows.site, self.vector.clumps, self.vector.masks, self.vector.fees,
                 self.frame, self.own)  # fmt: skip
        self.numbers[rows.sites] = self.own
        if claims is None:
            return
        if self.n_boxes >= len(claims):
            raise self._invalid("is about a box for which there are no claims")
        of_box = claims[self.n_boxes]
        if len(rows.absent):
            self.numbers[rows.absent] = of_box[rows.absent, : 2 * self.width]
        worst_excess(of_box, self.own, rows.sites, self.scales.quadratic, self.frame, self.worst, self.above)

    def _count(self, n_sums: int) -> None:
        """A box is done: its claims must be true up to rounding."""
        if self.tree.claims is not None and not bool((self.worst <= CLAIM_LIMIT).all()):
            site = int(self.rows.sites[int(np.argmax(~(self.worst <= CLAIM_LIMIT)))])
            raise CertificateInvalid(f"{self.place}: box {self.n_boxes}, claims of site {site}: its rows say less")
        self.n_boxes += 1
