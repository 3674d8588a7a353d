"""Groups of few rows are not reported, and every bound stays true: a guard costs gap, never truth.

A group is the set of rows behind a number. With fewer than `least` rows it is *small*:

* Steps of trimmed Lloyd and columns may be made of any rows: a small group is widened to the `least` rows with the
  least d − λ, where these together still gain; otherwise it is left out.
* Counts and offsets of candidates prove nothing: those of a small cluster are left out. Costs stay whole.
* In-rows of a box are treated as undecided rows if they are few: they could be. Their quadratic I is told no more (0
  claims nothing), and every cut is raised by μ max(0, −min I), the most that they can pay:
      Σ_in w s(y − T) − μ I(m)  ≤  Σ_in w s(y − T) + μ max(0, −min I).
* Undecided rows that count in the minorant, if they are few, contribute a coarse quadratic in place of their own: the
  weight as a power of two, offsets in quarters of a power of two above the largest, the constant in three binary
  digits and lower by all that this can cost within the box.
* What few undecided rows add to a cut is told in three binary digits, rounded up; their weight and worth as powers of
  two. A claim is rounded once and what was examined twice: a cut at the root of a secant is then no worse than it.
  (Among many undecided rows a cut may rest on few of them: docs/disclosure.md.)
* Where to split is answered by the box's own widths if the rows are few; those everybody knows.

Everything here works on the sums that the kernels return; `groups` holds, for each box: numbers of in-rows, of
undecided rows, and of those that count in the minorant, and Σ_in w λ.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..core.arrays import Array
from ..core.search import MULTIPLES, SHIFT
from ..protocol.messages import BoxSums, Claim, ClaimSums, Evaluated, Examine

EPS = 2.0**-52
N_INSIDE, N_UNDECIDED, N_ACTIVE, INSIDE_PRICES = range(4)
N_GROUPS = 4
Counts = NDArray[np.int64] | Array


class Guard:
    """One for each site; `least` = 1 reports everything as it is."""

    def __init__(self, least: int = 1) -> None:
        self.least = least
        self._smallest: int | None = None

    def small(self, n_rows: int) -> bool:
        return 0 < n_rows < self.least

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

    def widened(self, gains: Array, weights: Array) -> NDArray[np.int64] | None:
        """Rows in place of a small group: the `least` rows with the least d − λ, or None where they gain nothing."""
        if len(gains) < self.least:
            return None
        rows = np.argpartition(gains, self.least - 1)[: self.least]
        if not float(weights[rows] @ gains[rows]) < 0.0:
            return None
        self.note(np.array([self.least]))
        return np.sort(rows)

    def evaluated(self, sums: Evaluated, rows: Counts) -> Evaluated:
        """`rows` in each cluster (C, K). Small clusters are left out, and the smallest of the others too where few rows
        would be all that is missing: sums over all rows are known, and the difference would tell."""
        few = self._few(rows)
        for one, counts in zip(few, np.asarray(rows), strict=True):
            others = np.where(one | (counts == 0), np.inf, counts)
            if 0 < counts[one].sum() < self.least and np.isfinite(others).any():
                one[int(np.argmin(others))] = True
        self.note(np.where(few, 0, rows))
        if not few.any():
            return sums
        return Evaluated(
            sums.costs,
            np.where(few, 0.0, sums.counts),
            np.where(few[:, :, None], 0.0, sums.offsets),
            np.where(few, 0.0, sums.spreads),
        )

    # ------------------------------------------------------------------ boxes

    def examined(self, request: Examine, sums: BoxSums, groups: Array, weight_of_all: float = np.inf) -> BoxSums:
        if self.least <= 1:
            return sums
        inside, undecided, active = self._small_boxes(groups)
        width, half = request.upper - request.lower, _half(request.lower, request.upper)
        mu = np.array(MULTIPLES) * (width * request.steepness[:, None])[:, :, None]  # (B, D, n_mu)
        centre, lower, upper = 0.5 * (request.lower + request.upper), request.lower, request.upper
        at = np.stack([np.stack([lower, centre, upper], -1), np.stack([upper, centre, lower], -1)], axis=2)
        paid = np.where(inside, _paid(sums.insides, half), 0.0)[:, None, None]
        raised = _up(sums.cuts + _up(mu * paid)[:, :, None, None, :])
        cuts = np.where(inside[:, None, None, None, None], raised, sums.cuts)
        insides = np.where(inside[:, None], 0.0, sums.insides)
        offset, inner = insides[:, 1:-1, None, None], insides[:, 0, None, None, None]
        known = np.array([1.0, -1.0])[:, None] * (offset + inner * (centre[:, :, None, None] - at))
        size = (np.abs(offset) + inner * width[:, :, None, None])[..., None]
        rest = np.maximum(cuts - known[..., None], 0.0) + 8 * EPS * (size + np.abs(cuts))
        rest = 1.25 * coarse_above(rest)  # a claim in between, rounded once, is not worse than their secant
        weight = sums.undecided + np.where(inside, sums.insides[:, 0], 0.0)
        others = np.maximum(weight_of_all - insides[:, 0], weight)  # no more than there are
        weight = np.where(undecided, np.minimum(power_above(weight), others), weight)
        worth = _up(sums.worth + np.where(inside, groups[:, INSIDE_PRICES], 0.0))
        return BoxSums(
            minorants=self._minorants(sums.minorants, insides, half, request.held, active, weight_of_all),
            insides=insides,
            undecided=weight,
            worth=np.where(undecided, power_above(worth), worth),
            cuts=np.where(undecided[:, None, None, None, None], _up(known[..., None] + 4 * EPS * size + rest), cuts),
            scores=np.where(undecided[:, None], weight[:, None] * width**2, sums.scores),
        )

    def claimed(self, request: Claim, sums: ClaimSums, groups: Array, weight_of_all: float = np.inf) -> ClaimSums:
        if self.least <= 1:
            return sums
        inside, undecided, active = self._small_boxes(groups)
        half, centre = _half(request.lower, request.upper), 0.5 * (request.lower + request.upper)
        box, axis = request.cut_box, request.cut_axis
        paid = np.where(inside, _paid(sums.insides, half), 0.0)
        cuts = np.where(inside[box], _up(sums.cuts + request.cut_mu * paid[box]), sums.cuts)
        insides = np.where(inside[:, None], 0.0, sums.insides)
        offset, inner = insides[box, 1 + axis], insides[box, 0]
        known = np.where(request.cut_side == 0, 1.0, -1.0) * (offset + inner * (centre[box, axis] - request.cut_at))
        size = np.abs(offset) + inner * np.abs(centre[box, axis] - request.cut_at)
        rest = np.maximum(cuts - known, 0.0) + 8 * EPS * (size + np.abs(cuts))
        minorants = self._minorants(sums.minorants, insides, half, request.held, active, weight_of_all)
        cuts = np.where(undecided[box], _up(known + 4 * EPS * size + coarse_above(rest)), cuts)
        return ClaimSums(minorants, insides, cuts)

    def _few(self, rows: Counts) -> NDArray[np.bool_]:
        return np.asarray((np.asarray(rows) > 0) & (np.asarray(rows) < self.least))

    def _small_boxes(self, groups: Array) -> tuple[NDArray[np.bool_], NDArray[np.bool_], NDArray[np.bool_]]:
        """Boxes whose in-rows are few and join the undecided; after that, boxes whose undecided rows are few, and boxes
        where few of them count in the minorant."""
        inside = self._few(groups[:, N_INSIDE])
        joined = np.where(inside, groups[:, N_INSIDE], 0.0)
        undecided = self._few(groups[:, N_UNDECIDED] + joined)
        active = self._few(groups[:, N_ACTIVE] + joined)
        self.note(np.where(inside, 0.0, groups[:, N_INSIDE]))
        self.note(np.where(undecided, 0.0, groups[:, N_UNDECIDED] + joined))
        self.note(np.where(active, 0.0, groups[:, N_ACTIVE] + joined))
        return inside, undecided, active

    def _minorants(
        self,
        minorants: Array,
        insides: Array,
        half: Array,
        held: NDArray[np.bool_],
        few: NDArray[np.bool_],
        most: float,
    ) -> Array:
        """Few undecided rows by a coarse quadratic; `insides` is 0 where the in-rows are among them."""
        if not few.any():
            return minorants
        theta = np.where(held, 0.0, SHIFT)
        rest, doubt = minorants - insides, 16 * self.least * EPS * (np.abs(minorants) + np.abs(insides))
        coarse = np.empty_like(rest)
        coarse[:, 0] = np.minimum(power_above(rest[:, 0]), np.maximum(most - insides[:, 0], 0.0))
        grid = power_above(np.abs(rest[:, 1:-1]).max(axis=1, keepdims=True)) / 4.0
        with np.errstate(divide="ignore", invalid="ignore"):
            coarse[:, 1:-1] = np.where(grid > 0.0, np.trunc(rest[:, 1:-1] / grid) * grid, 0.0)
        lost = (2.0 * (1.0 - theta) * (np.abs(rest - coarse) + doubt)[:, 1:-1] * half).sum(axis=1)
        heavier = np.maximum(coarse[:, 0] - rest[:, 0] + doubt[:, 0], 0.0)
        lost += heavier * ((1.0 - 2.0 * theta) * half**2).sum(axis=1)
        least = rest[:, -1] - doubt[:, -1] - lost * (1.0 + 64 * EPS)
        coarse[:, -1] = -coarse_above(np.maximum(-least, 0.0) * (1.0 + 4 * EPS))
        loose = insides + coarse
        size = np.abs(loose)
        loose[:, -1] -= 4 * EPS * (size[:, -1] + (size[:, :1] * half**2 + 2.0 * size[:, 1:-1] * half).sum(axis=1))
        return np.where(few[:, None], loose, minorants)


def power_above(values: Array) -> Array:
    """The least power of two that is not below a number; 0 for 0.

    >>> power_above(np.array([0.0, 0.3, 1.0, 5.0])).tolist()
    [0.0, 0.5, 1.0, 8.0]
    """
    mantissa, exponent = np.frexp(np.maximum(values, 0.0))
    power = np.ldexp(1.0, np.where(mantissa == 0.5, exponent - 1, exponent))
    return np.asarray(np.where(mantissa == 0.0, 0.0, power))


def coarse_above(values: Array) -> Array:
    """Rounded up to three binary digits: at most a quarter too much.

    >>> coarse_above(np.array([0.0, 1.0, 1.01, 6.7])).tolist()
    [0.0, 1.0, 1.25, 7.0]
    """
    mantissa, exponent = np.frexp(np.maximum(values, 0.0))
    return np.asarray(np.ldexp(np.ceil(mantissa * 8.0) / 8.0, exponent))


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
