"""Symmetry rules: which of the K! labellings of the centroids a node may return.

========  ==================================================  =========================================
rule      constraint on a node's centroids m                  status
========  ==================================================  =========================================
order     (r_k − r_l)·(m_k − m_l) ≥ 0  for all k < l          valid for any fixed references r
nearest   ‖m_k − r_k‖² ≤ ‖m_l − r_k‖²  for all k, l           `Symmetry_Constraint` of the paper: can
                                                              exclude the optimum; replay only
none      –                                                   valid
========  ==================================================  =========================================

Why `order` is valid: relabel the consensus centroids by the permutation that minimises Σ_k ‖m_k − r_k‖².
It is optimal under every pairwise swap, and the swap condition is exactly the inequality above.

The proof needs the normals to be differences of *one* set of references. `Symmetry` therefore rounds the
references to a grid on which all differences are exact in floating point.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from .arrays import Array, squared_distances
from .errors import InvalidInput

Rule = Literal["order", "nearest", "none"]


def round_to_grid(values: Array, bits: int = 40) -> Array:
    """Round to multiples of 2^(e − bits), 2^e ≥ max|values|: sums of up to 2^(52 − bits) entries are exact."""
    largest = float(np.max(np.abs(values), initial=0.0))
    if largest == 0.0 or not math.isfinite(largest):
        return np.array(values, dtype=float)
    step = math.ldexp(1.0, max(math.frexp(largest)[1] - bits, -1000))
    return np.asarray(np.round(np.asarray(values, dtype=float) / step) * step)


@dataclass(frozen=True)
class Symmetry:
    """A rule and, unless the rule is `none`, its fixed references (K, D)."""

    rule: Rule = "none"
    references: Array | None = None

    def __post_init__(self) -> None:
        if self.rule not in get_args(Rule):
            raise InvalidInput(f"unknown symmetry rule '{self.rule}'; choose one of {', '.join(get_args(Rule))}")
        if self.rule == "none":
            object.__setattr__(self, "references", None)
        elif self.references is None:
            raise InvalidInput(f"the symmetry rule '{self.rule}' needs reference centroids")
        else:
            object.__setattr__(self, "references", round_to_grid(self.references))

    @property
    def valid(self) -> bool:
        """Whether a bound obtained under this rule is a bound on the optimum."""
        return self.rule != "nearest"

    def normals(self, n_clusters: int) -> Array:
        """(K, K, D) array of r_k − r_l, exact; zeros where the rule imposes nothing."""
        if self.references is None:
            return np.zeros((n_clusters, n_clusters, 0))
        return np.asarray(self.references[:, None, :] - self.references[None, :, :])

    def satisfied(self, centroids: Array, tolerance: float = 0.0) -> bool:
        """Whether centroids (K, D) obey the rule to an absolute tolerance."""
        if self.references is None:
            return True
        m, r = centroids, self.references
        if self.rule == "order":
            difference = m[:, None, :] - m[None, :, :]
            return bool(np.all(np.einsum("kld,kld->kl", self.normals(len(m)), difference) >= -tolerance))
        squared = squared_distances(r, m)  # [k, l] = ‖m_l − r_k‖²
        return bool(np.all(np.diag(squared)[:, None] <= squared + tolerance))


def alignment(centroids: Array, references: Array) -> NDArray[np.intp]:
    """The permutation of the centroids that minimises Σ_k ‖m_k − r_k‖²."""
    from scipy.optimize import linear_sum_assignment  # here, since no site needs it and it takes a third of a second

    return np.asarray(linear_sum_assignment(squared_distances(references, centroids))[1])


def align(centroids: Array, references: Array) -> Array:
    """Relabel centroids by `alignment`; the result obeys the order rule."""
    return np.asarray(centroids[alignment(centroids, references)])


def canonical_order(centroids: Array) -> NDArray[np.intp]:
    """Clusters in lexicographic order of their centroids, so that labels do not depend on the run."""
    return np.lexsort(centroids.T[::-1])


def canonical(centroids: Array) -> Array:
    """Centroids in canonical order."""
    return np.asarray(centroids[canonical_order(centroids)])
