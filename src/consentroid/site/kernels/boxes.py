"""What the rows say about f(m) = Σ_j w_j min(0, |y_j − m|² − λ_j) on boxes of centroids.

For a box [L, H] with centre c and half-width h, a row with least and greatest squared distance a, e is

    out if a ≥ λ,   in if e ≤ λ,   undecided otherwise.

A minimiser m of f is the mean of S = {j : d_j(m) < λ_j} and in ⊆ S ⊆ in ∪ undecided. Three sums follow.

Joint minorant. With u = y − c, δ = m − c and the shift θ, Σ_S w (y − m) = 0 gives f(m) = Σ_S w ψ_j(δ),

    ψ_j(δ) = |u|² − λ_j + Σ_d (1 − 2θ_d) δ_d² − 2 (1 − θ_d) u_d δ_d,

and an undecided row contributes at least min(0, ψ_j): 0, ψ_j, or the chord s (ψ_j − P) over the range [p, P] of ψ_j.
All rows together are one quadratic (W, V, C): C + Σ_d (1 − 2θ_d) W δ_d² − 2 (1 − θ_d) V_d δ_d.

In-rows. The same sums with s = 1 over the in-rows alone; θ plays no part in W, V and C.

Cuts. For a coordinate, threshold T and μ ≥ 0: γ = Σ_in w (y − T) + Σ_und w max(0, y − T + μ (λ − a)); where
γ < μ (inside − t), no minimiser with f < t has m ≥ T. Mirrored for ≤.

Rounding: docs/numerics.md. In short, C is lowered and γ raised by a multiple of the magnitudes of all terms.
"""

from __future__ import annotations

import numpy as np

from ...core.compile import entry, kernel
from .cuts import cut_grid, cut_sum
from .in_sums import CONSTANT, EPS, LEVELS, N_IN, OFFSET, PRICES, ROOTS, TINY, WEIGHT, in_margin, shift_sums
from .triples import fees_due, near_rows


@kernel
def classify(y, w, lam, lo, hi, centre, rows, n, sums, a, kept):
    """Sort the given rows into in (added to `sums`), out (dropped) and undecided (`kept`, with least distance `a`)."""
    n_features = len(lo)
    safe = (n_features + 4) * EPS
    left = 0
    for r in range(n):
        j = rows[r]
        least, most = 0.0, 0.0
        for d in range(n_features):
            below, above = lo[d] - y[j, d], y[j, d] - hi[d]
            outside = max(below, above)
            if outside > 0.0:
                least += outside * outside
            most += max(below * below, above * above)
        if least * (1.0 - safe) >= lam[j]:
            continue
        if most * (1.0 + safe) <= lam[j] and most < np.inf:
            square = 0.0
            for d in range(n_features):
                u = y[j, d] - centre[d]
                square += u * u
                sums[OFFSET + d] += w[j] * u
            sums[N_IN] += 1.0
            sums[WEIGHT] += w[j]
            sums[CONSTANT] += w[j] * (square - lam[j])
            sums[PRICES] += w[j] * lam[j]
            sums[ROOTS] += w[j] * np.sqrt(lam[j])
            continue
        kept[left] = j
        a[left] = least * (1.0 - safe)
        left += 1
    return left


@kernel
def keep_all(y, lo, hi, rows, n, a, kept):
    """All rows as undecided ones, with their least squared distances rounded down."""
    n_features = len(lo)
    for r in range(n):
        j, least = rows[r], 0.0
        for d in range(n_features):
            outside = max(max(lo[d] - y[j, d], y[j, d] - hi[d]), 0.0)
            least += outside * outside
        kept[r], a[r] = j, least * (1.0 - (n_features + 4) * EPS)
    return n


@kernel
def minorant(y, w, lam, centre, half, theta, kept, left, sums, out):
    """(W, V, C) of the joint minorant into `out`; C is rounded down for the whole box. Returns how many undecided rows
    count in it."""
    n_features = len(centre)
    small = (4 * n_features + 16) * EPS
    weight, constant, magnitude = sums[WEIGHT], sums[CONSTANT], 0.0
    active = 0
    bend, unbend, pull = np.empty(n_features), np.empty(n_features), np.empty(n_features)
    for d in range(n_features):
        out[1 + d] = sums[OFFSET + d]
        bend[d], pull[d] = 1.0 - 2.0 * theta[d], 1.0 - theta[d]
        unbend[d] = 1.0 / bend[d]  # 32 or 1: nothing is lost by multiplying with it
    for r in range(left):
        j = kept[r]
        at, size, rise, least = 0.0, lam[j], 0.0, 0.0
        for d in range(n_features):
            u = abs(y[j, d] - centre[d])
            q, b = bend[d], pull[d] * u
            at += u * u
            rise += half[d] * (q * half[d] + 2.0 * b)
            x = min(b * unbend[d], half[d])
            least += x * (q * x - 2.0 * b)
        size += at + rise
        at -= lam[j]
        p, P = least + at - small * size, rise + at + small * size
        if p >= 0.0:
            continue
        s = 1.0 if P <= 0.0 else min(1.0, -p / (P - p) * (1.0 + 8.0 * EPS))
        top = max(P, 0.0)
        active += 1
        weight += w[j] * s
        constant += w[j] * s * (at - top)
        magnitude += w[j] * s * (size + top)
        for d in range(n_features):
            out[1 + d] += w[j] * s * (y[j, d] - centre[d])
    margin = in_margin(sums, n_features) * sums[PRICES] + (left + sums[N_IN] + 8 * n_features + 64.0) * 8.0 * EPS * (
        magnitude + sums[PRICES]
    )
    out[0] = weight
    out[1 + n_features] = constant - margin - (TINY if weight > 0.0 else 0.0)
    return active


@kernel
def inside(sums, n_features, out):
    """(W, V, C) of the in-rows into `out`; C is rounded down."""
    out[0] = sums[WEIGHT]
    for d in range(n_features):
        out[1 + d] = sums[OFFSET + d]
    out[1 + n_features] = sums[CONSTANT] - in_margin(sums, n_features) * sums[PRICES] - (TINY if out[0] > 0.0 else 0.0)


@kernel
def describe_groups(left, active, sums, out):
    """How many rows are in, undecided, and count in the minorant, and Σ_in w λ rounded up: for `site/guard.py`."""
    out[0], out[1], out[2] = sums[N_IN], left, active
    out[3] = sums[PRICES] * (1.0 + 8.0 * EPS * (sums[N_IN] + sums[LEVELS] + 16.0))


@kernel
def split_scores(y, w, lam, lo, hi, kept, left, a, out):
    """For each coordinate, how much of the undecided rows' doubt its width causes."""
    n_features = len(lo)
    ranges = np.empty(n_features)
    for d in range(n_features):
        out[d] = 0.0
    for r in range(left):
        j = kept[r]
        most = 0.0
        for d in range(n_features):
            below, above = lo[d] - y[j, d], y[j, d] - hi[d]
            outside, far = max(max(below, above), 0.0), max(below * below, above * above)
            most += far
            ranges[d] = far - outside * outside
        if most <= a[r]:
            continue
        t = min(max((lam[j] - a[r]) / (most - a[r]), 0.0), 1.0)
        doubt = w[j] * t * (1.0 - t)
        for d in range(n_features):
            out[d] += doubt * ranges[d]


@kernel
def frame(lo, hi, held, shift, centre, half, theta):
    """Centre, half-width (rounded up) and shift of a box."""
    for d in range(len(lo)):
        centre[d] = 0.5 * (lo[d] + hi[d])
        half[d] = max(hi[d] - centre[d], centre[d] - lo[d]) * (1.0 + 2.0 * EPS)
        theta[d] = 0.0 if held[d] else shift


@entry
def examine_boxes(
    y, w, lam, lower, upper, held, steepness, any_set, shift, multiples, rows, starts, lengths, all_sums, clumps, masks,
    fees, near, near_starts, near_lengths, first, last, kept_rows, kept_lengths, minorants, insides, undecided, worth,
    cuts, scores, groups,
):  # fmt: skip
    """Boxes first..last: `rows[starts[b]:][:lengths[b]]` are the rows undecided in the parent, `all_sums[b]` its
    in-sums; both become this box's own (`kept_rows` at the same place). So do the `clumps` of triples near it, whose
    rows are not among them.

    With `any_set` every row is treated as undecided: the sums then bound Σ_S w (|y − m|² − λ) for all sets S whose mean
    m lies in the box, since a row contributes ψ_j or nothing."""
    n_features = y.shape[1]
    centre, half, theta = np.empty(n_features), np.empty(n_features), np.empty(n_features)
    most = 0
    for b in range(first, last):
        most = max(most, lengths[b] + clumps.shape[1] * near_lengths[b])
    a, kept = np.empty(most), np.empty(most, np.int32)
    for b in range(first, last):
        lo, hi, sums = lower[b], upper[b], all_sums[b]
        frame(lo, hi, held[b], shift, centre, half, theta)
        shift_sums(sums, centre)
        close = near[near_starts[b] : near_starts[b] + near_lengths[b]]
        if any_set:
            left = keep_all(y, lo, hi, rows[starts[b] :], lengths[b], a, kept)
        else:
            left = classify(y, w, lam, lo, hi, centre, rows[starts[b] :], lengths[b], sums, a, kept)
        kept_rows[starts[b] : starts[b] + left] = kept[:left]
        kept_lengths[b] = left
        left, near_lengths[b] = near_rows(y, lam, lo, hi, clumps, close, near_lengths[b], any_set, kept, left, a)
        active = minorant(y, w, lam, centre, half, theta, kept, left, sums, minorants[b])
        due = fees_due(y, w, lam, centre, half, theta, clumps, masks, fees, close, near_lengths[b])
        minorants[b, 1 + n_features] += due
        inside(sums, n_features, insides[b])
        weight, profit = 0.0, 0.0
        for r in range(left):
            weight += w[kept[r]]
            profit += w[kept[r]] * max(lam[kept[r]] - a[r], 0.0)
        undecided[b], worth[b] = weight, profit * (1.0 + (left + 8.0) * 2.0 * EPS)
        cut_grid(y, w, lam, lo, hi, centre, steepness[b], multiples, kept, left, a, sums, cuts[b])
        split_scores(y, w, lam, lo, hi, kept, left, a, scores[b])
        describe_groups(left, active, sums, groups[b])


@entry
def claim_boxes(
    y, w, lam, lower, upper, held, shift, starts, low, high, dearest, clumps, masks, fees, tied, cut_first,
    cut_axis, cut_side, cut_at, cut_mu, first, last, minorants, insides, cuts, groups,
):  # fmt: skip
    """The claims of boxes first..last from all rows; the cuts of box b are cut_first[b]..cut_first[b + 1].

    A block of rows that is farther from the box than its dearest price is out as a whole.
    """
    n_features = y.shape[1]
    centre, half, theta = np.empty(n_features), np.empty(n_features), np.empty(n_features)
    a, kept, sums = np.empty(len(y)), np.empty(len(y), np.int32), np.empty(OFFSET + 2 * n_features)
    rows, close, safe = np.empty(len(y), np.int32), np.empty(len(clumps), np.int32), 1.0 - (n_features + 4) * EPS
    for b in range(first, last):
        lo, hi = lower[b], upper[b]
        frame(lo, hi, held[b], shift, centre, half, theta)
        sums[:] = 0.0
        near = 0
        for block in range(len(starts) - 1):
            apart = 0.0
            for d in range(n_features):
                outside = max(max(low[block, d] - hi[d], lo[d] - high[block, d]), 0.0)
                apart += outside * outside
            if apart * safe >= dearest[block]:
                continue
            for j in range(starts[block], starts[block + 1]):
                if not tied[j]:
                    rows[near] = j
                    near += 1
        left = classify(y, w, lam, lo, hi, centre, rows, near, sums, a, kept)
        for c in range(len(clumps)):
            close[c] = c
        left, n_close = near_rows(y, lam, lo, hi, clumps, close, len(clumps), False, kept, left, a)
        active = minorant(y, w, lam, centre, half, theta, kept, left, sums, minorants[b])
        minorants[b, 1 + n_features] += fees_due(y, w, lam, centre, half, theta, clumps, masks, fees, close, n_close)
        inside(sums, n_features, insides[b])
        describe_groups(left, active, sums, groups[b])
        for i in range(cut_first[b], cut_first[b + 1]):
            cuts[i] = cut_sum(y, w, lam, cut_axis[i], cut_side[i], cut_at[i], cut_mu[i], centre, kept, left, a, sums)
