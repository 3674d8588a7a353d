"""What an update rule sees and returns.

A rule maximises the concave dual function d(λ) = Σ_i d_i(A_iᵀ λ) (`Dual_Problem`) from evaluations of it. It knows
nothing of nodes' rows or of K-means. State is a frozen dataclass of arrays and scalars whose `lam` is the next point.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, TypeVar

from ...core.arrays import Array


@dataclass(frozen=True)
class DualEvaluation:
    """d at `lam`: `value` belongs to the attained centroids and makes valid cuts, `bound` is proven."""

    lam: Array  # (E, K, D)
    value: float
    bound: float
    subgradient: Array  # (E, K, D), consensus residual (`Subgradient_Consensus`)
    prices: Array  # (N, K, D), per node, for rules with one cut per node
    node_values: Array  # (N,)
    node_bounds: Array  # (N,)
    centroids: Array  # (N, K, D): subgradient of node i's part with respect to its price


class DualState(Protocol):
    @property
    def lam(self) -> Array: ...


S = TypeVar("S", bound=DualState)


class DualUpdate(Protocol[S]):
    name: str

    def init(self, lam: Array) -> S: ...

    def update(self, state: S, at: DualEvaluation) -> S: ...


def exhausted(rule: DualUpdate[S], state: S, increase: float) -> bool:
    """Whether the rule can show that no λ raises the dual value by more than `increase`; the paper's rules cannot."""
    test = getattr(rule, "exhausted", None)
    return test is not None and bool(test(state, increase))
