"""What a run ends with, whatever engine found it; `fitting.py` makes it, reports and commands read it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from .arrays import Array


class StopReason(StrEnum):
    GAP = "gap"  # the gap asked for is proven
    TIME_LIMIT = "time_limit"
    MAX_ROUNDS = "max_rounds"
    INTERRUPTED = "interrupted"
    POLICY = "policy"  # sites answer no more in one run
    EXHAUSTED = "exhausted"  # nothing that the engine can still do raises the bound
    RESIDUAL = "residual"  # the paper: the nodes agree
    DUAL_OPTIMAL = "dual_optimal"  # the paper: no prices give a better bound
    DUAL_STALLED = "dual_stalled"  # the paper: further prices promise little


@dataclass(frozen=True)
class SiteShare:
    """What one site contributed; cost and counts are unknown to a coordinator that sees totals only."""

    name: str
    n_rows: int
    cost: float | None
    counts: Array | None  # (K,) weight of its rows in each cluster
    withheld: float = 0.0  # weight of rows that the counts leave out: in groups too small to be reported


@dataclass(frozen=True)
class Step:
    """One line of progress and of trace.jsonl."""

    phase: str  # incumbent, prices, search, branch, certificate; or the paper's dual
    round: int
    lower: float  # proven so far
    upper: float
    boxes_done: int
    boxes_open: int
    cells_open: int
    seconds: float

    @property
    def gap(self) -> float:
        return relative_gap(self.lower, self.upper)


@dataclass(frozen=True)
class Regions:
    """Boxes, one per centroid, that hold that centroid of every clustering with cost ≤ (1 + tolerance) upper bound."""

    lower: Array  # (K, D), original features
    upper: Array  # (K, D)
    tolerance: float


@dataclass(frozen=True)
class FitResult:
    centroids: Array  # (K, D), in canonical order
    lower_bound: float
    upper_bound: float
    gap_asked: float
    stop_reason: StopReason
    method: str  # "row-prices", or a method of the paper
    bound_from: str  # "row prices", "pair prices", "row prices and spectrum", "spectrum", "dual decomposition", "none"
    sites: tuple[SiteShare, ...]
    features: tuple[str, ...]
    counts: Array  # (K,) weight of all rows in each cluster
    radii: Array  # (K,) root of the mean squared distance of a cluster's rows to its centroid; NaN where it is empty
    certificate: Any  # certificate.document.Certificate, or None where the method makes none that can be checked
    regions: Regions | None
    trace: tuple[Step, ...]
    settings: dict[str, Any]  # as asked, for result.json
    rounds: int  # exchanges
    boxes: int
    cells: int  # tree nodes of cells with counts
    bytes_up: int
    bytes_down: int
    seconds: float
    phases: dict[str, float] = field(default_factory=dict)  # seconds in each phase
    withheld: float = 0.0  # weight of rows that `counts` leaves out: sites do not report small groups
    spectral_bound: float = 0.0  # from the moments alone; the lower bound is the best of all, with its certificate

    @property
    def gap(self) -> float:
        return relative_gap(self.lower_bound, self.upper_bound)

    @property
    def certified(self) -> bool:
        """Whether the gap asked for is proven; False where any number is not finite."""
        return self.gap <= self.gap_asked


def relative_gap(lower: float, upper: float) -> float:
    """(upper − lower) / upper, computed from these two numbers alone; infinite unless both are finite and ordered so
    that they can be bounds. A cost of exactly zero is optimal."""
    if not (math.isfinite(lower) and math.isfinite(upper)) or upper < 0.0 or lower > upper:
        return math.inf
    if upper == 0.0:
        return 0.0
    return (upper - max(lower, 0.0)) / upper
