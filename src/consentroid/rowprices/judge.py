"""What the sums over all sites prove about boxes: bounds, cuts, what is left, where to split.

For each box: the minimum of the joint minorant over it (rounded down); slabs on which that minorant is at least t (cost
cuts); slabs without a stationary point below t (stationarity cuts). A stationarity sum

    g(T, μ) = γ(T, μ) − μ (inside − t)

is jointly convex in threshold and μ, so where it is negative at one point and not at another nearer to the edge, it is
still negative just beyond the root of the secant between them: a sharper cut without a further question.
"""

from __future__ import annotations

import numpy as np

from ..core.compile import entry, kernel

EPS = 2.0**-52
LEAST_CUT = 0.04  # of the width: smaller cuts are not worth their place in a certificate
SAFE = 1e-9  # relative: how far beyond its root a secant is used
THIN = 1e-9  # of the box's greatest width: a thinner side is not cut, where all rows agree cuts would never end
NO_CUT, STATIONARY, COST = 0, 1, 2
OPEN, CLOSED, CLOSED_BY_CUT = 0, 1, 2


@kernel
def least_quadratic(quadratic, half, theta, at):
    """Minimum of C + Σ (1 − 2θ) W δ² − 2 (1 − θ) V δ over |δ| ≤ half, rounded down; the minimiser into `at`."""
    n_features = len(half)
    weight, value = quadratic[0], quadratic[n_features + 1]
    size = abs(value)
    for d in range(n_features):
        q, pull = (1.0 - 2.0 * theta[d]) * weight, (1.0 - theta[d]) * quadratic[1 + d]
        x = pull / q if q > 0.0 else (half[d] if pull > 0.0 else -half[d])
        x = min(max(x, -half[d]), half[d])
        at[d] = x
        value += x * (q * x - 2.0 * pull)
        size += half[d] * (abs(q) * half[d] + 2.0 * abs(pull))
    return value - (8 * n_features + 32) * EPS * size


@kernel
def best_cut(grid, mu, need, fractions):
    """Fraction of the width beyond which no minimiser lies, and the μ that shows it; fraction 2 if none."""
    best, best_mu = 2.0, 0.0
    n_mu = len(mu)
    for i in range(3):
        for k in range(n_mu):
            size = abs(grid[i, k]) + mu[k] * abs(need)
            g = grid[i, k] - mu[k] * need + SAFE * size
            if not g < 0.0:
                continue
            if fractions[i] < best:
                best, best_mu = fractions[i], mu[k]
            for i2 in range(i):
                for k2 in range(n_mu):
                    other = grid[i2, k2] - mu[k2] * need + SAFE * (abs(grid[i2, k2]) + mu[k2] * abs(need))
                    if other >= 0.0:
                        share = other / (other - g)
                        f = fractions[i2] + (fractions[i] - fractions[i2]) * share
                        if f < best:
                            best, best_mu = f, mu[k2] + (mu[k] - mu[k2]) * share
    return best, best_mu


@entry
def judge_boxes(
    lower, upper, held, on_lower_face, on_upper_face, minorants, insides, cuts, scores, steepness, multiples, shift,
    target, bounds, points, verdicts, closing_axis, closing_side, closing_mu, kinds, thresholds, mus, new_lower,
    new_upper, shrunk, axes,
):  # fmt: skip
    """All boxes; outputs from `bounds` on. `held`: coordinates without shift, as the sites were told;
    `on_lower_face`: this side of the box lies on an inner face of the cell."""
    n_features = lower.shape[1]
    half, theta, at = np.empty(n_features), np.empty(n_features), np.empty(n_features)
    none, mu = np.zeros(n_features), np.empty(len(multiples))
    fractions = np.array([0.0, 0.5, 1.0])
    for b in range(len(lower)):
        lo, hi = lower[b], upper[b]
        for d in range(n_features):
            centre = 0.5 * (lo[d] + hi[d])
            half[d] = max(hi[d] - centre, centre - lo[d]) * (1.0 + 2.0 * EPS)
            theta[d] = 0.0 if held[b, d] else shift
            new_lower[b, d], new_upper[b, d] = lo[d], hi[d]
            for side in range(2):
                kinds[b, d, side] = NO_CUT
        within = least_quadratic(insides[b], half, none, at)
        bound = least_quadratic(minorants[b], half, theta, at)
        if not bound > -np.inf:
            bound = -np.inf
        bounds[b], verdicts[b], shrunk[b], axes[b] = bound, OPEN, 1.0, 0
        for d in range(n_features):
            points[b, d] = 0.5 * (lo[d] + hi[d]) + at[d]
        if bound >= target:
            verdicts[b] = CLOSED
            continue
        need = within - target
        need -= 4.0 * EPS * (abs(within) + abs(target))
        weight, widest = minorants[b, 0], 0.0
        for d in range(n_features):
            widest = max(widest, hi[d] - lo[d])
        for d in range(n_features):
            width = hi[d] - lo[d]
            if not width > 0.0:
                continue
            centre = 0.5 * (lo[d] + hi[d])
            thin = width < THIN * widest
            rounding = 4.0 * EPS * max(abs(lo[d]), abs(hi[d]))  # of a threshold: it is moved outward by that
            q = (1.0 - 2.0 * theta[d]) * weight
            if q > 0.0 and bound > -np.inf and not thin:
                e0 = (1.0 - theta[d]) * minorants[b, 1 + d] / q
                reach = np.sqrt((at[d] - e0) ** 2 + (target - bound) / q) * (1.0 + SAFE) + rounding
                cut = centre + e0 + reach
                if cut < hi[d] - LEAST_CUT * width:
                    kinds[b, d, 0], thresholds[b, d, 0], mus[b, d, 0] = COST, max(cut, lo[d]), 0.0
                cut = centre + e0 - reach
                if cut > lo[d] + LEAST_CUT * width:
                    kinds[b, d, 1], thresholds[b, d, 1], mus[b, d, 1] = COST, min(cut, hi[d]), 0.0
            for k in range(len(multiples)):
                mu[k] = multiples[k] * width * steepness[b]
            for side in range(2):
                fraction, by = best_cut(cuts[b, d, side], mu, need, fractions)
                if fraction > 1.0 - LEAST_CUT:
                    continue
                on_face = on_lower_face[b, d] if side == 0 else on_upper_face[b, d]
                if fraction <= 0.0 and not on_face:
                    verdicts[b] = CLOSED_BY_CUT
                    closing_axis[b], closing_side[b], closing_mu[b] = d, side, by
                    break
                if thin and fraction > 0.0:
                    continue
                if side == 0:
                    cut = lo[d] if fraction <= 0.0 else min(lo[d] + fraction * width + rounding, hi[d])
                    if kinds[b, d, 0] == NO_CUT or cut < thresholds[b, d, 0]:
                        kinds[b, d, 0], thresholds[b, d, 0], mus[b, d, 0] = STATIONARY, cut, by
                else:
                    cut = hi[d] if fraction <= 0.0 else max(hi[d] - fraction * width - rounding, lo[d])
                    if kinds[b, d, 1] == NO_CUT or cut > thresholds[b, d, 1]:
                        kinds[b, d, 1], thresholds[b, d, 1], mus[b, d, 1] = STATIONARY, cut, by
            if verdicts[b] == CLOSED_BY_CUT:
                break
            if kinds[b, d, 0] != NO_CUT and kinds[b, d, 1] != NO_CUT and thresholds[b, d, 0] < thresholds[b, d, 1]:
                thresholds[b, d, 0] = thresholds[b, d, 1]  # both slabs overlap: leave the face between them
            if kinds[b, d, 0] != NO_CUT:
                new_upper[b, d] = thresholds[b, d, 0]
            if kinds[b, d, 1] != NO_CUT:
                new_lower[b, d] = thresholds[b, d, 1]
        if verdicts[b] == CLOSED_BY_CUT:
            continue
        most, widest = -1.0, 0.0
        for d in range(n_features):
            width, rest = hi[d] - lo[d], new_upper[b, d] - new_lower[b, d]
            if width > 0.0:
                shrunk[b] *= rest / width
                score = scores[b, d] * (rest / width) ** 2
                middle = 0.5 * (new_lower[b, d] + new_upper[b, d])
                # where all rows are decided no axis causes doubt: the widest
                if (score > most or (score == most and rest > widest)) and new_lower[b, d] < middle < new_upper[b, d]:
                    most, widest, axes[b] = score, rest, d
        if most < 0.0:
            axes[b] = -1


@kernel
def least_on_slab(quadratic, lower, upper, half, theta, axis, side, threshold, at):
    """Minimum of the minorant where the coordinate lies beyond the threshold, rounded down."""
    n_features = len(half)
    centre = 0.5 * (lower[axis] + upper[axis])
    first, last = (threshold - centre, half[axis]) if side == 0 else (-half[axis], threshold - centre)
    everywhere = least_quadratic(quadratic, half, theta, at)
    q, pull = (1.0 - 2.0 * theta[axis]) * quadratic[0], (1.0 - theta[axis]) * quadratic[1 + axis]
    x = pull / q if q > 0.0 else (half[axis] if pull > 0.0 else -half[axis])
    x = min(max(x, first), last)
    size = half[axis] * (abs(q) * half[axis] + 2.0 * abs(pull))
    beyond = x * (q * x - 2.0 * pull) - at[axis] * (q * at[axis] - 2.0 * pull)
    return everywhere + beyond - (8 * n_features + 32) * EPS * size


@kernel
def box_frame(lo, hi, held, shift, half, theta):
    for d in range(len(lo)):
        centre = 0.5 * (lo[d] + hi[d])
        half[d] = max(hi[d] - centre, centre - lo[d]) * (1.0 + 2.0 * EPS)
        theta[d] = 0.0 if held[d] else shift


@entry
def least_target(
    lower, upper, held, closed, minorants, insides, shift, cut_box, cut_mu, cuts, slab_box, slab_axis, slab_side,
    slab_at,
):  # fmt: skip
    """The greatest t for which closed boxes, stationarity cuts and cost cuts (slabs) all hold."""
    n_features = lower.shape[1]
    half, theta, at, none = np.empty(n_features), np.empty(n_features), np.empty(n_features), np.zeros(n_features)
    best = np.inf
    numbers = True
    for b in range(len(lower)):
        if closed[b]:
            box_frame(lower[b], upper[b], held[b], shift, half, theta)
            value = least_quadratic(minorants[b], half, theta, at)
            numbers &= value == value
            best = min(best, value)
    for i in range(len(cut_box)):
        b = cut_box[i]
        box_frame(lower[b], upper[b], held[b], shift, half, theta)
        within = least_quadratic(insides[b], half, none, at)
        value = within - cuts[i] / cut_mu[i]
        value -= 8.0 * EPS * (abs(within) + abs(cuts[i] / cut_mu[i]))
        numbers &= value == value
        best = min(best, value)
    for i in range(len(slab_box)):
        b, d = slab_box[i], slab_axis[i]
        box_frame(lower[b], upper[b], held[b], shift, half, theta)
        value = least_on_slab(minorants[b], lower[b], upper[b], half, theta, d, slab_side[i], slab_at[i], at)
        numbers &= value == value
        best = min(best, value)
    return best if numbers else -np.inf
