"""Synthetic dual functions with a known optimum: d(λ) = Σ_i min_c a_ic + ⟨price_i, m_ic⟩ over given points m_ic.

All nodes share at least one point, so that the optimum is finite; it is a linear programme, solved by HiGHS.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.optimize import linprog

from consentroid.core.topology import Topology
from consentroid.paper.dual.base import DualEvaluation


@dataclass(frozen=True)
class PieceDual:
    topology: Topology
    costs: np.ndarray  # (N, C)
    points: np.ndarray  # (N, C, K, D)
    looseness: float = 0.0  # an inexact node returns any piece this near to its best, and a bound this far below that

    @classmethod
    def random(cls, seed, n_nodes, shape=(2, 2), n_pieces=12, kind="line", scale=1.0, looseness=0.0):
        """`scale` is a unit of length: points scale with it, costs with its square."""
        rng = np.random.default_rng(seed)
        points = rng.uniform(-1, 1, (n_nodes, n_pieces, *shape))
        points[:, :3] = points[0, :3]
        costs = (points**2).sum(axis=(2, 3)) * rng.uniform(0.2, 1.0, (n_nodes, n_pieces))
        return cls(Topology.of(kind, n_nodes), costs * scale**2, points * scale, looseness)

    @property
    def start(self):
        return np.zeros((self.topology.n_edges, *self.points.shape[2:]))

    def evaluate(self, lam):
        prices = self.topology.prices(lam)
        pieces = self.costs + np.einsum("nckd,nkd->nc", self.points, prices)
        least = pieces.min(axis=1)
        # The last piece within reach: a fixed choice, but hardly ever the best one.
        chosen = pieces.shape[1] - 1 - (pieces <= least[:, None] + self.looseness)[:, ::-1].argmax(axis=1)
        nodes = np.arange(len(chosen))
        values, centroids, bounds = pieces[nodes, chosen], self.points[nodes, chosen], least - self.looseness
        return DualEvaluation(
            lam, float(values.sum()), float(bounds.sum()), self.topology.residual(centroids),
            prices, values, bounds, centroids,
        )  # fmt: skip

    @cached_property
    def optimum(self):
        """max_λ d(λ) as min Σ_i w_i·a_i over weights w_i on node i's points whose means agree."""
        n, c = self.costs.shape
        flat = self.points.reshape(n, c, -1)
        agree = [
            np.hstack([flat[i].T if j == i else -flat[i + 1].T if j == i + 1 else 0 * flat[j].T for j in range(n)])
            for i in range(n - 1)
        ]
        simplex = np.kron(np.eye(n), np.ones(c))
        rhs = np.concatenate([np.zeros((n - 1) * flat.shape[2]), np.ones(n)])
        return linprog(self.costs.ravel(), A_eq=np.vstack([*agree, simplex]), b_eq=rhs, method="highs").fun


def climb(rule, problem, rounds):
    """The best bound after each round."""
    state, bounds = rule.init(problem.start), []
    for _ in range(rounds):
        at = problem.evaluate(state.lam)
        bounds.append(at.bound)
        state = rule.update(state, at)
    return np.maximum.accumulate(bounds), state
