"""One run: the sites, the clock, the best clustering and the best bound known, and why it stops."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

from ..core.arrays import Array
from ..core.problem import Domain
from ..core.result import Step, StopReason, relative_gap
from ..protocol.messages import Evaluated
from .allowance import Allowance
from .coordinates import Axes
from .helper import Helper
from .totals import Totals

OnStep = Callable[[Step], None]
LONGEST = 1e12  # seconds: shares of the time must be numbers
GUESS_ROWS = 20_000
LEARN_GROUPS = 24_000
NEARLY, PART = 0.01, 0.4  # of the cost, of what the spectrum alone leaves: a search that lacks less is not given up
TENTH = 0.1  # of the loss of axes: closer to it the search need not come


class OutOfTime(Exception):
    """The time limit has struck; what was proven so far stands."""


@dataclass
class Session:
    totals: Totals
    domain: Domain
    n_clusters: int
    gap: float
    time_limit: float
    rng: np.random.Generator
    on_step: OnStep | None = None
    allowance: Allowance = field(default_factory=Allowance.unlimited)
    started: float = field(default_factory=lambda: time.perf_counter())
    axes: Axes = field(default_factory=lambda: Axes.plain(1))
    # change when something better is found
    centroids: Array | None = None  # (K, D), original features
    counts: Array | None = None  # (K,)
    upper: float = float("inf")
    lower: float = 0.0
    bound_from: str = "none"
    elite: list[tuple[float, Array]] = field(default_factory=list)  # costs and centroids of good clusterings
    spectral: float = 0.0  # a bound from the moments alone, for data where no proof is in reach
    loss: float = 0.0  # what the axes searched give away: no bound comes closer to the cost
    site_costs: Array | None = None  # (N,) of the incumbent, where sites answer in the open
    site_counts: Array | None = None  # (N, K)
    spreads: Array | None = None  # (K,) Σ w |x − m|² of each cluster at the end
    site_errors: Array | None = None  # (N,) what rounding the coordinates can cost
    # change with every exchange
    phase: str = "incumbent"
    boxes_done: int = 0
    boxes_open: int = 0
    looked: float = 0.0  # rows times features times boxes or candidates so far, about: effort without a clock
    most_looked: float = float("inf")
    until: float = float("inf")  # the clock at which the present attempt ends, unless it is nearly done
    missing: float = float("inf")  # of the cost: what the worst box of the present search still lacks
    leave_at: float = float("inf")  # the clock at which the present attempt ends, unless `reconsider` names a later one
    reconsider: Callable[[], float] | None = None
    pairs_bound: float = 0.0  # what prices on pairs have come to
    pairs_rest: bool = False  # no more comes of them
    cells_open: int = 1
    cells_done: int = 0
    trace: list[Step] = field(default_factory=list)
    phases: dict[str, float] = field(default_factory=dict)
    stop_reason: StopReason | None = None
    n_rows: int = 0
    site_rows: tuple[int, ...] = ()  # of each site, or of all together where sums are masked
    n_sites: int = 1
    learning: bool = False  # sites work on groups of rows: what they say is a guess
    helper: Helper | None = None
    reserve: float = 0.0  # seconds that the certificate of what was searched will take
    _noted: float = 0.0

    # ------------------------------------------------------------------ clock

    def __post_init__(self) -> None:
        self.time_limit = min(self.time_limit, LONGEST)

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self.started

    @property
    def clock(self) -> float:
        """Seconds; or where more of what sites allow is used up than of the time, the seconds of that share."""
        return max(self.seconds, self.allowance.used * self.time_limit)

    @property
    def why_out(self) -> StopReason:
        """Of time, or of what sites allow."""
        return StopReason.TIME_LIMIT if self.clock <= self.seconds else StopReason.POLICY

    @property
    def stride(self) -> int:
        """Guesses look at every so many rows: some ten thousand show where columns and centroids are."""
        return max(1, self.n_rows // GUESS_ROWS)

    @property
    def trim_stride(self) -> int:
        """The same for trimmed Lloyd; while prices are learnt on groups of rows, it looks at all of these."""
        return 1 if self.learning else self.stride

    @property
    def group_size(self) -> int:
        """Prices are learnt on groups of so many neighbours first."""
        return max(1, self.n_rows // LEARN_GROUPS)

    @property
    def left(self) -> float:
        nearly = self.missing <= max(NEARLY * self.upper, PART * (self.upper - self.spectral))
        end = (self.time_limit if nearly else min(self.time_limit, self.until)) - self.reserve
        return min(end, self.leave_at) - self.clock

    def check_time(self) -> None:
        if self.clock >= self.leave_at and self.reconsider is not None:
            ask, self.reconsider, self.leave_at = self.reconsider, None, float("inf")
            self.leave_at = ask()
        if self.left <= 0.0 or self.looked > self.most_looked:
            raise OutOfTime

    @contextmanager
    def within(self, numbers: float) -> Iterator[None]:
        """For a while, no more than so many numbers to look at."""
        self.most_looked = self.looked + numbers
        try:
            yield
        finally:
            self.most_looked = float("inf")

    def enter(self, phase: str) -> None:
        """Time from now on counts for this phase."""
        now = self.seconds
        self.phases[self.phase] = self.phases.get(self.phase, 0.0) + now - self._noted
        self.phase, self._noted = phase, now

    # ------------------------------------------------------------------ what is known

    @property
    def cutoff(self) -> float:
        """The bound on y that proves the gap asked for, with room for the rounding of the certificate."""
        return self.bound_leaving(0.999)

    @property
    def enough(self) -> float:
        """The bound on y at which a node is closed."""
        return self.bound_leaving(1.0)

    def bound_leaving(self, share: float) -> float:
        """The bound on y that leaves this share of what the search may leave."""
        return self.axes.bound_needed(self.upper - self.loss - share * self.spare)

    @property
    def spare(self) -> float:
        """What the search may leave: the gap asked for; where axes give away more, a tenth of their loss."""
        return max(self.gap * self.upper - self.loss, TENTH * self.loss)

    @property
    def upper_y(self) -> float:
        """The best cost in the search's own units."""
        return max(self.upper - self.loss - self.axes.rest, 0.0) * self.axes.norm**2

    def offer(self, candidates: Array, evaluated: Evaluated) -> bool:
        """The only writer of the incumbent."""
        costs = np.where(np.isfinite(evaluated.costs), evaluated.costs, np.inf)
        best = int(np.argmin(costs))
        if not costs[best] < self.upper:
            return False
        self.upper, self.centroids = float(costs[best]), candidates[best].copy()
        self.counts = evaluated.counts[best].copy()
        return True

    def raise_lower(self, bound_y: float) -> None:
        """The best of all bounds known, while the search goes on; what is stated at the end is the certificate's."""
        bound = self.axes.bound_on_rows(bound_y)
        if self.lower < bound <= self.upper:  # a bound above a cost contradicts itself: nothing is believed
            self.lower = bound

    @property
    def weight(self) -> float:
        """Of the rows in the incumbent's clusters; their number where sites tell no weights."""
        told = 0.0 if self.counts is None else float(self.counts.sum())
        return told if told > 0.0 else float(max(self.n_rows, 1))

    @property
    def proven(self) -> bool:
        return relative_gap(self.lower, self.upper) <= self.gap

    def note(self) -> None:
        """A line of progress and of the trace."""
        step = Step(
            self.phase, self.totals.exchanges, self.lower, self.upper, self.boxes_done, self.boxes_open,
            self.cells_open, self.seconds,
        )  # fmt: skip
        self.trace.append(step)
        if self.on_step is not None:
            self.on_step(step)
