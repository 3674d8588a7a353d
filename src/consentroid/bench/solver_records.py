"""What the solver bench measures: one record per node problem and per growth point, and their ratios."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ..paper.node.base import Status

THEIRS = ("gurobi", "scip")
OUR_GAP, THEIR_GAP, GROWTH_GAP = 1e-9, 1e-4, 1e-4


@dataclass(frozen=True)
class SolverComparison:
    """One node problem by all solvers; None where a solver is not available."""

    instance: str
    instance_class: str
    node: str
    round: int
    ours_seconds: float
    ours_first_seconds: float  # by a fresh solver, which has not met the rows
    ours_value: float
    ours_bound: float
    gurobi_seconds: float | None = None
    gurobi_value: float | None = None
    gurobi_status: str | None = None
    scip_seconds: float | None = None
    scip_value: float | None = None
    scip_status: str | None = None

    def ratio(self, solver: str) -> float | None:
        theirs = getattr(self, f"{solver}_seconds")
        return None if theirs is None else float(theirs / self.ours_seconds)


@dataclass(frozen=True)
class Ratio:
    instance_class: str
    solver: str
    problems: int
    median: float
    worst: float
    out_of_time: int
    value_difference: float  # largest (theirs − ours) / ours in absolute terms, over solves that ended in time


@dataclass(frozen=True)
class GrowthPoint:
    curve: str  # "rows", "features" or "clusters"
    rows: int
    features: int
    clusters: int
    seconds: float
    gap: float
    gap_asked: float
    seconds_allowed: float


@dataclass
class SolverBench:
    """All that was measured so far."""

    comparisons: list[SolverComparison]
    growth: list[GrowthPoint]
    interrupted: bool = False

    @property
    def ratios(self) -> list[Ratio]:
        classes = dict.fromkeys(c.instance_class for c in self.comparisons)
        return [r for label in classes for solver in THEIRS if (r := self._ratio(label, solver)) is not None]

    def _ratio(self, label: str, solver: str) -> Ratio | None:
        chosen = [c for c in self.comparisons if c.instance_class == label and c.ratio(solver) is not None]
        if not chosen:
            return None
        ratios = [c.ratio(solver) for c in chosen]
        ended = [c for c in chosen if getattr(c, f"{solver}_status") == Status.OPTIMAL]
        differences = [abs(getattr(c, f"{solver}_value") - c.ours_value) / max(abs(c.ours_value), 1e-9) for c in ended]
        return Ratio(
            instance_class=label,
            solver=solver,
            problems=len(chosen),
            median=float(np.median(np.array(ratios, dtype=float))),
            worst=float(np.min(np.array(ratios, dtype=float))),
            out_of_time=len(chosen) - len(ended),
            value_difference=max(differences, default=math.nan),
        )

    def as_dict(self) -> dict[str, Any]:
        return {
            "ratios": [_renamed(ratio) for ratio in self.ratios],
            "records": [_renamed(comparison) for comparison in self.comparisons],
            "growth": [asdict(point) for point in self.growth],
            "gaps": {"ours": OUR_GAP, "gurobi": THEIR_GAP, "scip": THEIR_GAP},
            "interrupted": self.interrupted,
        }


def _renamed(record: Ratio | SolverComparison) -> dict[str, Any]:
    """JSON says `class`, which Python reserves; it knows no NaN either."""
    fields = {"class" if key == "instance_class" else key: value for key, value in asdict(record).items()}
    return {key: None if isinstance(value, float) and math.isnan(value) else value for key, value in fields.items()}
