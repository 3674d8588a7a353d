"""Row loops of the checker: rows in, out or undecided on a box, and the sums that bound f there.

f(m) = Σ_j w_j min(0, |y_j − m|² − λ_j). All sums are per site. Written apart from the engine's kernels, without
fastmath: every operation rounds once (unit 2⁻⁵³), sums carry their rounding errors along (`_added`), and what is left
of rounding is bounded by a multiple of the magnitudes of all terms, taken off a minorant's constant or added to a cut's
sum. `FLOOR` stands for all that underflow can lose.

A quadratic of a box with centre c is a row (W, V_1..V_D, C): with δ = m − c it is

    C + Σ_d (1 − 2θ_d) W δ_d² − 2 (1 − θ_d) V_d δ_d.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit
from numpy.typing import NDArray

from ..core.arrays import Array

UNIT = 2.0**-53
MOST_LOOKED = 50_000  # times that a row of a clump is taken in or left out
FLOOR = 1e-290
Order = NDArray[np.int64]

compiled = njit(cache=True, nogil=True, error_model="numpy")


@compiled
def frame(
    lower: Array, upper: Array, cell: Array, inner: NDArray[np.bool_], shift: float, out: Array
) -> None:  # fmt: skip
    """Centre, half-width rounded up, and the coefficients (1 − θ_d), (1 − 2θ_d) of a box as the rows of `out`.

    θ_d = 0 where the box touches an inner face of its cell, since a minimiser there need not be stationary.
    2 (1 − θ) − 1 is exact, so both coefficients belong to one and the same θ.
    """
    for d in range(len(lower)):
        centre = 0.5 * (lower[d] + upper[d])
        held = (inner[0, d] and lower[d] <= cell[0, d]) or (inner[1, d] and upper[d] >= cell[1, d])
        linear = 1.0 if held else 1.0 - shift
        out[0, d] = centre
        out[1, d] = max(upper[d] - centre, centre - lower[d]) * (1.0 + 4.0 * UNIT)
        out[2, d] = linear
        out[3, d] = 2.0 * linear - 1.0


@compiled
def classify(
    y: Array, prices: Array, tied: NDArray[np.bool_], lower: Array, upper: Array, order: Order, first: int, last: int,
    least: Array,
) -> tuple[int, int]:  # fmt: skip
    """Sort order[first:last] into out | undecided | in; returns where the undecided rows begin and end.

    Rows out or in for a box are so for every box inside it: order[:first] is out, order[last:] is in. `least` receives
    the least squared distance of undecided rows, rounded down. A row that is `tied` into a triple is never in: a fee
    may keep it out.
    """
    n_features = len(lower)
    margin = (n_features + 6) * UNIT
    i = first
    while i < last:
        j = order[i]
        near, far = 0.0, 0.0
        for d in range(n_features):
            below, above = lower[d] - y[j, d], y[j, d] - upper[d]
            outside = max(max(below, above), 0.0)
            across = max(-below, -above)
            near += outside * outside
            far += across * across
        near = max(near * (1.0 - margin) - FLOOR, 0.0)
        if near >= prices[j]:
            order[i], order[first] = order[first], order[i]
            first += 1
            i += 1
        elif not tied[j] and far * (1.0 + margin) + FLOOR <= prices[j]:
            last -= 1
            order[i], order[last] = order[last], order[i]
        else:
            least[j] = near
            i += 1
    return first, last


@compiled
def _added(sums: Array, rests: Array, i: int, k: int, x: float) -> None:
    """sums[i, k] += x, with the rounding error (exact) added to rests[i, k]."""
    s = sums[i, k]
    t = s + x
    z = t - s
    sums[i, k] = t
    rests[i, k] += (s - (t - z)) + (x - z)


@compiled
def box_sums(
    y: Array, w: Array, prices: Array, site: Order, order: Order, first: int, last: int, box: Array, out: Array
) -> None:
    """Per site: the joint minorant (W, V, C) of all rows and the quadratic of the in-rows, one after the other.

    An undecided row contributes at least min(0, ψ), ψ(δ) = |u|² − λ + Σ_d (1 − 2θ_d) δ_d² − 2 (1 − θ_d) u_d δ_d:
    nothing where ψ ≥ 0 on the box, ψ where ψ ≤ 0, else the chord s (ψ − P) over its range [p, P].
    """
    n_features, n_sites = y.shape[1], len(out)
    width = n_features + 2
    sums, rests = np.zeros((n_sites, 2 * width)), np.zeros((n_sites, 2 * width))
    size = np.zeros((n_sites, 2))  # magnitudes of undecided and of in-rows' terms
    centre, half, linear, square = box[0], box[1], box[2], box[3]
    small = (2 * n_features + 16) * UNIT
    u = np.empty(n_features)
    for i in range(last, len(order)):
        j = order[i]
        at, rise = 0.0, 0.0
        for d in range(n_features):
            u[d] = y[j, d] - centre[d]
            at += u[d] * u[d]
            rise += half[d] * (half[d] + 2.0 * abs(u[d]))
        k = site[j]
        _added(sums, rests, k, width, w[j])
        for d in range(n_features):
            _added(sums, rests, k, width + 1 + d, w[j] * u[d])
        _added(sums, rests, k, 2 * width - 1, w[j] * (at - prices[j]))
        size[k, 1] += w[j] * (at + prices[j] + rise + FLOOR) + FLOOR
    for i in range(first, last):
        j = order[i]
        at, rise, fall = 0.0, 0.0, 0.0
        for d in range(n_features):
            u[d] = y[j, d] - centre[d]
            at += u[d] * u[d]
            slope = 2.0 * linear[d] * abs(u[d])
            rise += half[d] * (square[d] * half[d] + slope)
            best = min(0.5 * slope / square[d], half[d])
            fall += best * (square[d] * best - slope)
        k = site[j]
        whole = at + prices[j] + rise + FLOOR
        if not whole < np.inf:
            sums[k, width - 1] = np.nan  # no bound can be had from such numbers
            continue
        p, top = (at - prices[j]) + fall - small * whole, (at - prices[j]) + rise + small * whole
        if p >= 0.0:
            continue
        s = 1.0
        if top <= 0.0:
            top = 0.0
        else:
            s = min(-p / (top - p) * (1.0 + 8.0 * UNIT) + FLOOR, 1.0)
        ws = w[j] * s
        _added(sums, rests, k, 0, ws)
        for d in range(n_features):
            _added(sums, rests, k, 1 + d, ws * u[d])
        _added(sums, rests, k, width - 1, ws * ((at - prices[j]) - top))
        size[k, 0] += 2.0 * ws * whole + FLOOR
    n = float(len(order))
    margin = (2 * n_features + 32 + n * n * UNIT) * UNIT * 1.001
    for k in range(n_sites):
        for c in range(width):
            out[k, width + c] = sums[k, width + c] + rests[k, width + c]
            out[k, c] = (sums[k, c] + rests[k, c]) + out[k, width + c]
        out[k, width - 1] -= margin * (size[k, 0] + size[k, 1])
        out[k, 2 * width - 1] -= margin * size[k, 1]


@compiled
def least_due(gains: Array, size: int, masks: Order, fees: Array, order: Order, sure: Array, left: Array) -> float:
    """The least, over all sets of a clump's rows, of what the others gain and of the fees of triples of which the set
    has two; or less. A row that gains as much as all fees that it may bring about is in one of the best sets, whatever
    else is; the others are tried, in and out, unless that takes too long: then the fees of the former are the answer.

    Sums are of positive numbers, one of each row and fee at most. That a row's gain is no less than its fees may be
    wrong by rounding; then it is a part of what the best set leaves out, and less than it by as little."""
    some, inside, before = 0, 0, -1
    for i in range(size):
        some |= (1 << i) if gains[i] > 0.0 else 0
    while inside != before:
        before = inside
        for i in range(size):
            if not (some & ~inside) & (1 << i):
                continue
            at_most = 0.0
            for t in range(len(fees)):
                known, possible = masks[t] & inside, masks[t] & some
                if masks[t] & (1 << i) and possible & (possible - 1) and not known & (known - 1):
                    at_most += fees[t]
            inside |= (1 << i) if gains[i] >= at_most else 0
    certain, n_open = 0.0, 0
    for t in range(len(fees)):
        known = masks[t] & inside
        certain += fees[t] if known & (known - 1) else 0.0
    for i in range(size):
        if (some & ~inside) & (1 << i):
            order[n_open] = i
            n_open += 1
    if n_open == 0:
        return certain
    # the greatest gains first: leaving such a row out ends a branch early
    order[:n_open] = order[:n_open][np.argsort(-gains[order[:n_open]])]
    best, depth, looked = np.inf, 0, 0
    sure[0], left[0] = certain, 2.0
    while depth >= 0:
        if left[depth] == 0.0:  # both ways have been gone
            depth -= 1
            continue
        looked += 1
        if looked > MOST_LOOKED and best < np.inf:
            return certain
        bit, total = 1 << order[depth], sure[depth]
        if left[depth] == 2.0:
            inside |= bit
            for t in range(len(fees)):
                now, without = masks[t] & inside, masks[t] & inside & ~bit
                total += fees[t] if now & (now - 1) and not without & (without - 1) else 0.0
        else:
            inside &= ~bit
            total += gains[order[depth]]
        left[depth] -= 1.0
        if total < best:
            if depth == n_open - 1:
                best = total
            else:
                depth += 1
                sure[depth], left[depth] = total, 2.0
    return best


@compiled
def add_fees(
    y: Array, w: Array, prices: Array, site: Order, clumps: Order, masks: Order, fees: Array, box: Array, out: Array
) -> None:
    """Add to the minorants' C what fees add to f at least, anywhere in the box. With S the rows that f takes, a clump's
    rows contribute Σ_S w ψ and the fees of all triples with two or more rows in S, which is no less than Σ w min(0, ψ)
    and the least, over all sets, of what rows beside it gain and of such fees. A row gains w max(0, −ψ), at least where
    ψ is greatest, and that least grows with every gain."""
    n_features = y.shape[1]
    width = n_features + 2
    centre, half, linear, square = box[0], box[1], box[2], box[3]
    small = (2 * n_features + 16) * UNIT
    gains, most = np.empty(clumps.shape[1]), clumps.shape[1] + 2.0 * masks.shape[1] + 8.0
    order, sure, left = np.empty(clumps.shape[1], np.int64), np.empty(clumps.shape[1]), np.empty(clumps.shape[1])
    for c in range(len(clumps)):
        size, n_gaining = 0, 0
        for i in range(clumps.shape[1]):
            j, at, rise = clumps[c, i], 0.0, 0.0
            if j < 0:
                break
            for d in range(n_features):
                u = abs(y[j, d] - centre[d])
                at += u * u
                rise += half[d] * (square[d] * half[d] + 2.0 * linear[d] * u)
            gain = w[j] * (((prices[j] - at) - rise) - small * (at + prices[j] + rise + FLOOR)) - FLOOR
            gains[i] = max(gain, 0.0)
            n_gaining += gains[i] > 0.0
            size += 1
        if n_gaining < 2:  # one row alone pays no fee
            continue
        due = least_due(gains, size, masks[c], fees[c], order, sure, left)
        due *= 1.0 - 4.0 * most * UNIT
        if due > 0.0:
            k = site[clumps[c, 0]]
            before = out[k, width - 1]
            out[k, width - 1] = before + due - 4.0 * UNIT * (abs(before) + due)


@compiled
def cut_sums(
    y: Array, w: Array, prices: Array, site: Order, order: Order, first: int, last: int, least: Array,
    axis: int, sign: float, at: float, mu: float, out: Array, size: Array,
) -> None:  # fmt: skip
    """Per site, rounded up: Σ_in w x + Σ_undecided w max(0, x + μ (λ − a)) with x = sign (y_axis − at); and the
    magnitude of its terms."""
    sums, rests = np.zeros((len(out), 1)), np.zeros((len(out), 1))
    size[:] = 0.0
    for i in range(last, len(order)):
        j = order[i]
        x = sign * (y[j, axis] - at)
        _added(sums, rests, site[j], 0, w[j] * x)
        size[site[j]] += w[j] * (abs(x) + FLOOR) + FLOOR
    for i in range(first, last):
        j = order[i]
        x = sign * (y[j, axis] - at)
        gain = x + mu * (prices[j] - least[j])
        if not gain <= 0.0:
            _added(sums, rests, site[j], 0, w[j] * gain)
        size[site[j]] += w[j] * (abs(x) + mu * (prices[j] + least[j]) + FLOOR) + FLOOR
    n = float(len(order))
    for k in range(len(out)):
        out[k] = sums[k, 0] + rests[k, 0] + (16.0 + n * n * UNIT) * UNIT * size[k]


@compiled
def least_value(quadratics: Array, box: Array, shifted: bool, axis: int, low: float, high: float) -> float:
    """Least value over the box of the sum of the sites' quadratics, rounded down; −inf where that is no number.

    `axis` ≥ 0: only δ_axis from `low` to `high`. `shifted`: with the box's θ, else θ = 0.
    """
    n_sites, n_features = len(quadratics), quadratics.shape[1] - 2
    weight, constant, heavy, magnitude = 0.0, 0.0, 0.0, 0.0
    for k in range(n_sites):
        weight += quadratics[k, 0]
        heavy += abs(quadratics[k, 0])
        constant += quadratics[k, n_features + 1]
        magnitude += abs(quadratics[k, n_features + 1])
    value = constant
    for d in range(n_features):
        offset, large = 0.0, 0.0
        for k in range(n_sites):
            offset += quadratics[k, 1 + d]
            large += abs(quadratics[k, 1 + d])
        linear, square = (box[2, d], box[3, d]) if shifted else (1.0, 1.0)
        a, b = square * weight, 2.0 * linear * offset
        left, right = -box[1, d], box[1, d]
        if d == axis:
            left, right = max(left, low), min(right, high)
        lowest = min(left * (a * left - b), right * (a * right - b))
        if a > 0.0:
            x = min(max(0.5 * b / a, left), right)
            lowest = min(lowest, x * (a * x - b))
        value += lowest
        reach = max(abs(left), abs(right))
        magnitude += reach * (square * heavy * reach + 2.0 * linear * large)
    value -= (2 * n_sites + 2 * n_features + 32) * UNIT * magnitude + FLOOR
    return value if math.isfinite(value) else -np.inf


@compiled
def most_above(claimed: Array, own: Array, box: Array, shifted: bool, margin: float) -> float:
    """The greatest of claimed − own over the box, each coordinate by itself; `margin` times all magnitudes is added."""
    n_features = len(own) - 2
    weight = claimed[0] - own[0]
    value = claimed[n_features + 1] - own[n_features + 1]
    magnitude = abs(claimed[n_features + 1]) + abs(own[n_features + 1])
    for d in range(n_features):
        linear, square = (box[2, d], box[3, d]) if shifted else (1.0, 1.0)
        a, b, half = square * weight, 2.0 * linear * abs(claimed[1 + d] - own[1 + d]), box[1, d]
        if a < 0.0 and b < -2.0 * a * half:
            value += 0.25 * b * (b / -a)
        else:
            value += half * (a * half + b)
        heavy, large = abs(claimed[0]) + abs(own[0]), abs(claimed[1 + d]) + abs(own[1 + d])
        magnitude += half * (square * heavy * half + 2.0 * linear * large)
    value += margin * magnitude
    return value if value == value else np.inf


@compiled
def worst_excess(
    claims: Array, own: Array, sites: Order, scales: Array, box: Array, worst: Array, above: Array
) -> None:
    """By how much the claimed minorants of these sites exceed their own somewhere on the box, at most and relative to
    `scales`: raises `worst` to it. `above` receives the same for the in-rows' quadratics, not relative: what these say
    too much may be made up for in the cuts, as a site does that does not tell which few rows are in."""
    width = own.shape[1] // 2
    for k in range(len(sites)):
        claimed = claims[sites[k]]
        more = most_above(claimed[:width], own[k, :width], box, True, 0.0) / scales[k]
        if not more <= worst[k]:
            worst[k] = more if more == more else np.inf
        above[k] = most_above(claimed[width : 2 * width], own[k, width:], box, False, 0.0)
