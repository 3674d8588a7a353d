"""Bundle trust method: maximise the cutting-plane model in a ball (`SmoothDirectipnFinding`).

    max_{v, s} v   s.t.  ‖s‖² ≤ α(t),   v ≤ g_lᵀ s + e_l  for every cut of the last τ rounds,
    λ(t+1) = λ(t) + s(t)                                                                       (`BTM_Update`)

The trust region bounds the *squared* norm, and every step is taken: the paper knows no null steps.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...core.arrays import Array
from ._bundle import CutBundle, ascend, empty_bundle, step_size
from ._clarabel import Block, Cone, solve_conic, unit_ball
from .base import DualEvaluation


@dataclass(frozen=True)
class BundleTrustState:
    lam: Array  # (E, K, D) next point
    t: int  # its round, from 1
    lams: Array  # (L, E·K·D) bundle, oldest first
    subgradients: Array  # (L, E·K·D)
    values: Array  # (L,)


@dataclass(frozen=True)
class BundleTrust:
    alpha: float = 0.5
    age: int = 50
    name: str = "btm"

    def init(self, lam: Array) -> BundleTrustState:
        bundle = empty_bundle(lam)
        return BundleTrustState(lam, 1, bundle.lams, bundle.subgradients, bundle.values)

    def update(self, state: BundleTrustState, at: DualEvaluation) -> BundleTrustState:
        bundle = CutBundle(state.lams, state.subgradients, state.values).with_evaluation(at, self.age)
        step = direction(bundle, radius=float(np.sqrt(step_size(self.alpha, state.t))))
        lam = at.lam + step.reshape(at.lam.shape)
        return BundleTrustState(lam, state.t + 1, bundle.lams, bundle.subgradients, bundle.values)


def direction(bundle: CutBundle, radius: float) -> Array:
    """argmax of min_l g_lᵀ s + e_l over ‖s‖ ≤ radius; solved for s/radius with the cuts scaled to unit size."""
    slopes, errors = bundle.cuts_within(radius)
    n = slopes.shape[1]
    scale = float(np.linalg.norm(slopes, axis=1).max())
    if n == 0 or scale == 0.0:
        return np.zeros(n)
    cuts = np.column_stack([-slopes / scale, np.ones(len(slopes))])
    x = solve_conic(
        None,
        np.append(np.zeros(n), -1.0),
        [Block(cuts, errors / (scale * radius), Cone.NONNEGATIVE), unit_ball(n, n + 1)],
    )
    return ascend(bundle.subgradients[-1], radius) if x is None else radius * x[:n]
