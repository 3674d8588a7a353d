"""Groups of few rows are not reported, and sums lie on a grid; every bound stays true: a guard costs gap, never truth.

A group is the set of rows behind a number. Two things are kept from a coordinator: what the difference of two groups
tells about one row (`grain.py`: all sums lie on a fixed grid), and groups of fewer than `least` rows: *small* ones.
Under masks nobody sees a site's own groups, only those of all sites together: there the vector sums of small groups are
told in steps four times as coarse. In the open small groups are not told:

* Steps of trimmed Lloyd, columns and clusters prove nothing: weights, overlaps and offsets are told as if the few rows
  were not there, only values and prices with them. Costs are of all rows, rounded up to thirteen binary digits.
* In-rows of a box are treated as undecided rows if they are few: they could be. Their quadratic I is told no more (0
  claims nothing), and every cut is raised by μ max(0, −min I), the most that they can pay:
      Σ_in w s(y − T) − μ I(m)  ≤  Σ_in w s(y − T) + μ max(0, −min I).
* Undecided rows that count in the minorant, if they are few, contribute one number, their least value within the box,
  rounded down.

Always: what few undecided rows add to a cut is told in three binary digits and coarse steps, rounded up; their weight
and worth as powers of two, those of many in three binary digits: they steer a search. Where to split is answered by the
box's own widths if the rows are few; those everybody knows. A claim is rounded once and what was examined twice: a cut
at the root of a secant is then no worse than it. (Among many undecided rows a cut may rest on few of them:
docs/disclosure.md.)

Everything here works on the sums that the kernels return; `groups` holds, for each box: numbers of in-rows, of
undecided rows, and of those that count in the minorant, and Σ_in w λ.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..core.arrays import Array
from ..core.search import MULTIPLES, SHIFT
from ..protocol.messages import (
    BoxSums,
    Claim,
    ClaimSums,
    ColumnSums,
    Evaluate,
    Evaluated,
    Examine,
    Priced,
    Trim,
    Trimmed,
)
from .grain import EPS, Grain, costs_above, costs_below, digits_above, on_grid, power_above

GRAIN = 0.25  # of a row's spread: the default step of sums
FEW = 4.0  # steps that vector sums of few rows are told in
N_INSIDE, N_UNDECIDED, N_ACTIVE, INSIDE_PRICES = range(4)
N_GROUPS = 4
Counts = NDArray[np.int64] | Array
Marks = NDArray[np.bool_]


class Guard:
    """One for each site; `least` = 1 reports everything as it is. `grain`: the step of sums, in spreads of a row.
    `masked`: what is told here is masked before it leaves."""

    def __init__(self, least: int = 1, grain: float = GRAIN, masked: bool = False) -> None:
        self.least, self.masked = least, masked
        self.share = grain if least > 1 else 0.0
        self._features = self._located = Grain.of(np.empty((0, 0)), np.empty(0), 0.0)
        self._smallest: int | None = None

    def see_rows(self, x: Array, weights: Array) -> None:
        """The rows in their own features: for candidates."""
        self._features = Grain.of(x, weights, self.share)

    def see_located(self, y: Array, weights: Array) -> None:
        """The rows in the coordinates of a search: for everything else."""
        self._located = Grain.of(y, weights, self.share)

    def take_smallest(self) -> int | None:
        """The smallest group reported since the last call, for the site's log."""
        smallest, self._smallest = self._smallest, None
        return smallest

    def note(self, counts: Counts) -> None:
        """These groups are reported."""
        seen = np.asarray(counts)[np.asarray(counts) > 0]
        if len(seen):
            least = int(seen.min())
            self._smallest = least if self._smallest is None else min(self._smallest, least)

    # ------------------------------------------------------------------ what proves nothing

    def evaluated(self, request: Evaluate, sums: Evaluated, rows: Counts) -> Evaluated:
        """`rows` in each cluster (C, K). In the open small clusters are left out, and the smallest of the others too
        where few rows would be all that is missing: sums over all rows are known, and the difference would tell."""
        if self.least <= 1:
            self.note(rows)
            return sums
        few = self._few(rows)
        for one, counts in zip(few, np.asarray(rows), strict=True):
            others = np.where(one | (counts == 0), np.inf, counts)
            if 0 < counts[one].sum() < self.least and np.isfinite(others).any():
                one[int(np.argmin(others))] = True
        hidden = self._hidden(few, rows)
        offsets = self._features.vectors(sums.counts, sums.offsets, request.candidates, _coarse(few))
        return Evaluated(
            costs_above(sums.costs) if self.share > 0.0 else sums.costs,
            np.where(hidden, 0.0, sums.counts),
            np.where(hidden[:, :, None], 0.0, offsets),
            np.where(hidden, 0.0, digits_above(sums.spreads, 3)),
        )

    def trimmed(self, request: Trim, sums: Trimmed, rows: Counts) -> Trimmed:
        """Of few rows only f is told in the open, without weight and offset: others may show the way."""
        few = self._few(rows)
        hidden = self._hidden(few, rows)
        offsets = self._located.vectors(sums.weights, sums.offsets, request.points, _coarse(few))
        return Trimmed(
            self._located.scalars(sums.values),
            np.where(hidden, 0.0, sums.weights),
            np.where(hidden[:, None], 0.0, offsets),
        )

    def columns(self, sums: ColumnSums, rows: Counts) -> ColumnSums:
        """`rows` of all columns, the new ones last. In the open the weight of few rows is told as 0, alone and shared:
        so it would be if they were in no column, hence no weights contradict each other. Their prices move all the
        same."""
        hidden, first = self._hidden(self._few(rows), rows), len(rows) - len(sums.sizes)
        return ColumnSums(
            self._located.scalars(sums.costs),
            np.where(hidden[first:], 0.0, sums.sizes),
            np.where(hidden[first:, None] | hidden, 0.0, sums.overlaps),
            self._located.scalars(sums.prices),
            self._located.scalars(sums.centre_prices),
        )

    def priced(self, sums: Priced) -> Priced:
        """The total is of all rows and stays; no column has more."""
        return Priced(sums.total, np.minimum(self._located.scalars(sums.column_prices), sums.total))

    def cost(self, cost: float) -> float:
        """A cost of all rows, rounded up."""
        return float(costs_above(np.array(cost))) if self.share > 0.0 else cost

    def bound(self, bound: float) -> float:
        """A bound on the cost of all rows, rounded down."""
        return float(costs_below(np.array(bound))) if self.share > 0.0 else bound

    # ------------------------------------------------------------------ boxes

    def examined(self, request: Examine, sums: BoxSums, groups: Array, weight_of_all: float = np.inf) -> BoxSums:
        if self.least <= 1:
            return sums
        small = self._small_boxes(groups)
        width, half = request.upper - request.lower, _half(request.lower, request.upper)
        mu = np.array(MULTIPLES) * (width * request.steepness[:, None])[:, :, None]  # (B, D, n_mu)
        centre, lower, upper = 0.5 * (request.lower + request.upper), request.lower, request.upper
        at = np.stack([np.stack([lower, centre, upper], -1), np.stack([upper, centre, lower], -1)], axis=2)
        paid = np.where(small.joined, _paid(sums.insides, half), 0.0)[:, None, None]
        raised = _up(sums.cuts + _up(mu * paid)[:, :, None, None, :])
        cuts = np.where(small.joined[:, None, None, None, None], raised, sums.cuts)
        kept = np.where(small.joined[:, None], 0.0, sums.insides)
        insides = self._located.quadratics(kept, centre, half, _coarse(small.inside))
        offset, inner = insides[:, 1:-1, None, None, None], insides[:, 0, None, None, None, None]
        sign, by = np.array([1.0, -1.0])[:, None, None], (centre[:, :, None, None] - at)[..., None]
        known, size = sign * (offset + inner * by), np.abs(offset) + inner * width[:, :, None, None, None]
        steps, few = self._located.steps[:, None, None, None], small.undecided
        weight = sums.undecided + np.where(small.joined, sums.insides[:, 0], 0.0)
        others = np.maximum(weight_of_all - insides[:, 0], weight)  # no more than there are
        worth = _up(sums.worth + np.where(small.joined, groups[:, INSIDE_PRICES], 0.0))
        return BoxSums(
            minorants=self._minorants(sums.minorants, kept, insides, centre, half, request.held, small.active),
            insides=insides,
            undecided=np.minimum(np.where(few, power_above(weight), digits_above(weight, 3)), others),
            worth=np.where(few, power_above(worth), digits_above(worth, 3)),
            cuts=_cuts(cuts, known, size, steps, few[:, None, None, None, None], twice=True),
            scores=np.where(few[:, None], weight[:, None] * width**2, digits_above(sums.scores, 3)),
        )

    def claimed(self, request: Claim, sums: ClaimSums, groups: Array) -> ClaimSums:
        if self.least <= 1:
            return sums
        small = self._small_boxes(groups)
        half, centre = _half(request.lower, request.upper), 0.5 * (request.lower + request.upper)
        box, axis = request.cut_box, request.cut_axis
        paid = np.where(small.joined, _paid(sums.insides, half), 0.0)
        cuts = np.where(small.joined[box], _up(sums.cuts + request.cut_mu * paid[box]), sums.cuts)
        kept = np.where(small.joined[:, None], 0.0, sums.insides)
        insides = self._located.quadratics(kept, centre, half, _coarse(small.inside))
        offset, inner, by = insides[box, 1 + axis], insides[box, 0], centre[box, axis] - request.cut_at
        known = np.where(request.cut_side == 0, 1.0, -1.0) * (offset + inner * by)
        size, steps = np.abs(offset) + inner * np.abs(by), self._located.steps[axis]
        return ClaimSums(
            self._minorants(sums.minorants, kept, insides, centre, half, request.held, small.active),
            insides,
            _cuts(cuts, known, size, steps, small.undecided[box], twice=False),
        )

    def _few(self, rows: Counts) -> Marks:
        return np.asarray((np.asarray(rows) > 0) & (np.asarray(rows) < self.least))

    def _hidden(self, few: Marks, rows: Counts) -> Marks:
        """Groups that are told as if they were empty; the others are reported."""
        hidden = np.zeros_like(few) if self.masked else few
        self.note(np.where(hidden, 0, rows))
        return hidden

    def _small_boxes(self, groups: Array) -> SmallGroups:
        inside = self._few(groups[:, N_INSIDE])
        joined = np.zeros_like(inside) if self.masked else inside
        more = np.where(joined, groups[:, N_INSIDE], 0.0)
        self.note(np.where(joined, 0.0, groups[:, N_INSIDE]))
        undecided, active = self._few(groups[:, N_UNDECIDED] + more), self._few(groups[:, N_ACTIVE] + more)
        for few, rows in ((undecided, N_UNDECIDED), (active, N_ACTIVE)):
            self._hidden(few, groups[:, rows] + more)
        return SmallGroups(inside, joined, undecided, active)

    def _minorants(
        self, minorants: Array, kept: Array, insides: Array, centre: Array, half: Array, held: Marks, few: Marks
    ) -> Array:
        """All rows together on the grid; few undecided rows beside the in-rows as told (`insides`; their own quadratic
        is `kept`), in coarse steps or as a constant: W δ² is positive and may be left out."""
        told = self._located.quadratics(minorants, centre, half)
        if not few.any():
            return told
        rest, doubt = minorants - kept, 16 * self.least * EPS * (np.abs(minorants) + np.abs(kept))
        rest[:, 0] = np.maximum(rest[:, 0], 0.0)
        rest[:, -1] -= doubt[:, -1] + 2.0 * (doubt[:, 1:-1] * half).sum(axis=1) + doubt[:, 0] * (half**2).sum(axis=1)
        if self.masked:
            coarse = self._located.quadratics(rest, centre, half, FEW)
        else:
            theta = np.where(held, 0.0, SHIFT)
            lost = 2.0 * ((1.0 - theta) * np.abs(rest[:, 1:-1]) * half).sum(axis=1) * (1.0 + 64 * EPS)
            least = np.minimum(rest[:, -1] - lost, 0.0) * (1.0 + 4 * EPS)
            coarse = np.zeros_like(rest)
            coarse[:, -1] = self._located.down(least) if self.share > 0.0 else -digits_above(-least, 3)
        loose, size = insides + coarse, np.abs(insides) + np.abs(coarse)
        loose[:, -1] -= 4 * EPS * (size[:, -1] + (size[:, :1] * half**2 + 2.0 * size[:, 1:-1] * half).sum(axis=1))
        return np.where(few[:, None], loose, told)


class SmallGroups(NamedTuple):
    """Of every box, whether rows are few."""

    inside: Marks
    joined: Marks  # the few in-rows count as undecided
    undecided: Marks  # with those that joined
    active: Marks  # undecided rows that count in the minorant


def _coarse(few: Marks) -> Array:
    """How many steps make one."""
    return np.where(few, FEW, 1.0)


def _cuts(cuts: Array, known: Array, size: Array, steps: Array, few: Marks, twice: bool) -> Array:
    """Cuts above what the in-rows' quadratic tells of them (`known`, terms of `size`), the rest rounded up on the grid;
    `twice`: by as much more as a second rounding can add."""
    rest = cuts - known + 8 * EPS * (size + np.abs(cuts))
    step = steps * _coarse(few)
    told = on_grid(np.ceil, rest, step) + (step if twice else 0.0)
    digits = digits_above(rest, 3) * (1.25 if twice else 1.0)
    return _up(known + 4 * EPS * size + np.where(few, np.maximum(told, digits), told))


def _half(lower: Array, upper: Array) -> Array:
    """Half-widths about the centre as the kernels take it, rounded up."""
    centre = 0.5 * (lower + upper)
    return np.asarray(np.maximum(upper - centre, centre - lower) * (1.0 + 2.0 * EPS))


def _paid(insides: Array, half: Array) -> Array:
    """max(0, −min over the box) of C + Σ_d W δ² − 2 V δ, rounded up."""
    weight, offset = insides[:, :1], np.abs(insides[:, 1:-1])
    with np.errstate(divide="ignore", invalid="ignore"):
        free = np.where(weight > 0.0, offset / weight, np.inf)
    at = np.minimum(free, half)
    terms = at * (2.0 * offset - weight * at)
    size = np.abs(insides[:, -1]) + (half * (2.0 * offset + weight * half)).sum(axis=1)
    return np.asarray(np.maximum(terms.sum(axis=1) - insides[:, -1] + 16 * EPS * (half.shape[1] + 4) * size, 0.0))


def _up(values: Array) -> Array:
    return np.asarray(values + 4 * EPS * np.abs(values))
