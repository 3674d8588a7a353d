"""Subgradient method: λ(t+1) = λ(t) + α(t) g(λ(t)) (`Subgradient_Update`), α(t) = α(0)/√t (`Step_Size_Clustering`)."""

from __future__ import annotations

from dataclasses import dataclass

from ...core.arrays import Array
from ._bundle import step_size
from .base import DualEvaluation


@dataclass(frozen=True)
class SubgradientState:
    lam: Array  # (E, K, D) next point
    t: int  # its round, from 1


@dataclass(frozen=True)
class Subgradient:
    alpha: float = 0.5
    name: str = "sg"

    def init(self, lam: Array) -> SubgradientState:
        return SubgradientState(lam, 1)

    def update(self, state: SubgradientState, at: DualEvaluation) -> SubgradientState:
        return SubgradientState(at.lam + step_size(self.alpha, state.t) * at.subgradient, state.t + 1)
