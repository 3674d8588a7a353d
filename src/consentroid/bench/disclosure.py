"""Attacks on what a coordinator sees: how many rows it recovers, and what gap a guard costs.

    python -m consentroid.bench.disclosure

A run is recorded as the coordinator sees it: every site's replies, or with masks their totals only. The attacks know
everything public and try

* singletons: a group's mean, for every weight and offset that was told, and for differences of what one reply tells;
* differences: the difference of every two sums whose weights differ by one row, over all replies of a kind;
* sweep: a coordinator that does not follow the protocol moves a half-space over the rows by `Evaluate`, within the
  site's policy, and takes differences of neighbours.

A row counts as recovered if one of the candidates equals it to a thousandth of its features' spread.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy.spatial import cKDTree

from ..core.arrays import Array
from ..core.problem import Problem
from ..core.result import FitResult
from ..fitting import run
from ..protocol.messages import Coordinates, Evaluate, PriceQuery, PriceReply, Request, Response
from ..protocol.transport import Transport
from ..rowprices.totals import total
from ..site.guard import Guard
from ..site.worker import SiteWorker
from ..transport.inprocess import InProcessTransport

MOST_GROUPS = 3_000  # of a site, for the differences of all pairs
TOLERANCE = 1e-3


@dataclass
class Seen:
    """Weights and absolute sums Σ w x, by what told them."""

    weights: list[Array] = field(default_factory=list)
    sums: list[Array] = field(default_factory=list)

    def add(self, weights: Array, sums: Array) -> None:
        self.weights.append(np.ravel(weights))
        self.sums.append(sums.reshape(-1, sums.shape[-1]))

    def groups(self) -> tuple[Array, Array]:
        weights, sums = np.concatenate(self.weights), np.concatenate(self.sums)
        real = weights > 1e-9
        told: Array = np.unique(np.round(np.column_stack([weights[real], sums[real]]), 9), axis=0)
        return np.asarray(told[:, 0]), np.asarray(told[:, 1:])


class Listening:
    """Passes everything on, and keeps what the coordinator sees: of each site, or of all together."""

    def __init__(self, inner: Transport, masked: bool) -> None:
        self._inner, self._masked = inner, masked
        self.seen = [Seen() for _ in range(1 if masked else len(inner.nodes))]
        self._axes: Coordinates | None = None

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
            self._axes = query.coordinates or self._axes
            for seen, reply in zip(self.seen, [total(query, replies)] if self._masked else replies, strict=True):
                for weights, sums in groups_in(query, reply, self._axes):
                    seen.add(weights, sums)
        return responses


def groups_in(query: PriceQuery, reply: PriceReply, axes: Coordinates | None) -> Iterator[tuple[Array, Array]]:
    """Every weight with the sum of its rows, in the original features."""
    if query.evaluate is not None and reply.evaluated is not None:
        told = reply.evaluated
        yield told.counts, told.offsets + told.counts[..., None] * query.evaluate.candidates
    if axes is None:
        return
    if query.trim is not None and reply.trimmed is not None:
        step = reply.trimmed
        yield step.weights, back(axes, step.weights, step.offsets + step.weights[:, None] * query.trim.points)
    for asked, boxes in ((query.examine, reply.boxes), (query.claim, reply.claimed)):
        if asked is not None and boxes is not None:
            centre = 0.5 * (asked.lower + asked.upper)
            rest = boxes.minorants - boxes.insides  # chords scale a row's weight and offset alike
            for part in (boxes.insides, boxes.minorants, rest):
                yield part[:, 0], back(axes, part[:, 0], part[:, 1:-1] + part[:, :1] * centre)


def back(axes: Coordinates, weights: Array, sums: Array) -> Array:
    """Σ w y as Σ w x."""
    return np.asarray(sums / axes.scale @ np.linalg.inv(axes.basis) + weights[:, None] * axes.origin)


def candidates(seen: Seen) -> Iterator[Array]:
    """Points that may be rows: means of groups, and differences of two groups that differ by one row's weight."""
    weights, sums = seen.groups()
    yield sums / weights[:, None]
    whole = np.flatnonzero(np.abs(weights - np.round(weights)) < 1e-6)
    if len(whole) > MOST_GROUPS:
        whole = np.random.default_rng(0).choice(whole, MOST_GROUPS, replace=False)
    sizes = np.round(weights[whole]).astype(int)
    for size in np.unique(sizes):
        less, more = sums[whole[sizes == size]], sums[whole[sizes == size + 1]]
        for one in less:
            yield more - one


def recovered(rows: Array, guesses: Iterator[Array]) -> int:
    spread = np.maximum(rows.std(axis=0), 1e-12)
    tree, found = cKDTree(rows / spread), np.zeros(len(rows), bool)
    for guess in guesses:
        if len(guess):
            distance, nearest = tree.query(np.nan_to_num(guess / spread), distance_upper_bound=TOLERANCE)
            found[nearest[np.isfinite(distance)]] = True
    return int(found.sum())


def ordinary_run(problem: Problem, least: int, masked: bool, gap: float, seconds: float) -> tuple[int, FitResult]:
    """Rows that a coordinator which follows the protocol can recover, and the result."""
    inner = InProcessTransport([SiteWorker(node, guard=Guard(least)) for node in problem.nodes])
    line = Listening(inner, masked)
    try:
        result = run(line, problem.n_clusters, domain=problem.domain, gap=gap, time_limit=seconds)
    finally:
        line.close()
    pools = [problem.pooled.points] if masked else [node.points for node in problem.nodes]
    return sum(recovered(rows, candidates(seen)) for rows, seen in zip(pools, line.seen, strict=True)), result


def sweep(problem: Problem, least: int, masked: bool, most_points: int = 1_000_000) -> int:
    """Rows that a coordinator with questions of its own recovers: a half-space moved over the first feature."""
    workers = [SiteWorker(node, guard=Guard(least)) for node in problem.nodes]
    lower, upper = problem.domain.lower, problem.domain.upper
    at = np.linspace(lower[0], upper[0], min(most_points // 2, 20_000))
    middle, reach = 0.5 * (lower + upper), 4.0 * float((upper - lower).max())
    pairs = np.repeat(middle[None, None], 2, axis=1).repeat(len(at), axis=0)
    pairs[:, 0, 0], pairs[:, 1, 0] = at - reach, at + reach
    seen = [Seen() for _ in range(1 if masked else len(workers))]
    for first in range(0, len(at), 1_000):
        query = PriceQuery(1, evaluate=Evaluate(pairs[first : first + 1_000]))
        told = [reply for reply in (worker.answer(query) for worker in workers) if isinstance(reply, PriceReply)]
        for place, reply in zip(seen, [total(query, told)] if masked else told, strict=True):
            for weights, sums in groups_in(query, reply, None):
                place.add(weights[:, 0], sums[:, 0])
    pools = [problem.pooled.points] if masked else [node.points for node in problem.nodes]
    return sum(recovered(rows, candidates(one)) for rows, one in zip(pools, seen, strict=True))


def problems() -> dict[str, Problem]:
    import palmerpenguins

    from ..paper.instances import generate

    made = {"generated, 24 rows a site": generate(3, 2, 4, seed=7, points_per_cluster=6, radius=0.4).problem}
    table = palmerpenguins.load_penguins().dropna()
    columns = ["bill_length_mm", "bill_depth_mm", "flipper_length_mm", "body_mass_g"]
    rows = table[columns].to_numpy(float)
    rows = (rows - rows.mean(axis=0)) / rows.std(axis=0)
    islands = {str(name): rows[(table.island == name).to_numpy()] for name in table.island.unique()}
    made["penguins by island"] = Problem.checked(islands, 3)
    return made


def main(seconds: float = 20.0) -> None:
    print("| data | least rows | sums | rows held | recovered in an ordinary run | by a sweep | gap proven |")
    print("|---|---|---|---|---|---|---|")
    for name, problem in problems().items():
        held = sum(len(node.points) for node in problem.nodes)
        for least in (1, 3, 5, 10):
            for masked in (False, True):
                found, result = ordinary_run(problem, least, masked, 1e-3, seconds)
                swept = sweep(problem, least, masked)
                kind, gap = "masked" if masked else "open", f"{100 * result.gap:.2g} %"
                print(f"| {name} | {least} | {kind} | {held} | {found} | {swept} | {gap} |", flush=True)


if __name__ == "__main__":
    main()
