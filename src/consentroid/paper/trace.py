"""What a run remembers of each round, and the paper's account of time."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

T_COMM = 0.8
"""Seconds of communication a round that the paper assumes; shown beside measured time, never instead of it."""


@dataclass
class RoundRecord:
    round: int
    phase: str  # "dual": the paper's loop; "incumbent": evaluations only; "tree": branch and bound
    lower: float  # best proven so far
    upper: float  # best attained so far
    gap: float
    seconds: float  # since the start of the run, measured
    t_sub: float = 0.0  # slowest node of this round
    t_update: float = 0.0  # coordinator
    dual_value: float | None = None  # d(λ) attained, under the rule in force
    cost: float | None = None  # Σ_i z_i at the centroids proposed in this round
    residual: float | None = None  # ‖w_p‖₂
    boxes_open: int = 0
    boxes_done: int = 0
    bytes_up: int = 0  # nodes → coordinator, since the start
    bytes_down: int = 0

    @property
    def round_gap(self) -> float | None:
        """rel. DG of this very round (`Clustering_DG`), as a fraction."""
        if self.dual_value is None or self.cost is None or self.cost <= 0:
            return None
        return 1.0 - self.dual_value / self.cost


@dataclass
class Trace:
    records: list[RoundRecord] = field(default_factory=list)

    def t_comp(self, t_comm: float = T_COMM) -> float:
        """`Comp_Time`: nodes side by side, plus an assumed time for communication."""
        return sum(t_comm + r.t_update + r.t_sub for r in self.records)

    def write(self, path: Path) -> None:
        path.write_text("".join(json.dumps(asdict(record)) + "\n" for record in self.records))
