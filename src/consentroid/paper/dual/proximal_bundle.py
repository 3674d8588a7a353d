"""Proximal bundle method in price space, one cut per node and round.

The dual function is a sum of node parts d_i(p_i), each the least of cost + ⟨p_i, centroids⟩ over the centroids that
node i may choose, at prices that sum to zero. Every centroids m that a node returns, at cost a, give a cut
d_i(p_i) ≤ a + ⟨p_i, m⟩ for *all* prices. The next prices maximise the sum of the nodes' models less
(u/2)‖p − p̂‖² around the best prices p̂ known (`_master.py`). Knowing each node's cuts apart, instead of only their sum
as in `Bundle`, makes the model exponentially richer for the same messages: any combination of the nodes' cuts counts.

Value and bound are two numbers. Cuts are made of attained values, so the model is never below d. Progress is judged on
proven bounds: the centre moves (a serious step) only when the proven bound rises by a share of the predicted increase
δ = model(p) − bound(p̂); otherwise the new cuts improve the model (a null step).

The weights of the master prove how good the centre is. With ε = Σ w·cut(p̂) − bound(p̂) and r_i = x_i − x̄,

    d(p) ≤ bound(p̂) + ε + ⟨r, p − p̂⟩      for all prices p that sum to zero,

so no prices within a distance R of the centre are better by more than ε + ‖r‖R. The x_i themselves are the primal
point: node i's convex combination of centroids, in agreement when r = 0.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ...core.arrays import Array
from ...core.topology import Topology
from ._master import solve_flat_master
from .base import DualEvaluation

LONGER, SHORTER = 10.0, 4.0  # at most by these factors does the proximity fall and rise in a round
RANGE = 1e6  # and never farther than this from the first one
NO_WEIGHT = 1e-9  # a cut below this weight is idle


@dataclass(frozen=True)
class ProximalState:
    # the next point, and what the master says about it and about the centre
    lam: Array  # (E, K, D)
    model: float  # the model at the next point
    level: float  # the model at the centre: what the nodes attained there, bound ≤ d ≤ level
    weighted: float  # Σ w·cut(p̂), the aggregate cut at the centre
    residual: float  # ‖r‖
    primal: Array  # (N, K, D) x_i
    reach: float  # the longest step from a centre so far, the next one included
    # change with serious steps
    centre: Array  # (N, K, D) p̂
    bound: float  # proven at the centre
    # change with every evaluation
    t: int  # round of the next point, from 1
    proximity: float  # u; 0 before the first evaluation
    first_proximity: float
    streak: int  # serious steps in a row if positive, null steps if negative
    # the bundle, node by node
    owners: NDArray[np.int64]  # (C,) node of each cut, ascending
    costs: Array  # (C,)
    points: Array  # (C, K, D)
    idle: NDArray[np.int64]  # (C,) rounds since the cut last had a weight

    @property
    def model_gap(self) -> float:
        """δ, the increase of the proven bound that the model promises for the next point."""
        return self.model - self.bound

    @property
    def error(self) -> float:
        """ε"""
        return max(self.weighted - self.bound, 0.0)


@dataclass(frozen=True)
class ProximalBundle:
    topology: Topology
    share: float = 0.1  # of the predicted increase that makes a step serious
    age: int = 20  # rounds that a cut without weight is kept
    first: float = 0.25  # increase that the first step aims at, in units of |d|
    name: str = "proximal"

    def init(self, lam: Array) -> ProximalState:
        n, shape = self.topology.n_nodes, lam.shape[1:]
        return ProximalState(
            lam=lam,
            model=np.inf,
            level=-np.inf,
            weighted=np.inf,
            residual=np.inf,
            primal=np.zeros((n, *shape)),
            centre=self.topology.prices(lam),
            bound=-np.inf,
            reach=0.0,
            t=1,
            proximity=0.0,
            first_proximity=0.0,
            streak=0,
            owners=np.empty(0, dtype=np.int64),
            costs=np.empty(0),
            points=np.empty((0, *shape)),
            idle=np.empty(0, dtype=np.int64),
        )

    def update(self, state: ProximalState, at: DualEvaluation) -> ProximalState:
        state = self._judged(state, at)
        costs = at.node_values - np.einsum("nkd,nkd->n", at.prices, at.centroids)
        return self._advanced(with_cuts(state, np.arange(len(costs)), costs, at.centroids))

    def exhausted(self, state: ProximalState, increase: float) -> bool:
        """No prices within the longest step of the centre beat the value attained there by more than `increase`."""
        left = state.weighted - state.level + state.residual * state.reach
        return bool(np.isfinite(state.bound)) and left <= increase

    def _judged(self, state: ProximalState, at: DualEvaluation) -> ProximalState:
        """Serious or null, and the proximity that follows."""
        if state.proximity == 0.0:
            proximity = self._first_proximity(at)
            return replace(state, centre=at.prices, bound=at.bound, proximity=proximity, first_proximity=proximity)
        rise, promised = at.bound - state.bound, state.model - state.level
        serious = rise > 0.0 and rise >= self.share * promised
        state = replace(
            state,
            proximity=self._next_proximity(state, (at.value - state.level) / promised if promised > 0.0 else 1.0),
            streak=max(state.streak, 0) + 1 if serious else min(state.streak, 0) - 1,
        )
        return replace(state, centre=at.prices, bound=at.bound) if serious else state

    def _first_proximity(self, at: DualEvaluation) -> float:
        """u at which the first cut promises an increase of `first`·|d|: the same for data in any unit."""
        disagreement = float(np.sum((at.centroids - at.centroids.mean(axis=0)) ** 2))
        aim = self.first * abs(at.value)
        return disagreement / aim if disagreement > 0.0 and aim > 0.0 else 1.0

    def _next_proximity(self, state: ProximalState, ratio: float) -> float:
        """Kiwiel's interpolation: the u at which a quadratic through what was seen would have its maximum.

        `ratio` compares attained with promised *values*. A node that stops early keeps the bound down at any distance
        from the centre; to step shorter for its sake would end in a standstill.
        """
        u = state.proximity
        fitted = 2.0 * u * (1.0 - ratio)
        if ratio > 0.5:
            u = max(fitted, u / LONGER)
        elif ratio < self.share and state.streak <= 0:  # one null step after a serious one is the model's fault
            u = min(fitted, u * SHORTER)
        return float(np.clip(u, state.first_proximity / RANGE, state.first_proximity * RANGE))

    def _advanced(self, state: ProximalState) -> ProximalState:
        """Solve the master; the next point and all that the weights prove."""
        offsets = np.searchsorted(state.owners, np.arange(len(state.centre) + 1))
        master = solve_flat_master(
            state.costs, state.points.reshape(len(state.costs), -1), offsets, state.centre, state.proximity
        )
        idle = np.where(master.weights > NO_WEIGHT, 0, state.idle + 1)
        keep = idle <= self.age
        heights = state.costs + np.einsum("ckd,ckd->c", state.points, state.centre[state.owners])
        disagreement = master.primal - master.primal.mean(axis=0)
        return replace(
            state,
            lam=self.topology.lam_for(master.prices),
            model=master.value,
            level=float(np.minimum.reduceat(heights, offsets[:-1]).sum()),
            weighted=float(master.weights @ heights),
            residual=float(np.linalg.norm(disagreement)),
            primal=master.primal,
            reach=max(state.reach, float(np.linalg.norm(master.prices - state.centre))),
            t=state.t + 1,
            owners=state.owners[keep],
            costs=state.costs[keep],
            points=state.points[keep],
            idle=idle[keep],
        )


def with_cuts(state: ProximalState, owners: NDArray[np.int64], costs: Array, points: Array) -> ProximalState:
    """Add cuts (cost, centroids) of given nodes; centroids must obey the symmetry rule that the nodes obey."""
    owners = np.concatenate([state.owners, owners])
    order = np.argsort(owners, kind="stable")
    return replace(
        state,
        owners=owners[order],
        costs=np.concatenate([state.costs, costs])[order],
        points=np.concatenate([state.points, points])[order],
        idle=np.concatenate([state.idle, np.zeros(len(costs), dtype=np.int64)])[order],
    )


def optimal_within(state: ProximalState) -> tuple[float, float]:
    """(ε, ‖r‖): d(p) ≤ bound + ε + ‖r‖·‖p − centre‖ for all prices that sum to zero."""
    return state.error, state.residual
