"""The bundle of `Bundle` and its linearisation errors `LinError`, shared by bundle trust and quasi-Newton ascent.

A cut l says d(λ) ≤ d(λ_l) + g_lᵀ(λ − λ_l). Seen from the current λ_t, with s = λ − λ_t, it reads

    d(λ_t + s) ≤ d(λ_t) + g_lᵀ s + e_l,      e_l = −β^(l,t) = d(λ_l) + g_lᵀ(λ_t − λ_l) − d(λ_t) ≥ 0.

`values` are attained values, hence valid cuts; e_l < 0 can only come from an inexact node solve and is read as 0.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...core.arrays import Array
from .base import DualEvaluation


@dataclass(frozen=True)
class CutBundle:
    """At most the last τ evaluations, oldest first; the last one is the current point."""

    lams: Array  # (L, n)
    subgradients: Array  # (L, n)
    values: Array  # (L,)

    def with_evaluation(self, at: DualEvaluation, age: int) -> CutBundle:
        return CutBundle(
            np.concatenate([self.lams, at.lam.reshape(1, -1)])[-age:],
            np.concatenate([self.subgradients, at.subgradient.reshape(1, -1)])[-age:],
            np.append(self.values, at.value)[-age:],
        )

    @property
    def errors(self) -> Array:
        """e_l for every cut, seen from the current point."""
        there = self.values + np.einsum("ln,ln->l", self.subgradients, self.lams[-1] - self.lams)
        errors: Array = np.maximum(there - self.values[-1], 0.0)
        errors[-1] = 0.0
        return errors

    def cuts_within(self, radius: float) -> tuple[Array, Array]:
        """(g_l, e_l) of the cuts that can matter for ‖s‖ ≤ radius.

        No model value exceeds radius·‖g_t‖, so a cut that stays above that everywhere in the ball is redundant;
        leaving it out keeps the programme well scaled.
        """
        errors, norms = self.errors, np.linalg.norm(self.subgradients, axis=1)
        keep = errors <= radius * (norms + norms[-1])
        keep[-1] = True
        return self.subgradients[keep], errors[keep]


def empty_bundle(lam: Array) -> CutBundle:
    return CutBundle(np.empty((0, lam.size)), np.empty((0, lam.size)), np.empty(0))


def step_size(initial: float, t: int) -> float:
    """α(t) = α(0)/√t, t from 1 (`Step_Size_Clustering`)."""
    return initial / float(np.sqrt(t))


def ascend(subgradient: Array, radius: float) -> Array:
    """The step to the edge of the trust region along the subgradient: what remains when a programme is not solved."""
    norm = float(np.linalg.norm(subgradient))
    return subgradient * (radius / norm) if norm > 0.0 else np.zeros_like(subgradient)
