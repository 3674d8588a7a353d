"""Quasi-Newton dual ascent: a concave quadratic model of d, held in check by the bundle.

    d_B(λ_t + s) = d(λ_t) + gᵀs + ½ sᵀBs                                                             (`QNDA_Dual`)

paper     max d_B   s.t. ‖s‖² ≤ α(t),  d_B(λ_t + s) ≤ every cut of the last τ rounds                (`QNDA_Update`)
epigraph  max v     s.t. ‖s‖² ≤ α(t),  v ≤ d_B(λ_t + s),  v ≤ every cut

The paper's feasible set is not convex: a concave quadratic below an affine cut is the outside of a convex set. The
current point s = 0 is feasible, and from there we solve locally: each turn replaces the quadratic in the cuts by its
tangent, which lies above it, so that every point of the convex inner problem is feasible for the true one and d_B never
falls. The turns end in a Karush-Kuhn-Tucker point. The epigraph form is convex while B ⪯ 0, one cone programme.

B starts at −I and follows `BFGSUpdate`, guarded so that it stays negative definite (`updated_hessian`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from ...core.arrays import Array
from ._bundle import CutBundle, ascend, empty_bundle, step_size
from ._clarabel import Block, Cone, solve_conic, unit_ball
from .base import DualEvaluation

CURVATURE = 1e-8  # ε of the guard yᵀs ≤ −ε‖s‖²
TURNS = 25  # of the local solve; it ends earlier when d_B no longer grows
PROGRESS = 1e-6  # relative growth of d_B that is worth another turn


@dataclass(frozen=True)
class QuasiNewtonState:
    lam: Array  # (E, K, D) next point
    t: int  # its round, from 1
    lams: Array  # (L, E·K·D) bundle, oldest first
    subgradients: Array  # (L, E·K·D)
    values: Array  # (L,)
    hessian: Array  # (E·K·D, E·K·D) B, negative definite


@dataclass(frozen=True)
class QuasiNewton:
    form: Literal["paper", "epigraph"] = "paper"
    alpha: float = 0.5
    age: int = 50

    @property
    def name(self) -> str:
        return "qnda" if self.form == "paper" else "qnda-epigraph"

    def init(self, lam: Array) -> QuasiNewtonState:
        bundle = empty_bundle(lam)
        return QuasiNewtonState(lam, 1, bundle.lams, bundle.subgradients, bundle.values, -np.eye(lam.size))

    def update(self, state: QuasiNewtonState, at: DualEvaluation) -> QuasiNewtonState:
        bundle = CutBundle(state.lams, state.subgradients, state.values).with_evaluation(at, self.age)
        hessian = state.hessian
        if len(state.values):
            moved = bundle.lams[-1] - state.lams[-1]
            turned = bundle.subgradients[-1] - state.subgradients[-1]
            hessian = updated_hessian(hessian, moved, turned)
        solve = paper_step if self.form == "paper" else epigraph_step
        step = solve(bundle, hessian, float(np.sqrt(step_size(self.alpha, state.t))))
        lam = at.lam + step.reshape(at.lam.shape)
        return QuasiNewtonState(lam, state.t + 1, bundle.lams, bundle.subgradients, bundle.values, hessian)


def updated_hessian(hessian: Array, s: Array, y: Array) -> Array:
    """`BFGSUpdate`, or B unchanged where it would not stay safely negative definite.

    Concavity gives yᵀs ≤ 0 only; without yᵀs ≤ −ε‖s‖² the update divides by nothing, and without ‖y‖² ≤ −yᵀs/ε it
    adds an eigenvalue that swamps all others.
    """
    along, moved, turned = float(y @ s), float(s @ s), float(y @ y)
    if not (np.isfinite(along) and along < 0.0 and along <= -CURVATURE * moved and turned <= -along / CURVATURE):
        return hessian
    pushed = hessian @ s
    updated = hessian + np.outer(y, y) / along - np.outer(pushed, pushed) / float(s @ pushed)
    updated = (updated + updated.T) / 2.0
    return updated if factor(updated) is not None else hessian


def factor(hessian: Array) -> Array | None:
    """Upper triangular C with CᵀC = −B, or `None` where B is not numerically negative definite."""
    if not np.isfinite(hessian).all():
        return None
    try:
        return np.asarray(np.linalg.cholesky(-hessian).T)
    except np.linalg.LinAlgError:
        return None


def paper_step(bundle: CutBundle, hessian: Array, radius: float) -> Array:
    """A Karush-Kuhn-Tucker point of `QNDA_Update`, reached from s = 0 through feasible points."""
    gradient = bundle.subgradients[-1]
    slopes, errors = bundle.cuts_within(radius)
    # Cuts with the current slope lie nowhere below d_B, since B ≺ 0 and errors are not negative.
    turn = gradient - slopes
    differs = np.any(turn != 0.0, axis=1)
    turn, errors = turn[differs], errors[differs]

    def model(s: Array) -> float:
        return float(gradient @ s + 0.5 * s @ hessian @ s)

    def excess(s: Array) -> Array:
        """d_B − cut_l, which must not be positive."""
        return np.asarray(0.5 * s @ hessian @ s + turn @ s - errors)

    step = np.zeros_like(gradient)
    for _ in range(TURNS):
        target = _inner_step(gradient, hessian, radius, step, turn + hessian @ step, excess(step))
        if target is None:
            break
        candidate = _feasible_part(step, target, radius, excess)
        if model(candidate) <= model(step) + PROGRESS * abs(model(step)):
            break
        step = candidate
    return step


def _inner_step(
    gradient: Array, hessian: Array, radius: float, around: Array, tangents: Array, excess: Array
) -> Array | None:
    """max d_B over the ball and excess_l + tangent_lᵀ(s − around) ≤ 0; solved for s/radius at unit scale."""
    n = len(gradient)
    scale = float(np.linalg.norm(gradient)) * radius
    if n == 0 or scale == 0.0:
        return None
    sizes = np.maximum(np.linalg.norm(tangents, axis=1) * radius, scale)
    cuts = Block(tangents * (radius / sizes)[:, None], (tangents @ around - excess) / sizes, Cone.NONNEGATIVE)
    x = solve_conic(-hessian * (radius * radius / scale), -gradient * (radius / scale), [cuts, unit_ball(n, n)])
    return None if x is None else radius * x


def _feasible_part(start: Array, target: Array, radius: float, excess: Callable[[Array], Array]) -> Array:
    """The farthest of a few points from start to target that is feasible to the last bit, against solver tolerance."""
    norm = float(np.linalg.norm(target))
    if norm > radius:
        target = target * (radius / norm)
    for share in (1.0, 1.0 - 1e-9, 1.0 - 1e-6, 1.0 - 1e-3, 0.9, 0.5):
        candidate = start + share * (target - start)
        if np.all(excess(candidate) <= 0.0):
            return np.asarray(candidate)
    return start


def epigraph_step(bundle: CutBundle, hessian: Array, radius: float) -> Array:
    """argmax of min{d_B, cuts} in the ball; ½‖Cs‖² ≤ gᵀs − w as a second-order cone, with CᵀC = −B."""
    gradient = bundle.subgradients[-1]
    slopes, errors = bundle.cuts_within(radius)
    n = len(gradient)
    scale = float(np.linalg.norm(slopes, axis=1).max()) * radius
    root = factor(hessian)
    if n == 0 or scale == 0.0:
        return np.zeros(n)
    if root is None:
        return ascend(gradient, radius)
    cuts = Block(np.column_stack([-slopes * (radius / scale), np.ones(len(slopes))]), errors / scale, Cone.NONNEGATIVE)
    # With y = (gᵀs − w)/scale and x = Cs/√scale: ‖x‖² ≤ 2y  ⟺  ‖(√2 x, y − 1)‖ ≤ y + 1.
    surplus = np.append(gradient * (radius / scale), -1.0)
    bent = np.column_stack([root * (np.sqrt(2.0 / scale) * radius), np.zeros(n)])
    quadratic = Block(
        -np.vstack([surplus, bent, surplus]), np.concatenate([[1.0], np.zeros(n), [-1.0]]), Cone.SECOND_ORDER
    )
    x = solve_conic(None, np.append(np.zeros(n), -1.0), [cuts, quadratic, unit_ball(n, n + 1)])
    return ascend(gradient, radius) if x is None else radius * x[:n]
