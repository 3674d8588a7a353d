"""The settings of a run of the paper's loop."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, get_args

from ..core.errors import InvalidInput
from ..core.problem import check_n_clusters
from ..core.symmetry import Rule
from ..core.topology import Edge
from .dual.registry import METHODS
from .primal import Heuristic
from .solvers import SOLVERS


@dataclass(frozen=True)
class PaperSettings:
    """Everything that the paper's loop needs to know besides the nodes; `of_the_paper` has the paper's own values."""

    n_clusters: int
    method: str = "proximal"
    solver: str = "exact"
    symmetry: Rule = "order"
    topology: str | Sequence[Edge] = "line"
    # when to stop
    gap: float = 1e-4  # ε_DG, a fraction
    residual: float = 0.0  # ε_p, norm of the consensus residual
    max_rounds: int = 150  # t_max
    time_limit: float = math.inf  # seconds
    # incumbents
    heuristic: Heuristic = "lloyd"
    incumbent_rounds: int = 2  # evaluation-only rounds between round 1 and the choice of references
    reference_node: int | None = None  # references from this node's first centroids, as the paper; None: incumbent
    seed: int = 0
    # effort of a node in one round
    node_gap: float = 1e-9
    node_seconds: float = 10.0  # then a node replies with what it has proven

    @classmethod
    def of_the_paper(cls, n_clusters: int, method: str, **changes: Any) -> PaperSettings:
        """Tab. `Parameter_Table_Clustering`; the update rules hold α(0), τ and B(0)."""
        paper: dict[str, Any] = {
            "gap": 0.0025,
            "residual": 1e-2,
            "heuristic": "average",
            "incumbent_rounds": 0,
            "reference_node": 0,
        }
        return cls(n_clusters, method, **(paper | changes))

    def __post_init__(self) -> None:
        check_n_clusters(self.n_clusters)
        for field, value, choices in (
            ("method", self.method, METHODS),
            ("solver", self.solver, SOLVERS),
            ("symmetry rule", self.symmetry, get_args(Rule)),
            ("heuristic", self.heuristic, get_args(Heuristic)),
        ):
            if value not in choices:
                raise InvalidInput(f"unknown {field} '{value}'; choose one of {', '.join(choices)}")
        if not 0.0 <= self.gap < 1.0:
            raise InvalidInput(f"gap={self.gap} must be a fraction from 0 up to, not including, 1")
        if self.max_rounds < 1:
            raise InvalidInput(f"max_rounds={self.max_rounds} must be at least 1")
        if not self.time_limit > 0:
            raise InvalidInput(f"time_limit={self.time_limit} must be a positive number of seconds")
