"""A site's rows with their private prices: coordinates, price vectors, columns and the boxes examined so far.

Nothing in here crosses but the sums that `protocol/messages.py` names. Prices never do: any prices λ ≥ 0 give a true
bound, so the only duty of this file is that the sums it returns belong to the prices it holds.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..core.arrays import Array
from ..core.errors import NodeRefused
from ..core.search import MULTIPLES, N_THRESHOLDS, SHIFT
from ..protocol.messages import (
    BoxSums,
    Claim,
    ClaimSums,
    ColumnSums,
    Coordinates,
    Examine,
    FindTriples,
    KeepPrices,
    Located,
    MakeColumns,
    MovePrices,
    Priced,
    PricesKept,
    StartPrices,
    Trim,
    Trimmed,
    TripleSums,
)
from .blocks import Blocks, neighbours
from .box_memory import BoxMemory, Inherited, Remembered
from .cloud import Cloud, fair_stride, first_prices
from .clumps import MOST_TIED, Clumps
from .columns import ColumnSets
from .guard import N_GROUPS, Guard
from .kernels.boxes import EPS, OFFSET, TINY, claim_boxes, examine_boxes
from .kernels.members import members_of
from .kernels.triples import leave_out, trim_triples
from .parallel import Pool, in_parallel
from .price_files import SitePrices
from .triples import Triples


def fewest_rows(weights: Array, of_rows: Array) -> Array:
    """How many rows it takes at least to have such a weight together; 0 for 0."""
    return np.asarray(np.ceil(weights / of_rows.max() * (1.0 - 1e-9)))


@dataclass
class PricedRows:
    """State of one run at one site; `coordinates` begins it."""

    x: Array  # rows of positive weight
    w: Array
    pool: Pool = None
    guard: Guard = field(default_factory=Guard)  # groups of few rows are not reported
    first: Array | None = None  # prices to begin with, of an earlier run; of squared distances in the rows' own units
    y: Array = field(default_factory=lambda: np.empty((0, 0)))
    slots: dict[int, Array] = field(default_factory=dict)
    boxes: BoxMemory = field(default_factory=BoxMemory)

    # ------------------------------------------------------------------ coordinates and prices

    def locate(self, request: Coordinates) -> Located:
        """y = (x − origin) · basis · scale, and what rounding it can cost (docs/numerics.md)."""
        offset = self.x - request.origin
        y = np.zeros_like(offset)
        for d in range(len(request.origin)):  # in this order: a checker then has the very same numbers
            y += offset[:, d : d + 1] * request.basis[d]
        y *= request.scale
        self.scale = request.scale
        if not np.isfinite(y).all():
            raise NodeRefused("rows overflow in the coordinates asked for")
        if len(y) > np.iinfo(np.int32).max:  # rows are named by 32 bits
            raise NodeRefused(f"{len(y)} rows are too many for one process; give them in parts (--workers)")
        self.order, starts = neighbours(y)
        rows, weights = np.ascontiguousarray(y[self.order]), np.ascontiguousarray(self.w[self.order])
        self._everything = Cloud(rows, weights, Blocks.of(rows, starts))
        self._groups = self._everything
        self.guard.see_located(rows, weights)
        self._work_on(self._grouped(fair_stride(request.stride, len(rows))))
        n_features = self.x.shape[1]
        exact = not request.origin.any() and np.array_equal(request.basis, np.eye(n_features))
        if exact:  # a power of two rounds nothing
            return Located(0.0)
        largest = np.abs(request.basis).max(initial=0.0) * request.scale
        errors = (n_features + 4) * EPS * largest * np.abs(offset).sum(axis=1) * np.sqrt(n_features)
        return Located(float(self.w @ errors**2 * (1.0 + (len(self.w) + 8) * 2 * EPS)) + TINY)

    def _work_on(self, cloud: Cloud) -> None:
        """These rows or groups, from now on; without prices and columns."""
        self.cloud, self.y, self.weights, self.blocks = cloud, cloud.y, cloud.w, cloud.blocks
        self.slots.clear()
        self.columns, self.triples = ColumnSets(cloud.w, self.pool), Triples(cloud.w, self.pool)
        self.boxes.forget()

    def _grouped(self, stride: int) -> Cloud:
        if stride == 1:
            return self._everything
        if self._groups.stride != stride:
            self._groups = self._everything.grouped(stride)
        return self._groups

    def start(self, request: StartPrices) -> Priced:
        if request.learnt >= 0:
            return self._carry_over(request)
        prices = self._first(request.centroids)
        if self.cloud.stride == 1:
            self.first = None  # once: they have been improved since
        return self._store(request.slot, prices)

    def _first(self, centroids: Array, rows: bool = False) -> Array:
        """First prices of what we work on, or of all rows: those of an earlier run, if there are any."""
        cloud = self._everything if rows else self.cloud
        if self.first is None:
            return first_prices(cloud.y, cloud.among(centroids))
        prices = np.maximum(self.first[self.order], 0.0) * self.scale**2
        return prices if cloud.stride == 1 else self._everything.means_of(cloud, prices)

    def _carry_over(self, request: StartPrices) -> Priced:
        """Prices and columns learnt on groups, for all rows; other prices of the groups are forgotten."""
        if self.cloud.stride == 1:
            raise NodeRefused("there are no groups of rows: these prices are those of all rows")
        rows, groups, learnt = self._everything, self.cloud, self._slot(request.learnt)
        first, self.first = self._first(request.centroids, rows=True), None
        columns = self.columns.spread_out(groups.stride, rows.w)
        self._work_on(rows)
        self.columns = columns
        return self._store(request.slot, rows.carried_over(groups, learnt, first))

    def move(self, request: MovePrices) -> Priced:
        moved = self.columns.moved(self._slot(request.centre), request.z, request.tau)
        of_triples = self.triples.moved(request.centre, request.z, request.tau)
        with np.errstate(over="ignore", invalid="ignore"):  # of prices that `_store` refuses
            good = self.triples.weight * of_triples.sum() <= 0.5 * float(self.weights @ moved)
        if not good:
            of_triples[:] = 0.0  # fees are for the few rows between clusters: these are no good
        return self._store(request.slot, moved, of_triples)

    def _store(self, slot: int, prices: Array, of_triples: Array | None = None) -> Priced:
        """All of it or, where it is refused, nothing: boxes remembered rest on prices and fees together."""
        if not np.isfinite(prices).all():
            raise NodeRefused("prices overflow")
        self.slots[slot] = prices
        self.triples.slots[slot] = np.zeros(len(self.triples)) if of_triples is None else of_triples
        if slot == self.boxes.slot:
            self.boxes.forget()
        of_columns = self.columns.prices(prices)
        if len(self.triples):
            of_columns = np.maximum(of_columns - self.triples.paid(slot), 0.0)
        return self.guard.priced(Priced(self.total(slot), of_columns))

    def total(self, slot: int) -> float:
        """Σ w λ − Σ φ, rounded down: all terms of either sum are positive."""
        prices, fees = self._slot(slot), self.triples.fees(slot)
        total = max(float(self.weights @ prices) * (1.0 - (len(prices) + 8) * 2 * EPS) - TINY, 0.0)
        return total - float(fees.sum()) * (1.0 + (len(fees) + 8) * 2 * EPS) - 2 * EPS * total * (len(fees) > 0)

    def _slot(self, slot: int) -> Array:
        if slot not in self.slots:
            raise NodeRefused(f"there are no prices {slot}")
        return self.slots[slot]

    def _proving_slot(self, slot: int) -> Array:
        """Prices of all rows: sums over groups prove nothing, so none are given where a proof could use them."""
        if self.cloud.stride > 1:
            raise NodeRefused("prices are being learnt on groups of rows; carry them over to all rows first")
        return self._slot(slot)

    # ------------------------------------------------------------------ columns

    def make_columns(self, request: MakeColumns) -> ColumnSums:
        prices, centre, n = self._slot(request.slot), self._slot(request.centre), len(request.points)
        new, points, blocks = self.columns.room_for(request.kept, n), self.cloud.among(request.points), self.blocks
        dearest, sums = blocks.greatest(prices), np.empty((5, n))  # rows, costs, sizes, prices, prices of the centre
        triples, clumps = self.triples, self.triples.paying(request.slot)

        def work(first: int, last: int) -> None:
            members_of(self.y, self.weights, prices, centre, blocks.starts, blocks.low, blocks.high, dearest, points,
                       first, last, new, sums)  # fmt: skip
            leave_out(self.y, self.weights, prices, centre, clumps.rows, clumps.masks, clumps.fees, points, first, last,
                      new, sums)  # fmt: skip

        in_parallel(work, n, self.pool, n * self.y.size // 4)
        self.columns.n_rows[len(self.columns) - n :] = sums[0]
        made = ColumnSums(sums[1], sums[2], self.columns.overlaps(n), sums[3], sums[4])
        if len(triples):
            made = triples.added_to(made, request, self.columns.bits)
        return self.guard.columns(made, self.columns.n_rows)

    def find_triples(self, request: FindTriples) -> TripleSums:
        """A site that does not tell groups of few rows makes none: sums over new triples would tell of such."""
        if len(request.z) != len(self.columns):
            raise NodeRefused(f"{len(request.z)} weights for {len(self.columns)} columns")
        allowed = self.cloud.stride == 1 and (self.guard.least <= 1 or self.guard.masked)
        before = len(self.triples)
        overlaps = self.triples.find(request.z, request.most if allowed else 0, self.columns.bits)
        self.boxes.forget()
        return TripleSums(float(len(self.triples) - before), overlaps)

    def trim(self, request: Trim) -> Trimmed:
        prices, cloud = self._slot(request.slot), self.cloud
        stride = fair_stride(request.stride, len(self.y))
        if cloud.stride == 1 and stride > 1:
            cloud, prices = self._everything.guess(self._grouped(stride), prices)
        points = cloud.among(request.points)
        values, weights, offsets = cloud.trim(points, prices, self.pool)
        if cloud is self.cloud and len(self.triples):
            clumps = self.triples.paying(request.slot)
            centres, reach = clumps.where_two_gain(self.y, prices)

            def work(first: int, last: int) -> None:
                trim_triples(self.y, self.weights, prices, clumps.rows, clumps.masks, clumps.fees, centres, reach,
                             points, first, last, values, weights, offsets)  # fmt: skip

            in_parallel(work, len(points), self.pool, len(points) * clumps.rows.size)
        told = Trimmed(values, weights, offsets[:, : request.points.shape[1]])
        return self.guard.trimmed(request, told, fewest_rows(weights, cloud.w))

    # ------------------------------------------------------------------ boxes

    def examine(self, request: Examine) -> BoxSums:
        prices, (n, n_features) = self._proving_slot(request.slot), request.lower.shape
        if request.slot != self.boxes.slot:
            self.boxes.forget(request.slot)
        clumps = self.triples.paying(request.slot)
        begin = Inherited.of([self._parent(int(parent), clumps) for parent in request.parents])
        kept, kept_lengths = np.empty(len(begin.rows), np.int32), np.empty(n, np.int64)
        out = BoxSums(
            minorants=np.empty((n, n_features + 2)),
            insides=np.empty((n, n_features + 2)),
            undecided=np.empty(n),
            worth=np.empty(n),
            cuts=np.empty((n, n_features, 2, N_THRESHOLDS, len(MULTIPLES))),
            scores=np.empty((n, n_features)),
        )
        groups = np.empty((n, N_GROUPS))
        multiples = np.array(MULTIPLES)

        def work(first: int, last: int) -> None:
            examine_boxes(self.y, self.weights, prices, request.lower, request.upper, request.held, request.steepness,
                          request.any_set, SHIFT, multiples, begin.rows, begin.starts, begin.lengths, begin.sums,
                          clumps.rows, clumps.masks, clumps.fees, begin.near, begin.near_starts, begin.near_lengths,
                          first, last, kept, kept_lengths, out.minorants, out.insides, out.undecided, out.worth,
                          out.cuts, out.scores, groups)  # fmt: skip

        in_parallel(work, n, self.pool, (len(begin.rows) + MOST_TIED * len(begin.near)) * n_features * 8)
        for b, key in enumerate(request.keys):
            self.boxes.keep(int(key), begin.remembered(b, kept, int(kept_lengths[b])))
        return self.guard.examined(request, out, groups, float(self.weights.sum()))

    def claim(self, request: Claim) -> ClaimSums:
        prices, (n, n_features) = self._proving_slot(request.slot), request.lower.shape
        if np.any(np.diff(request.cut_box) < 0) or np.any(request.cut_box < 0) or np.any(request.cut_box >= n):
            raise NodeRefused("cuts must be sorted by their box")
        if np.any(request.cut_axis < 0) or np.any(request.cut_axis >= n_features):
            raise NodeRefused("a cut names a coordinate that does not exist")
        cut_first = np.searchsorted(request.cut_box, np.arange(n + 1)).astype(np.int64)
        out = ClaimSums(np.empty((n, n_features + 2)), np.empty((n, n_features + 2)), np.empty(len(request.cut_box)))
        groups, blocks, dearest = np.empty((n, N_GROUPS)), self.blocks, self.blocks.greatest(prices)
        clumps = self.triples.paying(request.slot)
        tied = np.zeros(len(self.y), np.bool_)
        tied[clumps.tied] = True

        def work(first: int, last: int) -> None:
            claim_boxes(self.y, self.weights, prices, request.lower, request.upper, request.held, SHIFT, blocks.starts,
                        blocks.low, blocks.high, dearest, clumps.rows, clumps.masks, clumps.fees, tied, cut_first,
                        request.cut_axis, request.cut_side, request.cut_at, request.cut_mu, first, last, out.minorants,
                        out.insides, out.cuts, groups)  # fmt: skip

        in_parallel(work, n, self.pool, n * self.y.size)
        return self.guard.claimed(request, out, groups)

    def _parent(self, key: int, clumps: Clumps) -> Remembered:
        """What a box begins with: its parent, if that is remembered, else all rows."""
        known = self.boxes.get(key)
        if known is not None:
            return known
        rows = np.delete(np.arange(len(self.y), dtype=np.int32), clumps.tied)
        return Remembered(rows, np.zeros(OFFSET + 2 * self.y.shape[1]), np.arange(len(clumps), dtype=np.int32))

    # ------------------------------------------------------------------ what stays at the site

    def keep(self, request: KeepPrices, path: Path | None) -> PricesKept:
        """Prices of the slots to the private file, and their digest to the certificate."""
        kept = self.prices_of(request.slots)
        kept.write(path)
        return PricesKept(kept.digest, np.array([self.total(int(slot)) for slot in request.slots]))

    def prices_of(self, slots: NDArray[np.int64]) -> SitePrices:
        """In the rows' own order."""
        kept, fees = np.empty((len(slots), len(self.x))), np.empty((len(slots), len(self.triples)))
        for i, slot in enumerate(slots):
            kept[i, self.order] = self._proving_slot(int(slot))
            fees[i] = self.triples.fees(int(slot))
        return SitePrices.of(kept, self.order[self.triples.rows], fees)
