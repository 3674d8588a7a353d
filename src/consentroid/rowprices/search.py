"""Is f(m) = Σ_j w_j min(0, |y_j − m|² − λ_j) at least t everywhere in a cell? Boxes in D dimensions.

Batches of open boxes go to the sites, the worst bound first; `judge.py` closes a box, cuts slabs off it, or splits it.
Points that look as if f were below t there ride along with the next batch; if one is, the prices can be improved, and
the search ends with it. Whenever it ends, the least bound of the boxes still open is proven.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from ..core.arrays import Array
from ..core.kernel_cache import drop_stale
from ..core.search import MULTIPLES, SHIFT
from ..protocol.messages import BoxSums, Examine, PriceQuery, Trim, Trimmed
from .cells import Cell
from .judge import CLOSED, CLOSED_BY_CUT, OPEN, judge_boxes
from .judge import NO_CUT as NOTHING
from .judge import STATIONARY as STATIONARY_CUT
from .session import OutOfTime, Session
from .tree import COST, STATIONARY, Cut, SearchTree

drop_stale("rowprices")

REVISIT = 0.5  # a box cut to less than this share of its volume is examined again before it is split
MOST_BOXES = 1024  # of one exchange
NUMBERS_PER_BATCH = 8e6  # rows times features that an exchange looks at; never by the clock: runs can be repeated
CERTIFICATE_SHARE = 0.6  # of a search's time that asking about its boxes once more can take
TRIED = 16  # points of one batch that are tried out
FUTILE = 0.25  # of what a box lacks: where smaller boxes could win no more than that, it is left


@dataclass
class Outcome:
    target: float
    proven: float  # f ≥ proven in the whole cell; never above `target`
    tree: SearchTree
    below: Array  # (n, D) points where f is below the target: columns that were missed
    complete: bool
    stuck: bool  # boxes were left since no smaller ones could do better: what sites round off is more than was to spare


@dataclass
class Judged:
    """What `judge_boxes` says of a batch."""

    bounds: Array
    points: Array
    verdicts: NDArray[np.int64]
    closing_axis: NDArray[np.int64]
    closing_side: NDArray[np.int64]
    closing_mu: Array
    kinds: NDArray[np.int64]  # (B, D, 2)
    thresholds: Array
    mus: Array
    lower: Array
    upper: Array
    shrunk: Array
    axes: NDArray[np.int64]

    @classmethod
    def of(
        cls,
        lower: Array,
        upper: Array,
        held: NDArray[np.bool_],
        cell: Cell,
        root: Cell,
        sums: BoxSums,
        steepness: Array,
        target: float,
    ) -> Judged:
        n, n_features = lower.shape
        low, high = cell.faces(root)
        shape = (n, n_features)
        out = cls(
            np.empty(n), np.empty(shape), np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n, np.int64),
            np.empty(n), np.empty((*shape, 2), np.int64), np.empty((*shape, 2)), np.empty((*shape, 2)),
            np.empty(shape), np.empty(shape), np.empty(n), np.empty(n, np.int64),
        )  # fmt: skip
        judge_boxes(
            lower, upper, held, low & (lower == cell.lower), high & (upper == cell.upper), sums.minorants, sums.insides,
            sums.cuts, sums.scores, steepness, np.array(MULTIPLES), SHIFT, target, out.bounds, out.points, out.verdicts,
            out.closing_axis, out.closing_side, out.closing_mu, out.kinds, out.thresholds, out.mus, out.lower,
            out.upper, out.shrunk, out.axes,
        )  # fmt: skip
        return out

    def cuts(self) -> list[list[Cut]]:
        """The cuts of every box, as the tree records them."""
        box, axis, side = np.nonzero(self.kinds != NOTHING)
        kinds = np.where(self.kinds[box, axis, side] == STATIONARY_CUT, STATIONARY, COST)
        at, mu = self.thresholds[box, axis, side], self.mus[box, axis, side]
        every = list(zip(kinds.tolist(), axis.tolist(), side.tolist(), at.tolist(), mu.tolist(), strict=True))
        ends = np.searchsorted(box, np.arange(len(self.bounds) + 1)).tolist()
        return [every[first:last] for first, last in pairwise(ends)]


class CellSearch:
    """One search; `run` is its loop."""

    any_set = False  # whether boxes are bounded for all sets of rows, not only for those that f chooses

    def __init__(
        self,
        session: Session,
        cell: Cell,
        root: Cell,
        slot: int,
        target: float,
        steepness: float,
        to_the_end: bool = False,
    ) -> None:
        self.session, self.cell, self.root, self.slot, self.target = session, cell, root, slot, target
        self.aim = target  # the target may fall
        self.to_the_end = to_the_end  # also where f is below the target: what holds is wanted, not better prices
        self.tree = SearchTree()
        first = self.tree.add(cell.lower, cell.upper)
        # open boxes: number, bound known before it is examined, steepness, number of the parent (−1: none)
        self.open: list[tuple[float, int, float, int]] = [(-np.inf, first, steepness, -1)]
        self.settled = np.inf  # least bound of boxes that can be neither closed nor split
        self.futile: list[Array] = []  # points of boxes that are left as they are
        self.to_try = np.empty((0, len(cell.lower)))
        self.below: list[Array] = []
        self._base = session.boxes_done + 1  # names of boxes are never used twice in a run
        self._size = 4
        self._doubt: dict[int, float] = {-1: 1.0}  # share of all rows that a box leaves undecided
        self._until = 0

    def run(self) -> Outcome:
        complete, self.session.reserve, self.session.missing = True, 0.0, np.inf
        try:
            while self.open and (not self.below or len(self.tree) < self._until):
                self.session.check_time()
                self._round()
            if self.open or len(self.to_try) or self.futile:
                self._try_out()
        except OutOfTime:
            complete = False
        proven = min([self.target, self.settled, *(box[0] for box in self.open)])
        below = np.array(self.below).reshape(-1, len(self.cell.lower))
        return Outcome(self.aim, proven, self.tree, below, complete and not self.open, bool(self.futile))

    def _round(self) -> None:
        """Examine a batch, judge it, keep what is left."""
        session, began = self.session, time.perf_counter()
        self.open.sort(reverse=True)
        session.missing = (self.target - self.open[-1][0]) * self.cell.count / session.axes.norm**2
        batch = self._next_batch()
        lower = np.array([self.tree.lower[box[1]] for box in batch])
        upper = np.array([self.tree.upper[box[1]] for box in batch])
        steepness = np.array([box[2] for box in batch])
        try:
            sums, tried = self._ask(batch, lower, upper, steepness)
        except BaseException:
            self.open += batch  # nothing was learned about them
            raise
        judged = Judged.of(lower, upper, self._held(lower, upper), self.cell, self.root, sums, steepness, self.target)
        self._take_tried(tried)
        steeper = np.where(sums.worth > 0, sums.undecided / np.maximum(sums.worth, 1e-300), steepness)
        cuts = judged.cuts()
        # f ≤ I at the centre: no box that holds it proves more. If f is not below the target there, sites round so much
        worth, lacks = sums.worth + sums.minorants[:, -1] - judged.bounds, self.target - judged.bounds
        futile = (judged.verdicts == OPEN) & (np.maximum(sums.insides[:, -1] - judged.bounds, worth) <= FUTILE * lacks)
        futile &= not self.any_set  # then no box may be given up: what is left is the answer
        for b, box in enumerate(batch):
            if futile[b] and np.isfinite(judged.bounds[b]):
                self.futile += [judged.points[b], 0.5 * (lower[b] + upper[b])]
                self.target = min(self.target, float(judged.bounds[b]))  # no more can be proven: no box needs more
            elif judged.verdicts[b] != CLOSED:
                self._settle(b, box[1], judged, cuts[b], float(steeper[b]))
        if self.futile:
            self.open = [box for box in self.open if box[0] < self.target]
        still = np.flatnonzero(judged.verdicts == OPEN)
        promising = still[np.argsort(judged.bounds[still])[:TRIED]]
        self.to_try = np.clip(judged.points[promising], self.cell.lower, self.cell.upper)
        session.boxes_done += len(batch)
        session.boxes_open = len(self.open)
        took = time.perf_counter() - began
        session.reserve += 0.0 if self.any_set else CERTIFICATE_SHARE * took
        doubt = sums.undecided / session.weight
        self._doubt |= {box[1]: float(doubt[b]) for b, box in enumerate(batch)}
        session.note()

    def _next_batch(self) -> list[tuple[float, int, float, int]]:
        """The worst boxes: four times as many as before, as long as there are not too many rows to look at."""
        session, numbers = self.session, 0.0
        batch: list[tuple[float, int, float, int]] = []
        while self.open and len(batch) < self._size and numbers < NUMBERS_PER_BATCH:
            batch.append(self.open.pop())
            share = 1.0 if self.any_set else min(self._doubt[batch[-1][3]], 1.0)
            numbers += share * session.n_rows * len(self.cell.lower)
        self._size = int(min(4 * len(batch), MOST_BOXES, session.allowance.boxes_at_once))
        session.looked += numbers
        return batch

    def _ask(
        self, batch: list[tuple[float, int, float, int]], lower: Array, upper: Array, steepness: Array
    ) -> tuple[BoxSums, Trimmed | None]:
        numbers = np.array([box[1] for box in batch], dtype=np.int64)
        parents = np.array([box[3] for box in batch], dtype=np.int64)
        query = PriceQuery(
            0,
            trim=Trim(self.slot, self.to_try) if len(self.to_try) else None,
            examine=Examine(
                self.slot, lower, upper, self._held(lower, upper), steepness, self._base + numbers,
                np.where(parents >= 0, self._base + parents, -1), self.any_set,
            ),
        )  # fmt: skip
        reply = self.session.totals.ask(query)
        assert reply.boxes is not None
        return reply.boxes, reply.trimmed

    def _held(self, lower: Array, upper: Array) -> NDArray[np.bool_]:
        """Coordinates in which a box of positive width touches an inner face of the cell."""
        low, high = self.cell.faces(self.root)
        touches = (low & (lower == self.cell.lower)) | (high & (upper == self.cell.upper))
        return np.asarray(touches & (upper > lower))

    def _settle(self, b: int, box: int, judged: Judged, cuts: list[Cut], steepness: float) -> None:
        """Record what was shown about a box that is not closed by its bound, and open what is left of it."""
        if judged.verdicts[b] == CLOSED_BY_CUT:
            axis, side = int(judged.closing_axis[b]), int(judged.closing_side[b])
            at = float((self.tree.lower if side == 0 else self.tree.upper)[box][axis])
            self.tree.closing[box] = (STATIONARY, axis, side, at, float(judged.closing_mu[b]))
            return
        if cuts:
            self.tree.cuts[box] = cuts
        lower, upper, bound, axis = judged.lower[b], judged.upper[b], float(judged.bounds[b]), int(judged.axes[b])
        if cuts and (judged.shrunk[b] < REVISIT or axis < 0):
            child = self.tree.add(lower, upper)
            self.tree.children[box] = (child,)
            self.open.append((bound, child, steepness, box))
            return
        if axis < 0:  # no number lies between its sides
            self.settled = min(self.settled, bound)
            return
        value = 0.5 * (lower[axis] + upper[axis])
        below, above = upper.copy(), lower.copy()
        below[axis] = above[axis] = value
        self.tree.splits[box] = (axis, float(value))
        children = (self.tree.add(lower, below), self.tree.add(above, upper))
        self.tree.children[box] = children
        self.open += [(bound, child, steepness, box) for child in children]

    def _take_tried(self, tried: Trimmed | None) -> None:
        if tried is None or self.to_the_end:
            return
        for point, value, weight, offset in zip(self.to_try, tried.values, tried.weights, tried.offsets, strict=True):
            if value < self.aim and weight > 0:
                if not self.below:  # a little further for more of them: the next search begins anew
                    self._until = max(int(1.1 * len(self.tree)), 4000)
                self.below.append(np.clip(point + offset / weight, self.cell.lower, self.cell.upper))

    def _try_out(self) -> None:
        if self.futile:  # f may really be below the target there
            self.to_try = np.concatenate([self.to_try, np.clip(self.futile, self.cell.lower, self.cell.upper)])
        if len(self.to_try) and not self.below:
            self._take_tried(self.session.totals.ask(PriceQuery(0, trim=Trim(self.slot, self.to_try))).trimmed)
            self.to_try = self.to_try[:0]
