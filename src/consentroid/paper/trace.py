"""What a run of the paper's loop remembers of each round, and the paper's account of time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..core.result import Step

T_COMM = 0.8
"""Seconds of communication per round that the paper assumes; shown beside measured time, never instead of it."""


@dataclass(frozen=True)
class RoundRecord(Step):
    """A step with what only the paper's loop knows; the phase is "dual", or "incumbent" for evaluations only."""

    t_sub: float = 0.0  # slowest node of this round
    t_update: float = 0.0  # coordinator
    dual_value: float | None = None  # d(λ) attained, under the rule in force
    cost: float | None = None  # Σ_i z_i at the centroids proposed in this round
    residual: float | None = None  # ‖w_p‖₂
    bytes_up: int = 0  # nodes → coordinator, since the start
    bytes_down: int = 0

    @property
    def round_gap(self) -> float | None:
        """rel. DG of this very round (`Clustering_DG`), as a fraction."""
        if self.dual_value is None or self.cost is None or self.cost <= 0:
            return None
        return 1.0 - self.dual_value / self.cost


def t_comp(records: Sequence[RoundRecord], t_comm: float = T_COMM) -> float:
    """`Comp_Time`: nodes side by side, plus an assumed time for communication."""
    return sum(t_comm + record.t_update + record.t_sub for record in records)
