"""`consentroid bench disclosure`: how many rows the attacks of `attacks.py` recover, and what gap a guard costs.

A run is recorded as the coordinator sees it: every site's replies, or with masks their totals only. A row counts as
recovered if a candidate equals it to a thousandth of its features' spread. *By chance* is how many rows the same
candidates meet, each moved at random by up to a tenth of the spread: where candidates lie densely, some meet a row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from scipy.spatial import cKDTree

from ..core.arrays import Array
from ..core.errors import InvalidInput
from ..core.problem import Problem
from ..core.result import FitResult
from ..data.datasets import lung
from ..data.preprocessing import prepare
from ..fitting import run
from ..paper.instances import generate
from ..protocol.messages import Evaluate, PriceQuery, PriceReply, Request, Response
from ..protocol.transport import Transport
from ..rowprices.session import OnStep
from ..rowprices.totals import total
from ..site.guard import Guard
from ..site.worker import SiteWorker
from ..transport.inprocess import InProcessTransport
from .attacks import Seen, candidates, edges
from .figures import birds
from .grids import Grid, gap, seconds
from .runs import document_of
from .show import Watch

TOLERANCE = 1e-3
MOVED = 0.1  # spreads: what turns a candidate into one that knows nothing
THRESHOLDS = 20_000  # of each direction: with a dozen directions within a policy's points
LEAST = (1, 3, 5, 10)
FEWEST = 10  # rows of an institution; smaller ones take part together
GAP = 1e-3


class Listening:
    """Passes everything on, and keeps what the coordinator sees: of each site, or of all together."""

    def __init__(self, inner: Transport, masked: bool) -> None:
        self._inner, self._masked = inner, masked
        self.seen = [Seen() for _ in range(1 if masked else len(inner.nodes))]

    @property
    def nodes(self) -> tuple[str, ...]:
        return self._inner.nodes

    @property
    def bytes_up(self) -> int:
        return 0

    @property
    def bytes_down(self) -> int:
        return 0

    def close(self) -> None:
        self._inner.close()

    def exchange(self, requests: Sequence[Request]) -> list[Response]:
        responses = self._inner.exchange(requests)
        query, replies = requests[0], [one for one in responses if isinstance(one, PriceReply)]
        if isinstance(query, PriceQuery) and len(replies) == len(responses):
            for seen, reply in zip(self.seen, [total(query, replies)] if self._masked else replies, strict=True):
                seen.look(query, reply)
        return responses


@dataclass
class Found:
    """How near candidates come to the rows, in spreads."""

    rows: Array
    nearest: Array = field(init=False)  # distance of the best candidate to each row
    by_chance: Array = field(init=False)
    by: dict[str, set[int]] = field(default_factory=dict)  # rows that each attack recovers

    def __post_init__(self) -> None:
        self._spread = np.maximum(self.rows.std(axis=0), 1e-12)
        self._tree = cKDTree(self.rows / self._spread)
        self._rng = np.random.default_rng(1)
        self.nearest, self.by_chance = np.full(len(self.rows), np.inf), np.full(len(self.rows), np.inf)

    def look(self, attack: str, guesses: Array) -> None:
        guesses = guesses[np.isfinite(guesses).all(axis=1)] / self._spread
        if len(guesses) == 0:
            return
        distance, row = self._tree.query(guesses)
        np.minimum.at(self.nearest, row, distance)
        self.by.setdefault(attack, set()).update(row[distance <= TOLERANCE].tolist())
        moved = guesses + self._rng.uniform(-MOVED, MOVED, guesses.shape)
        distance, row = self._tree.query(moved)
        np.minimum.at(self.by_chance, row, distance)

    @property
    def recovered(self) -> int:
        return int((self.nearest <= TOLERANCE).sum())

    @property
    def chance(self) -> int:
        return int((self.by_chance <= TOLERANCE).sum())


@dataclass(frozen=True)
class Disclosed:
    data: str
    least: int
    masked: bool
    n_rows: int
    recovered: int  # in an ordinary run
    chance: int
    by: dict[str, int]  # attack → rows
    nearest: float  # median distance of the best candidate to a row, in spreads
    nearest_by_chance: float
    edges: int  # rows recovered with free questions
    gap: float
    seconds: float
    stopped: str


def ordinary_run(
    problem: Problem, least: int, masked: bool, gap: float, limit: float, on_step: OnStep | None = None
) -> tuple[list[Found], FitResult]:
    """What a coordinator which follows the protocol can recover, of each site or of all together, and the result."""
    workers = [SiteWorker(node, guard=Guard(least, masked=masked)) for node in problem.nodes]
    line = Listening(InProcessTransport(workers), masked)
    try:
        options: dict[str, Any] = {"domain": problem.domain, "gap": gap, "time_limit": limit, "on_step": on_step}
        result = run(line, problem.n_clusters, **options)
    finally:
        line.close()
    every = []
    for rows, seen in zip(_pools(problem, masked), line.seen, strict=True):
        found = Found(rows)
        for attack, guesses in candidates(seen):
            found.look(attack, guesses)
        every.append(found)
    return every, result


def free_questions(problem: Problem, least: int, masked: bool, thresholds: int = THRESHOLDS) -> int:
    """Rows that a coordinator with questions of its own recovers from counts, within a site's policy."""
    workers = [SiteWorker(node, guard=Guard(least, masked=masked)) for node in problem.nodes]
    lower, upper = problem.domain.lower, problem.domain.upper
    middle, reach = 0.5 * (lower + upper), 4.0 * float(np.linalg.norm(upper - lower))

    def counting(asked: list[SiteWorker], direction: Array, at: Array) -> Array:
        unit = direction / np.linalg.norm(direction)
        border = middle + ((at - middle @ direction) / np.linalg.norm(direction))[:, None] * unit
        pairs = np.stack([border - reach * unit, border + reach * unit], axis=1)
        counts = []
        for first in range(0, len(at), 1_000):
            query = PriceQuery(1, evaluate=Evaluate(pairs[first : first + 1_000]))
            told = [one for one in (worker.answer(query) for worker in asked) if isinstance(one, PriceReply)]
            evaluated = total(query, told).evaluated
            assert evaluated is not None
            counts.append(evaluated.counts[:, 0])
        return np.concatenate(counts)

    recovered = 0
    for rows, asked in zip(_pools(problem, masked), [workers] if masked else [[one] for one in workers], strict=True):
        found = Found(rows)
        count = lambda direction, at, asked=asked: counting(asked, direction, at)  # noqa: E731
        found.look("edges", edges(count, lower, upper, thresholds))
        recovered += found.recovered
    return recovered


def _pools(problem: Problem, masked: bool) -> list[Array]:
    return [problem.pooled.points] if masked else [node.points for node in problem.nodes]


def measure(name: str, problem: Problem, least: int, masked: bool, limit: float, on_step: OnStep) -> Disclosed:
    every, result = ordinary_run(problem, least, masked, GAP, limit, on_step)
    attacks = sorted({attack for found in every for attack in found.by})
    return Disclosed(
        data=name,
        least=least,
        masked=masked,
        n_rows=sum(len(node.points) for node in problem.nodes),
        recovered=sum(found.recovered for found in every),
        chance=sum(found.chance for found in every),
        by={attack: sum(len(found.by.get(attack, ())) for found in every) for attack in attacks},
        nearest=float(np.median(np.concatenate([found.nearest for found in every]))),
        nearest_by_chance=float(np.median(np.concatenate([found.by_chance for found in every]))),
        edges=free_questions(problem, least, masked),
        gap=result.gap,
        seconds=result.seconds,
        stopped=str(result.stop_reason.value),
    )


def measure_all(chosen: Sequence[str], limit: float, watch: Watch) -> Iterator[Disclosed]:
    for name in chosen:
        problem = PROBLEMS[name]()
        for least in LEAST:
            for masked in (False, True):
                with watch.task(f"{name}, {least}, {'masked' if masked else 'open'}") as on_step:
                    yield measure(name, problem, least, masked, limit, on_step)


def count(chosen: Sequence[str]) -> int:
    return 2 * len(LEAST) * len(chosen)


def check_names(chosen: Sequence[str]) -> None:
    for name in chosen:
        if name not in PROBLEMS:
            raise InvalidInput(f"--data '{name}' is unknown; choose from {', '.join(PROBLEMS)}")


def _generated() -> Problem:
    return generate(3, 2, 4, seed=7, points_per_cluster=6, radius=0.4).problem


def _patients() -> Problem:
    """By institution, standardised, missing values imputed; institutions with few patients together."""
    rows = prepare(lung().rows, scale="standard", imputation=True).rows
    sites = {name: table for name, table in rows.items() if len(table) >= FEWEST}
    sites["others"] = np.concatenate([table for table in rows.values() if len(table) < FEWEST])
    return Problem.checked(sites, 3)


PROBLEMS = {"generated": _generated, "lung": _patients, "penguins": lambda: Problem.checked(birds(), 3)}


def grid_of(told: Sequence[Disclosed]) -> Grid:
    headings = ["data", "least rows", "sums", "rows", "recovered", "by chance", "nearest", "nearest by chance",
                "free questions", "gap", "seconds", "stopped by"]  # fmt: skip
    grid = Grid("Rows recovered from sums", headings, left=3)
    for one in told:
        kind, near = "masked" if one.masked else "open", f"{one.nearest:.3f}"
        least = "guard off" if one.least == 1 else str(one.least)
        grid.add([one.data, least, kind, str(one.n_rows), str(one.recovered), str(one.chance), near,
                  f"{one.nearest_by_chance:.3f}", str(one.edges), gap(one.gap), seconds(one.seconds),
                  one.stopped])  # fmt: skip
    return grid


def document(told: Sequence[Disclosed]) -> dict[str, Any]:
    return document_of("disclosure", measured=[asdict(one) for one in told])


def disclosed_in(told: dict[str, Any]) -> list[Disclosed]:
    return [Disclosed(**one) for one in told["measured"]]
