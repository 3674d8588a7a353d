"""Groups of few rows are not reported, and every bound stays true: a guard costs gap, never truth.

A group is the set of rows behind a number. With fewer than `least` rows it is *small*:

* Trimmed steps, columns, counts and offsets of candidates prove nothing: a small group is left out. Costs stay whole.
* In-rows of a box are treated as undecided rows if they are few: they could be. Their quadratic I is told no more
  (0 ≥ is no claim about it), and every cut is raised by μ max(0, −min I), the most they can pay:
      Σ_in w s(y − T) − μ I(m)  ≤  Σ_in w s(y − T) + μ max(0, −min I).
* Undecided rows, if they are few, contribute a constant to the minorant in place of their own quadratic. A row of S has
  d = |y − m|² with a ≤ d < λ, and ψ = d − λ + Σ_d 2 θ_d (u − δ)_d δ_d ≥ a − λ − 2 θ √λ |h|, so all of them together
      ≥ −(Σ_und w (λ − a) + 2 θ |h| Σ_und w √λ),
  rounded outward to a power of two; what they add to cuts, their weight and worth are rounded up to powers of two as
  well. Where to split is then answered by the box's own widths, which everybody knows.

What few rows say is thus known within a factor of two, and in sums over all of them only. Everything here works on the
sums that the kernels return; `groups` holds, for each box: number of in-rows, number of undecided rows, Σ_in w λ,
Σ_in w √λ, Σ_und w (λ − a), Σ_und w √λ.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..core.arrays import Array
from ..core.search import MULTIPLES, SHIFT
from ..protocol.messages import BoxSums, Claim, ClaimSums, Evaluated, Examine, Trimmed

EPS = 2.0**-52
N_INSIDE, N_UNDECIDED, INSIDE_PRICES, INSIDE_ROOTS, WORTH, ROOTS = range(6)
N_GROUPS = 6
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

    def trimmed(self, sums: Trimmed, rows: Counts) -> Trimmed:
        """`rows` at each point; a small group is left out."""
        few = self._few(rows)
        self.note(np.where(few, 0, rows))
        if not few.any():
            return sums
        return Trimmed(
            np.where(few, 0.0, sums.values), np.where(few, 0.0, sums.weights), np.where(few[:, None], 0.0, sums.offsets)
        )

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
        inside, undecided = self._small_boxes(groups)
        if not (inside.any() or undecided.any()):
            return sums
        width, half = request.upper - request.lower, _half(request.lower, request.upper)
        mu = np.array(MULTIPLES) * (width * request.steepness[:, None])[:, :, None]  # (B, D, n_mu)
        centre = 0.5 * (request.lower + request.upper)
        lower, upper = request.lower, request.upper
        at = np.stack([np.stack([lower, centre, upper], -1), np.stack([upper, centre, lower], -1)], axis=2)
        sign = np.array([1.0, -1.0])[:, None]
        cuts, insides = sums.cuts + 0.0, sums.insides + 0.0
        paid = np.where(inside, _paid(insides, half), 0.0)[:, None, None]
        cuts = np.where(inside[:, None, None, None, None], _up(cuts + _up(mu * paid)[:, :, None, None, :]), cuts)
        insides[inside] = 0.0
        offset, inner = insides[:, 1:-1, None, None], insides[:, 0, None, None, None]
        known = sign * (offset + inner * (centre[:, :, None, None] - at))
        size = np.abs(offset) + inner * width[:, :, None, None]
        rest = np.maximum(cuts - known[..., None], 0.0) + 8 * EPS * (size[..., None] + np.abs(cuts))
        few = undecided
        most = power_above(rest.max(axis=(1, 2, 3)))  # (B, n_mu): one number for all axes, sides and thresholds
        cuts[few] = _up(known[few][..., None] + 4 * EPS * size[few][..., None] + most[few][:, None, None, None, :])
        weight = sums.undecided + np.where(inside, sums.insides[:, 0], 0.0)
        worth = _up(sums.worth + np.where(inside, groups[:, INSIDE_PRICES], 0.0))
        others = np.maximum(weight_of_all - insides[:, 0], weight)  # no more than there are
        weight = np.where(few, np.minimum(power_above(weight), others), weight)
        return BoxSums(
            minorants=self._minorants(sums.minorants, insides, groups, half, request.held, inside, few),
            insides=insides,
            undecided=weight,
            worth=np.where(few, power_above(worth), worth),
            cuts=cuts,
            scores=np.where(few[:, None], weight[:, None] * width**2, sums.scores),
        )

    def claimed(self, request: Claim, sums: ClaimSums, groups: Array) -> ClaimSums:
        inside, undecided = self._small_boxes(groups)
        if not (inside.any() or undecided.any()):
            return sums
        half, centre = _half(request.lower, request.upper), 0.5 * (request.lower + request.upper)
        cuts, insides, box, axis = sums.cuts + 0.0, sums.insides + 0.0, request.cut_box, request.cut_axis
        paid = np.where(inside, _paid(insides, half), 0.0)
        cuts = np.where(inside[box], _up(cuts + request.cut_mu * paid[box]), cuts)
        insides[inside] = 0.0
        sign = np.where(request.cut_side == 0, 1.0, -1.0)
        offset, weight = insides[box, 1 + axis], insides[box, 0]
        known = sign * (offset + weight * (centre[box, axis] - request.cut_at))
        size = np.abs(offset) + weight * np.abs(centre[box, axis] - request.cut_at)
        rest = np.maximum(cuts - known, 0.0) + 8 * EPS * (size + np.abs(cuts))
        cuts = np.where(undecided[box], _up(known + 4 * EPS * size + power_above(rest)), cuts)
        minorants = self._minorants(sums.minorants, insides, groups, half, request.held, inside, undecided)
        return ClaimSums(minorants, insides, cuts)

    def _few(self, rows: Counts) -> NDArray[np.bool_]:
        return np.asarray((np.asarray(rows) > 0) & (np.asarray(rows) < self.least))

    def _small_boxes(self, groups: Array) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Boxes whose in-rows are few and join the undecided; boxes whose undecided rows are few after that."""
        inside = self._few(groups[:, N_INSIDE])
        together = groups[:, N_UNDECIDED] + np.where(inside, groups[:, N_INSIDE], 0.0)
        undecided = self._few(together)
        self.note(np.where(inside, 0.0, groups[:, N_INSIDE]))
        self.note(np.where(undecided, 0.0, together))
        return inside, undecided

    def _minorants(
        self,
        minorants: Array,
        insides: Array,
        groups: Array,
        half: Array,
        held: NDArray[np.bool_],
        inside: NDArray[np.bool_],
        few: NDArray[np.bool_],
    ) -> Array:
        """Few undecided rows as a constant; `insides` is 0 where the in-rows are among them."""
        reach = 2.0 * SHIFT * np.sqrt((np.where(held, 0.0, half) ** 2).sum(axis=1)) * (1.0 + 8 * EPS)
        worth = groups[:, WORTH] + reach * groups[:, ROOTS]
        worth += np.where(inside, groups[:, INSIDE_PRICES] + reach * groups[:, INSIDE_ROOTS], 0.0)
        loose = insides + 0.0
        loose[:, -1] -= power_above(worth * (1.0 + 64 * EPS * (half.shape[1] + self.least)))
        loose[:, -1] -= 2 * EPS * np.abs(loose[:, -1])
        return np.where(few[:, None], loose, minorants)


def power_above(values: Array) -> Array:
    """The least power of two that is not below a number; 0 for 0.

    >>> power_above(np.array([0.0, 0.3, 1.0, 5.0])).tolist()
    [0.0, 0.5, 1.0, 8.0]
    """
    mantissa, exponent = np.frexp(np.maximum(values, 0.0))
    power = np.ldexp(1.0, np.where(mantissa == 0.5, exponent - 1, exponent))
    return np.asarray(np.where(mantissa == 0.0, 0.0, power))


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
