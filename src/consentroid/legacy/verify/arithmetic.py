"""The claims that anybody can check without rows, in exact rational arithmetic."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import combinations

import numpy as np
from scipy.optimize import linprog

from ...core.arrays import Array
from ...core.errors import CertificateInvalid
from .document import Document, Leaf

ROUNDING = 1e-12  # relative slack on the harmless side of a sum; on the other side there is none
COORDINATES = 2.0**-70  # times the squared coordinates: costs that come from rounding the centroids alone


def check_sums(claims: Document) -> None:
    """Prices sum to zero, bounds to the leaves' bounds, costs to the upper bound; the least bound is the lower one."""
    for i, leaf in enumerate(claims.leaves):
        if leaf.prices is not None and leaf.node_bounds is not None:
            _check_prices(leaf.prices, i)
            _check_sum(leaf.bound, leaf.node_bounds, f"leaf {i}, bound", at_most=True)
    _check_sum(claims.upper_bound, claims.node_costs, "upper_bound", at_most=False)
    if np.any(claims.node_costs < 0):
        raise CertificateInvalid(f"incumbent.node_costs: {float(claims.node_costs.min())!r} is negative")
    least = min((leaf.bound for leaf in claims.leaves), default=0.0)  # a sum of squares is never below zero
    proven = min(least, claims.upper_bound)
    if claims.lower_bound > proven:
        raise CertificateInvalid(
            f"lower_bound: claims {claims.lower_bound!r}, but the leaves prove only {proven!r}"
            + (f" (leaf {int(np.argmin([leaf.bound for leaf in claims.leaves]))})" if claims.leaves else "")
        )
    if claims.lower_bound < proven - ROUNDING * abs(proven):
        raise CertificateInvalid(f"lower_bound: claims {claims.lower_bound!r}, the leaves prove {proven!r}")
    lower, upper = claims.lower_bound, claims.upper_bound
    gap = 0.0 if upper <= 0.0 else max(upper - lower, 0.0) / upper
    rounding = COORDINATES * float(np.sum(np.abs(claims.domain).max(axis=0) ** 2))
    closed = claims.gap == 0.0 and upper - lower <= rounding
    if not closed and not math.isclose(claims.gap, gap, rel_tol=1e-9, abs_tol=1e-15):
        raise CertificateInvalid(f"gap: claims {claims.gap!r}, but the bounds give {gap!r}")


def check_excluded(leaf: Leaf, number: int, references: Array | None) -> None:
    """No centroids in the leaf obey the order rule.

    Shown by multipliers u ≥ 0, one a pair, with max_{m ∈ leaf} Σ_{k<l} u_kl (r_k − r_l)·(m_k − m_l) < 0: one pair
    alone in most leaves. The multipliers may come from anywhere; the maximum is computed in rational numbers.
    """
    if references is None:
        raise CertificateInvalid(f"leaf {number}: excluded by the order rule, but the rule is 'none'")
    pairs = list(combinations(range(len(references)), 2))
    if any(_greatest(leaf.boxes, references, {pair: Fraction(1)}) < 0 for pair in pairs):
        return
    multipliers = _infeasibility(leaf.boxes, references, pairs)
    if multipliers and _greatest(leaf.boxes, references, multipliers) < 0:
        return
    raise CertificateInvalid(f"leaf {number}: not excluded by the order rule, some centroids in it obey it")


def _greatest(boxes: Array, references: Array, multipliers: dict[tuple[int, int], Fraction]) -> Fraction:
    """max over the boxes of the weighted sum of the rule's left-hand sides."""
    n_clusters, n_features = references.shape
    r = [[Fraction(float(x)) for x in row] for row in references]
    total = Fraction(0)
    for k in range(n_clusters):
        for d in range(n_features):
            slope = sum(
                (u * (r[a][d] - r[b][d]) * (1 if k == a else -1) for (a, b), u in multipliers.items() if k in (a, b)),
                Fraction(0),
            )
            total += slope * Fraction(float(boxes[1 if slope > 0 else 0, k, d]))
    return total


def _infeasibility(boxes: Array, references: Array, pairs: list[tuple[int, int]]) -> dict[tuple[int, int], Fraction]:
    """Multipliers of the linear programme: make the least slack as large as possible."""
    n_clusters, n_features = references.shape
    rows = np.zeros((len(pairs), n_clusters, n_features))
    for p, (a, b) in enumerate(pairs):
        normal = references[a] - references[b]
        length = float(np.linalg.norm(normal)) or 1.0
        rows[p, a], rows[p, b] = normal / length, -normal / length
    matrix = np.hstack([-rows.reshape(len(pairs), -1), np.ones((len(pairs), 1))])  # t − row·m ≤ 0, maximise t
    sides = [(float(lo), float(hi)) for lo, hi in zip(boxes[0].ravel(), boxes[1].ravel())]
    goal = np.zeros(matrix.shape[1])
    goal[-1] = -1.0
    result = linprog(goal, A_ub=matrix, b_ub=np.zeros(len(pairs)), bounds=[*sides, (None, None)])
    if result.status != 0:
        return {}
    found = {}
    for p, (a, b) in enumerate(pairs):
        length = float(np.linalg.norm(references[a] - references[b])) or 1.0
        found[a, b] = Fraction(max(-float(result.ineqlin.marginals[p]) / length, 0.0))
    return found


def _check_prices(prices: Array, number: int) -> None:
    for k, d in np.ndindex(prices.shape[1:]):
        total = math.fsum(prices[:, k, d])  # the exact sum, rounded once: zero only if the sum is zero
        if total != 0.0:
            raise CertificateInvalid(
                f"leaf {number}, prices: they sum to {total!r} over the nodes for feature {d} of cluster {k}, not to 0"
            )


def _check_sum(claimed: float, terms: Array, place: str, at_most: bool) -> None:
    exact = sum((Fraction(float(term)) for term in terms), Fraction(0))
    slack = Fraction(ROUNDING) * sum((abs(Fraction(float(term))) for term in terms), Fraction(0)) + Fraction(1e-300)
    distance = exact - Fraction(claimed) if at_most else Fraction(claimed) - exact
    if distance < 0:
        side = "above" if at_most else "below"
        raise CertificateInvalid(f"{place}: claims {claimed!r}, {side} the nodes' sum {float(exact)!r}")
    if distance > slack:
        raise CertificateInvalid(f"{place}: claims {claimed!r}, but the nodes' numbers sum to {float(exact)!r}")
