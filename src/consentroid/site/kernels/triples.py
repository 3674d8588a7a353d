"""Fees on triples: three rows of a site, of which a centroid that serves two or more pays a fee φ.

A clustering has at most one cluster with two or more of the three rows, so fees of Σ φ in all are paid at most, and

    opt ≥ Σ_j w_j λ_j − Σ_T φ_T + Σ_cells count · min_{m in cell} f(m),
    f(m) = min_S Σ_{j in S} w_j (|y_j − m|² − λ_j) + Σ_T φ_T [two or more of T are in S]       for any λ, φ ≥ 0

(subset-row inequalities; Jepsen, Petersen, Spoorendonk, Pisinger 2008). Triples that share rows make a clump
(`clumps.py`), and each clump decides for itself: with the gains g = max(0, w (λ − |y − m|²)) of its rows it adds to f,
beside what the rows add alone,

    h(g) = min_S  Σ_{j not in S} g_j + Σ_T φ_T [two or more of T in S],

for a single triple min(φ, Σ g − max g), and leaves out the rows that are not in the best S.
"""

from __future__ import annotations

import numpy as np

from ...core.compile import entry, inlined, kernel
from .in_sums import EPS
from .members import NONE, ONE

MOST_LOOKS = 20_000  # at a row, served or not, in the search for the best rows of a clump
MOST_NEAR = 200  # patterns compared with one: whoever chooses z cannot make a site compare for long


@kernel
def gains_at(y, w, lam, rows, m, gains):
    """Gains of a clump's rows; returns how many rows there are."""
    for i in range(len(rows)):
        j, squared = rows[i], 0.0
        if j < 0:
            return i
        for d in range(len(m)):
            squared += (y[j, d] - m[d]) ** 2
        gains[i] = w[j] * (lam[j] - squared) if squared < lam[j] else 0.0
    return len(rows)


@kernel
def least_loss(gains, n, masks, fees, work):
    """A lower bound on h, the loss of a set of rows that is served, and a bit for each of these: both losses are h
    unless it takes more than MOST_LOOKS at rows to find it. `work` holds three rows of n numbers. All terms are
    positive: rounding loses a few units of h."""
    some = 0
    for i in range(n):
        some |= 1 << i if gains[i] > 0.0 else 0
    served = worth_all_fees(gains, n, masks, fees, some)
    least = 0.0
    for t in range(len(masks)):
        least += fees[t] if two_of(masks[t] & served) else 0.0
    free = some & ~served
    if free == 0:
        return least, least, served
    order, losses, tried, m = work[0], work[1], work[2], 0
    for i in range(n):
        if (free >> i) & 1:
            at = m
            while at > 0 and gains[np.int64(order[at - 1])] < gains[i]:  # those that gain most are decided first
                order[at] = order[at - 1]
                at -= 1
            order[at] = i
            m += 1
    best, chosen, now, depth, looks = np.inf, served, served, 0, 0
    losses[0], tried[0] = least, 0.0
    while depth >= 0:
        if tried[depth] == 2.0:
            depth -= 1
            continue
        looks += 1
        if looks > MOST_LOOKS and best < np.inf:
            return least, best, chosen
        i, loss = np.int64(order[depth]), losses[depth]
        if tried[depth] == 0.0:
            now |= 1 << i
            for t in range(len(masks)):
                if (masks[t] >> i) & 1 and two_of(masks[t] & now) and not two_of(masks[t] & now & ~(1 << i)):
                    loss += fees[t]
        else:
            now &= ~(1 << i)
            loss += gains[i]
        tried[depth] += 1.0
        if loss >= best:
            continue
        if depth < m - 1:
            depth += 1
            losses[depth], tried[depth] = loss, 0.0
            continue
        best, chosen = loss, now
    return best, best, chosen


@kernel
def worth_all_fees(gains, n, masks, fees, some):
    """Rows of `some` that gain no less than all fees they can bring about: there is a best set with all of them."""
    served, before = 0, -1
    while served != before:
        before = served
        for i in range(n):
            if not ((some & ~served) >> i) & 1:
                continue
            most = 0.0
            for t in range(len(masks)):
                if (masks[t] >> i) & 1 and two_of(masks[t] & some) and not two_of(masks[t] & served):
                    most += fees[t]
            if gains[i] >= most:
                served |= 1 << i
    return served


@inlined
def two_of(rows):
    """Whether there are two or more bits."""
    return rows & (rows - 1) != 0


@entry
def trim_triples(y, w, lam, clumps, masks, fees, centres, reach, points, first, last, values, weights, offsets):
    """What fees change in f, weight and offset of points first..last (`trim_step`): nothing at a squared distance of
    `reach` from a clump's centre, where no two rows gain."""
    gains, work = np.empty(clumps.shape[1]), np.empty((3, clumps.shape[1]))
    for p in range(first, last):
        m = points[p]
        for c in range(len(clumps)):
            apart = 0.0
            for d in range(len(m)):
                apart += (m[d] - centres[c, d]) ** 2
            if apart >= reach[c]:
                continue
            n = gains_at(y, w, lam, clumps[c], m, gains)
            _, loss, served = least_loss(gains, n, masks[c], fees[c], work)
            values[p] += loss
            for i in range(n):
                j = clumps[c, i]
                if gains[i] > 0.0 and not (served >> i) & 1:
                    weights[p] -= w[j]
                    for d in range(len(m)):
                        offsets[p, d] -= w[j] * (y[j, d] - m[d])


@entry
def leave_out(y, w, lam, centre, clumps, masks, fees, points, first, last, bits, sums):
    """Rows that are not worth their fees leave the columns first..last and their sums (`members_of`)."""
    gains, work = np.empty(clumps.shape[1]), np.empty((3, clumps.shape[1]))
    for p in range(first, last):
        for c in range(len(clumps)):
            n = gains_at(y, w, lam, clumps[c], points[p], gains)
            _, _, served = least_loss(gains, n, masks[c], fees[c], work)
            for i in range(n):
                j = clumps[c, i]
                if gains[i] > 0.0 and not (served >> i) & 1:
                    bits[p, j >> 6] &= ~(ONE << np.uint64(j & 63))
                    sums[0, p] -= 1.0
                    sums[1, p] -= w[j] * lam[j] - gains[i]
                    sums[2, p] -= w[j]
                    sums[3, p] -= w[j] * lam[j]
                    sums[4, p] -= w[j] * centre[j]
        for i in range(5):
            sums[i, p] = max(sums[i, p], 0.0)  # what rounding leaves of a sum of which all rows have left


@entry
def two_or_more(bits, triples, first, last, out):
    """For columns first..last with rows `bits`: a bit in `out` for each triple of which they have two or more rows."""
    for c in range(first, last):
        for t in range(len(triples)):
            found = 0
            for i in range(3):
                j = triples[t, i]
                found += (bits[c, j >> 6] >> np.uint64(j & 63)) & ONE != NONE
            if found >= 2:
                out[c, t >> 6] |= ONE << np.uint64(t & 63)


@entry
def most_violated(pairs, members, z, first, last, least, partners, scores):
    """For each pattern i of rows first..last: the patterns j, k > i with the greatest Σ z [two or more of the three]
    above 1 + `least`, and by how much it is above 1; score 0 if none. `pairs`: Σ z of the columns that have both; two
    that have next to none are no pair, and of too many the first are looked at."""
    n = len(pairs)
    near, both = np.empty(MOST_NEAR, np.int64), np.empty(len(z), np.int64)
    for i in range(first, last):
        scores[i], found = 0.0, 0
        for j in range(i + 1, n):
            if pairs[i, j] > least and found < MOST_NEAR:
                near[found] = j
                found += 1
        for a in range(found):
            j, n_both = near[a], 0
            for c in range(len(z)):
                if members[i, c] and members[j, c]:
                    both[n_both] = c
                    n_both += 1
            for b in range(a + 1, found):
                k = near[b]
                sides = pairs[i, j] + pairs[i, k] + pairs[j, k] - 1.0
                if sides <= max(scores[i], least):
                    continue
                for c in range(n_both):
                    sides -= 2.0 * z[both[c]] if members[k, both[c]] else 0.0
                if sides > max(scores[i], least):
                    scores[i], partners[i, 0], partners[i, 1] = sides, j, k


@kernel
def near_rows(y, lam, lo, hi, clumps, near, n, every, kept, left, a):
    """Rows of the clumps near[:n] that are not out of the box go behind kept[:left] (least distances into `a`), as
    undecided rows: a fee may be more than they gain. Clumps without such a row are dropped from `near`. With `every`
    no row is out. Returns how many rows there are now, and clumps."""
    n_features, close = len(lo), 0
    safe = 1.0 - (n_features + 4) * EPS
    for c in range(n):
        found = False
        for i in range(clumps.shape[1]):
            j, least = clumps[near[c], i], 0.0
            if j < 0:
                break
            for d in range(n_features):
                outside = max(max(lo[d] - y[j, d], y[j, d] - hi[d]), 0.0)
                least += outside * outside
            if every or least * safe < lam[j]:
                kept[left], a[left] = j, least * safe
                left += 1
                found = True
        if found:
            near[close] = near[c]
            close += 1
    return left, close


@kernel
def fees_due(y, w, lam, centre, half, theta, clumps, masks, fees, near, n):
    """A lower bound on what the fees of the clumps near[:n] add to f anywhere in the box, rounded down: a row gains at
    least −P, where P is the greatest value of its ψ there (`boxes.py`), and h grows with every gain."""
    n_features, total = len(centre), 0.0
    small, gains, work = (4 * n_features + 16) * EPS, np.empty(clumps.shape[1]), np.empty((3, clumps.shape[1]))
    for c in range(n):
        rows, n_rows = clumps[near[c]], 0
        for i in range(len(rows)):
            j, at, rise = rows[i], 0.0, 0.0
            if j < 0:
                break
            for d in range(n_features):
                u = abs(y[j, d] - centre[d])
                at += u * u
                rise += half[d] * ((1.0 - 2.0 * theta[d]) * half[d] + 2.0 * (1.0 - theta[d]) * u)
            gains[i] = w[j] * max((lam[j] - at) - rise - small * (lam[j] + at + rise), 0.0) * (1.0 - 4.0 * EPS)
            n_rows += 1
        loss, _, _ = least_loss(gains, n_rows, masks[near[c]], fees[near[c]], work)
        total += loss
    return total * (1.0 - (n + clumps.shape[1] + 2.0 * masks.shape[1] + 16.0) * 2.0 * EPS)
