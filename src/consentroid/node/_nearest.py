"""The paper's symmetry rule (`Symmetry_Constraint`), for replaying the paper only.

    ‖m_k − r_k‖² ≤ ‖m_l − r_k‖²   for all k, l

It implies the order rule, which therefore serves as its relaxation while searching. At a leaf, multipliers v_kl ≥ 0
move weight between clusters: k gains v_kl and is drawn to r_k, l loses v_kl and is pushed off it; the rest stays a
separable quadratic, concave where a weight falls below zero. The rule is kept to NEAREST_TOLERANCE, in units of the
rows' squared spread, its value found to a relative NEAREST_GAP at best, and nothing under it is called a bound on the
clustering problem.
"""

from __future__ import annotations

import numpy as np

from ._compile import kernel
from ._kernels import clamp, copy_into

NEAREST_TOLERANCE, NEAREST_GAP = 1e-9, 1e-4


@kernel
def obeys_nearest(references, m, tolerance):
    n_clusters, n_features = m.shape
    for k in range(n_clusters):
        own = 0.0
        for d in range(n_features):
            own += (m[k, d] - references[k, d]) ** 2
        for l in range(n_clusters):
            other = 0.0
            for d in range(n_features):
                other += (m[l, d] - references[k, d]) ** 2
            if own > other + tolerance:
                return False
    return True


@kernel
def force_nearest(references, lo, hi, m):
    """Move m the least way towards the references (which obey the rule) until it does; False if boxes forbid it."""
    n_clusters, n_features = m.shape
    start, trial = m.copy(), np.empty((n_clusters, n_features))
    left, right, found = 0.0, 1.0, False
    for i in range(40):
        share = 1.0 if i == 0 else 0.5 * (left + right)
        for k in range(n_clusters):
            for d in range(n_features):
                x = start[k, d] + share * (references[k, d] - start[k, d])
                trial[k, d] = clamp(x, lo[k, d], hi[k, d])
        if obeys_nearest(references, trial, 0.5 * NEAREST_TOLERANCE):
            right, found = share, True
            copy_into(m, trial)
        elif i == 0:
            return False
        else:
            left = share
    return found


@kernel
def _relaxed(weight, total, price, references, lo, hi, v, m):
    """Least value of the quadratic with multipliers v; fills its minimiser."""
    n_clusters, n_features = price.shape
    value = 0.0
    for k in range(n_clusters):
        w = weight[k]
        for l in range(n_clusters):
            w += v[k, l] - v[l, k]
        for d in range(n_features):
            a = total[k, d] - 0.5 * price[k, d]
            for l in range(n_clusters):
                a += v[k, l] * references[k, d] - v[l, k] * references[l, d]
            if w > 0.0:
                x = clamp(a / w, lo[k, d], hi[k, d])
            else:
                x = lo[k, d]
                if (w * hi[k, d] - 2.0 * a) * hi[k, d] < (w * x - 2.0 * a) * x:
                    x = hi[k, d]
            m[k, d] = x
            value += (w * x - 2.0 * a) * x
    return value


@kernel
def ascend_nearest(weight, total, price, references, lo, hi, sweeps, m):
    """Bound on the quadratic part under the rule by multipliers, one at a time; `m` receives their minimiser."""
    n_clusters, n_features = price.shape
    v = np.zeros((n_clusters, n_clusters))
    best = _relaxed(weight, total, price, references, lo, hi, v, m)
    everything = 0.0
    for k in range(n_clusters):
        everything += weight[k]
    kept = m.copy()
    for _ in range(sweeps):
        if obeys_nearest(references, m, 0.1 * NEAREST_TOLERANCE):
            break
        for k in range(n_clusters):
            for l in range(n_clusters):
                if k == l:
                    continue
                left, right = 0.0, -1.0
                trial = v[k, l]
                for _step in range(50):
                    v[k, l] = trial
                    value = _relaxed(weight, total, price, references, lo, hi, v, m)
                    if value > best:
                        best = value
                        copy_into(kept, m)
                    excess = 0.0
                    for d in range(n_features):
                        excess += (m[k, d] - references[k, d]) ** 2 - (m[l, d] - references[k, d]) ** 2
                    if abs(excess) <= 0.1 * NEAREST_TOLERANCE or (excess < 0.0 and trial == 0.0):
                        break
                    if excess > 0.0:
                        left = trial
                    else:
                        right = trial
                    if right < 0.0:
                        trial = max(2.0 * trial, 0.01 * everything)
                        if trial > 1e3 * everything:
                            break
                    else:
                        trial = 0.5 * (left + right)
                        if right - left <= 1e-15 * right:
                            break
    if not obeys_nearest(references, m, NEAREST_TOLERANCE):
        copy_into(m, kept)
    return best
