"""The paper's symmetry rule (`Symmetry_Constraint`), for replaying the paper only: feasibility and multipliers.

    g_kl = ‖m_k − r_k‖² − ‖m_l − r_k‖² ≤ 0   for all k ≠ l

The rule is not convex. Clusters with weights W_k and linear parts A_k pay Σ_k W_k ‖m_k‖² − 2 A_k·m_k; multipliers
v_kl ≥ 0 only move weight between them,

    W'_k = W_k + Σ_l (v_kl − v_lk),   A'_k = A_k + Σ_l (v_kl r_k − v_lk r_l),

and add no constant. So the minimum over the boxes stays separable and is a bound for *any* v ≥ 0: at A'/W' cut off at
the box where W' > 0, at an end of the box where not. Where all W' > 0 at the best v, the bound is attained: no gap.
Light clusters that must keep off another's reference lose their weight and leave a gap; only smaller boxes close it.

The rule is kept to NEAREST_TOLERANCE in units of the rows' squared spread, values are found to a relative NEAREST_GAP,
and nothing under this rule is called a bound on the clustering problem.
"""

from __future__ import annotations

import numpy as np

from ...core.compile import kernel
from ..node._kernels import clamp, copy_into

NEAREST_TOLERANCE, NEAREST_GAP = 1e-9, 1e-4
SWEEPS = 30  # of the quadratic model of one step
TRIES = 7  # step lengths
REPAIRS = 12  # sweeps over the pairs that break the rule


@kernel
def squared_distance(x, y):
    total = 0.0
    for d in range(len(x)):
        total += (x[d] - y[d]) * (x[d] - y[d])
    return total


@kernel
def obeys_nearest(references, m, tolerance):
    for k in range(len(m)):
        own = squared_distance(m[k], references[k])
        for l in range(len(m)):
            if own > squared_distance(m[l], references[k]) + tolerance:
                return False
    return True


@kernel
def _repair(references, lo, hi, m):
    """Turn by turn draw m_k towards r_k or push m_l off it, just far enough for each pair that breaks the rule."""
    n_clusters, n_features = m.shape
    for sweep in range(REPAIRS):
        kept = True
        for k in range(n_clusters):
            for l in range(n_clusters):
                own, other = squared_distance(m[k], references[k]), squared_distance(m[l], references[k])
                if own > other + 0.5 * NEAREST_TOLERANCE:
                    kept = False
                    c = k if sweep % 4 < 2 else l
                    share = np.sqrt(other / own) if c == k else np.sqrt(own / max(other, 1e-30))
                    for d in range(n_features):
                        x = references[k, d] + share * (m[c, d] - references[k, d])
                        m[c, d] = clamp(x, lo[c, d], hi[c, d])
        if kept:
            return True
    return False


@kernel
def force_nearest(references, lo, hi, m):
    """Make m obey the rule by small moves, or by moving all of it towards the references; False if neither does."""
    n_clusters, n_features = m.shape
    start = m.copy()
    if _repair(references, lo, hi, m):
        return True
    left, right, trial = 0.0, 1.0, np.empty((n_clusters, n_features))
    for i in range(30):
        share = 1.0 if i == 0 else 0.5 * (left + right)
        for k in range(n_clusters):
            for d in range(n_features):
                x = start[k, d] + share * (references[k, d] - start[k, d])
                trial[k, d] = clamp(x, lo[k, d], hi[k, d])
        if obeys_nearest(references, trial, 0.5 * NEAREST_TOLERANCE):
            right = share
            copy_into(m, trial)
        elif i == 0:
            return False
        else:
            left = share
    return True


@kernel
def farthest(point, lo, hi):
    """Largest squared distance from a point to a box."""
    total = 0.0
    for d in range(len(point)):
        x = max(point[d] - lo[d], hi[d] - point[d])
        total += x * x
    return total


@kernel
def tighten(references, lo, hi):
    """Cut each box to the ball that the others leave it; False if some box cannot obey the rule.

    ‖m_k − r_k‖ is at most the least, over the other boxes, of the farthest distance from r_k.
    """
    n_clusters, n_features = lo.shape
    for k in range(n_clusters):
        radius, own = np.inf, 0.0
        for d in range(n_features):
            apart = max(max(lo[k, d] - references[k, d], references[k, d] - hi[k, d]), 0.0)
            own += apart * apart
        for l in range(n_clusters):
            if l != k:
                radius = min(radius, farthest(references[k], lo[l], hi[l]))
        if own > radius + NEAREST_TOLERANCE:
            return False
        radius = np.sqrt(radius + NEAREST_TOLERANCE) * (1.0 + 1e-14)
        for d in range(n_features):
            lo[k, d] = max(lo[k, d], references[k, d] - radius)
            hi[k, d] = min(hi[k, d], references[k, d] + radius)
    return True


@kernel
def shift_weights(plain, references, v, out):
    """W' and A' of the module text from W and A, as rows (W, A) of K × (1 + D)."""
    n_clusters, n_features = references.shape
    copy_into(out, plain)
    for k in range(n_clusters):
        for l in range(n_clusters):
            if v[k, l] > 0.0:
                out[k, 0] += v[k, l]
                out[l, 0] -= v[k, l]
                for d in range(n_features):
                    out[k, 1 + d] += v[k, l] * references[k, d]
                    out[l, 1 + d] -= v[k, l] * references[k, d]


@kernel
def least_in_box(weight, a, lo, hi):
    """Where W x² − 2 a x is least on [lo, hi], also for W ≤ 0."""
    if weight > 0.0:
        return clamp(a / weight, lo, hi)
    return hi if (weight * hi - 2.0 * a) * hi < (weight * lo - 2.0 * a) * lo else lo


@kernel
def least_value(shifted, lo, hi, m):
    """Least value of the separable quadratic; fills its minimiser."""
    n_clusters, n_features = m.shape
    value = 0.0
    for k in range(n_clusters):
        for d in range(n_features):
            x = least_in_box(shifted[k, 0], shifted[k, 1 + d], lo[k, d], hi[k, d])
            m[k, d] = x
            value += (shifted[k, 0] * x - 2.0 * shifted[k, 1 + d]) * x
    return value


@kernel
def _model_step(references, lo, hi, m, shifted, soft, v, pairs, step):
    """Newton step of the concave dual for the pairs that are active; returns its promise and the worst violation.

    The gradient is g, the curvature ½ Σ_c ∇_c g·∇_c g / W'_c over coordinates inside their box; weights below `soft`
    count as `soft`: the step is only a proposal. Projected Gauss-Seidel keeps v + step ≥ 0.
    """
    n_clusters, n_features = m.shape
    active, worst = 0, 0.0
    gradient = np.empty(n_clusters * n_clusters)
    for k in range(n_clusters):
        own = squared_distance(m[k], references[k])
        for l in range(n_clusters):
            if l != k:
                g = own - squared_distance(m[l], references[k])
                worst = max(worst, g if v[k, l] == 0.0 else abs(g))
                if g > 0.0 or v[k, l] > 0.0:
                    pairs[active, 0], pairs[active, 1], gradient[active] = k, l, g
                    step[active] = 0.0
                    active += 1
    curvature, most = np.zeros((active, active)), soft  # where all is at its box, nothing else limits a step
    for k in range(n_clusters):
        for i in range(1 + n_features):
            most += abs(shifted[k, i])
    for i in range(active):
        for j in range(i + 1):
            total = 0.0
            for side in range(2):
                c = pairs[i, side]
                if c != pairs[j, 0] and c != pairs[j, 1]:
                    continue
                sign = 1.0 if (side == 0) == (c == pairs[j, 0]) else -1.0
                first, second = references[pairs[i, 0]], references[pairs[j, 0]]
                weight = max(shifted[c, 0], soft)
                for d in range(n_features):
                    if shifted[c, 0] < soft or (lo[c, d] < m[c, d] < hi[c, d]):
                        total += sign * 2.0 * (m[c, d] - first[d]) * (m[c, d] - second[d]) / weight
            curvature[i, j] = total
            curvature[j, i] = total
    for _ in range(SWEEPS):
        change = 0.0
        for i in range(active):
            slope = gradient[i]
            for j in range(active):
                slope -= curvature[i, j] * step[j]
            move = slope / (curvature[i, i] * (1.0 + 1e-12) + 1e-12)
            move = clamp(move, -v[pairs[i, 0], pairs[i, 1]] - step[i], most - step[i])
            step[i] += move
            change = max(change, abs(move) * abs(slope))
        if change < 1e-18:
            break
    promise = 0.0
    for i in range(active):
        promise += gradient[i] * step[i]
    return active, promise, worst


@kernel
def ascend(plain, references, lo, hi, steps, soft, enough, v, shifted, m):
    """Improve v by Newton steps until the bound passes `enough`; `shifted` and `m` belong to the new v."""
    n_clusters = len(plain)
    pairs, step = np.empty((n_clusters * n_clusters, 2), np.int64), np.empty(n_clusters * n_clusters)
    start_v, trial_v, trial_m, trial = v.copy(), v.copy(), np.empty_like(m), np.empty_like(plain)
    shift_weights(plain, references, v, shifted)
    best = least_value(shifted, lo, hi, m)
    scale = 1.0 + abs(best)  # close to the top rounding hides what a step gains: take it unseen
    for _ in range(steps):
        if best >= enough:
            break
        active, promise, worst = _model_step(references, lo, hi, m, shifted, soft, v, pairs, step)
        if worst <= 0.1 * NEAREST_TOLERANCE or active == 0:
            break
        share, accepted, first = 1.0, False, best
        copy_into(start_v, v)
        copy_into(trial_v, v)
        for _try in range(TRIES):
            for i in range(active):
                k, l = pairs[i, 0], pairs[i, 1]
                trial_v[k, l] = max(start_v[k, l] + share * step[i], 0.0)
            shift_weights(plain, references, trial_v, trial)
            value = least_value(trial, lo, hi, trial_m)
            last = share == 1.0 and promise < 1e-9 * scale and value > best - 1e-13 * scale
            if value > best or last:
                straight = value - first > 0.8 * share * promise  # no curvature met: go farther
                accepted, best = True, value
                copy_into(v, trial_v)
                copy_into(shifted, trial)
                copy_into(m, trial_m)
                if share < 1.0 or last or not straight:
                    break
                share *= 4.0
            elif accepted:
                break
            else:
                share *= 0.25
        if not accepted:
            break
    return best


@kernel
def ascend_afresh(plain, references, lo, hi, steps, soft, enough, v, shifted, m):
    """`ascend`, and where inherited multipliers have led it onto a kink of the dual, once more from none."""
    best, trial_v, trial, trial_m = -np.inf, v.copy(), np.empty_like(shifted), np.empty_like(m)
    for _ in range(2):
        value = ascend(plain, references, lo, hi, steps, soft, enough, trial_v, trial, trial_m)
        if value > best:
            best = value
            copy_into(v, trial_v)
            copy_into(shifted, trial)
            copy_into(m, trial_m)
        if best >= enough or obeys_nearest(references, trial_m, NEAREST_TOLERANCE):
            break
        for k in range(len(v)):
            for l in range(len(v)):
                trial_v[k, l] = 0.0
    return best
