"""Whole clusterings from the master's fractional one: dives into it, and children of the best clusterings so far.

The master's z is a mixture of clusterings. A *dive* takes the columns with the greatest z for certain, solves the
master again for the others, and so on until there are K; Lloyd does the rest. Two good clusterings mostly differ in a
few places, so a *child* that takes every centroid from one of two parents is often better than both (Gribel, Vidal:
HG-means: a scalable hybrid genetic algorithm for minimum sum-of-squares clustering, 2019). All of it needs only sums.

Dives and draws ask the sites nothing. With many clusters they take seconds, so a thread makes them beside the steps of
prices, from the mixture of one rounding for the next.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from ..core.arrays import Array, part
from .columns import Columns
from .grafting import graft
from .incumbents import evaluate, lloyd
from .master import solve_master
from .session import Session
from .trimming import PATIENT

Indices = NDArray[np.int64]

DIVES, DRAWS, CHILDREN, SWAPS = 2, 4, 6, 6  # of one call
USED = 1e-5  # weight from which a column is part of the mixture
AT_ONCE = 8  # columns taken before the master is solved again: this part of K
CERTAIN = 0.95  # z from which a column is taken anyway
SHARED = 0.3  # two columns taken at once share less than this part of their rows
COVERED = 0.8  # a column with more of its rows served already is out of the question
LUCK = 0.2  # how much chance enters
KEPT = 3  # clusterings of a call that Lloyd follows to the end
ELITE = 10  # clusterings from which children are made
KEPT_OF_MANY, BRED, LITTER, BARREN = 8, 24, 24, 3  # with many clusters: of Lloyd, of a generation, born, in vain


class Known(NamedTuple):
    """Sums over the columns of one moment, which nobody changes afterwards."""

    points: Array
    costs: Array
    sizes: Array
    overlaps: Array
    prices: Array
    recent: NDArray[np.bool_]  # used by the last master

    @classmethod
    def of(cls, columns: Columns, prices: Array) -> Known:
        return cls(columns.points, columns.costs, columns.sizes, columns.overlaps, prices, columns.idle == 0)


class Drawn(NamedTuple):
    """Clusterings drawn from a mixture of columns, and the columns with their weights."""

    trials: Array  # (C, K, D)
    points: Array  # (S, D)
    z: Array


class Rounding:
    """Offers the session what dives, draws and children come to."""

    def __init__(self, session: Session, spread: Array) -> None:
        self.session, self.spread = session, spread
        self._coming: Future[Drawn] | None = None

    def find(self, columns: Columns, prices: Array, tau: float, heaviest: Array) -> None:
        """`prices` are those of the columns, `tau` weighs coverage; `heaviest` (K, D) are the columns most used in a
        node's own mixture, which its cells can have made a clustering."""
        session, before = self.session, self.session.upper
        if np.count_nonzero(columns.sizes > 0.0) < session.n_clusters:
            return
        many, drawn = session.n_clusters >= PATIENT, self._drawn(Known.of(columns, prices), tau)
        trials = session.axes.back(drawn.trials)
        if len(heaviest) == session.n_clusters:
            trials = np.concatenate([session.axes.back(heaviest)[None], trials])
        if len(session.elite) > 1:
            trials = np.concatenate([trials, [child(session.elite, session.rng) for _ in range(CHILDREN)]])
        if session.centroids is not None:
            points = session.axes.back(drawn.points)
            moved = [swapped(session.centroids, points, drawn.z, session.rng) for _ in range(SWAPS)]
            trials = np.concatenate([trials, moved])
        ended = lloyd(session, trials, self.spread, keep=KEPT_OF_MANY if many else KEPT)
        costs = evaluate(session, ended).costs
        known = [*session.elite, *zip(costs.tolist(), ended, strict=True)]
        session.elite = _best(session, known, BRED if many else ELITE)
        if many:
            graft(session, ended, self.spread)
            _breed(session, self.spread)
            if session.upper >= before * (1.0 - 1e-9):  # these lead nowhere else: the next begin without them
                session.elite = []

    def _drawn(self, known: Known, tau: float) -> Drawn:
        """From this mixture; with a helper from the one before, while it begins with this one."""
        session, helper = self.session, self.session.helper
        if helper is None:
            return drawn_from(known, session.n_clusters, tau, session.rng, session.check_time)
        coming, (rng,) = self._coming, session.rng.spawn(1)
        self._coming = helper.threads.submit(drawn_from, known, session.n_clusters, tau, rng, helper.check)
        return (coming or self._coming).result()


def drawn_from(known: Known, n: int, tau: float, rng: np.random.Generator, check: Callable[[], None]) -> Drawn:
    """What the master's mixture of all columns comes to; `check` may end it."""
    every = np.flatnonzero(known.sizes > 0.0)
    z = _mixture(known, every, every[:0], n, tau, known.recent[every])
    used, chosen = z > USED, []
    if np.count_nonzero(used) < n:
        used[:] = True
    for _ in range(DIVES):
        check()
        chosen.append(dive(known, every[used], z[used], n, tau, rng))
    chosen += [draw(every, z, n, rng) for _ in range(DRAWS)]
    return Drawn(known.points[np.array(chosen)], known.points[every], z)


def _breed(session: Session, spread: Array) -> None:
    """Generations of children, until some have brought nothing better: each differs from its parents in a few places,
    so Lloyd is at its end soon, and a generation takes less time than one dive."""
    barren = 0
    while barren < BARREN and len(session.elite) > 1:
        before = session.upper
        trials = np.array([child(session.elite, session.rng) for _ in range(LITTER)])
        ended = lloyd(session, trials, spread, keep=KEPT_OF_MANY)
        costs = evaluate(session, ended).costs
        graft(session, ended[:KEPT], spread)
        assert session.centroids is not None
        born = [*zip(costs.tolist(), ended, strict=True), (session.upper, session.centroids.copy())]
        session.elite = _best(session, [*session.elite, *born], BRED)
        barren = barren + 1 if session.upper >= before * (1.0 - 1e-9) else 0
    session.elite = session.elite[:ELITE]


def _best(session: Session, known: list[tuple[float, Array]], most: int) -> list[tuple[float, Array]]:
    """Clusterings with their costs, the best first and each once."""
    distinct = {round(cost / max(session.upper, 1e-300), 9): (cost, centroids) for cost, centroids in known}
    return [distinct[key] for key in sorted(distinct)][:most]


def dive(known: Known, free: Indices, z: Array, n: int, tau: float, rng: np.random.Generator) -> Indices:
    """n of the columns `free`, which have the weights z, that serve nearly every row once."""
    every, overlaps, sizes = free, known.overlaps, known.sizes
    taken = free[:0]
    while True:
        chosen: list[int] = []
        for i in np.argsort(-z * (1.0 + LUCK * rng.normal(size=len(z))), kind="stable"):
            if len(taken) + len(chosen) == n or (z[i] < CERTAIN and len(chosen) > n // AT_ONCE):
                break
            shared = overlaps[free[i], free[chosen]] / np.minimum(sizes[free[i]], sizes[free[chosen]])
            if not np.any(shared > SHARED):
                chosen.append(int(i))
        new = free[chosen]
        taken = np.concatenate([taken, new])
        covered = overlaps[np.ix_(free, new)].max(axis=1) / sizes[free]
        covered[chosen] = 1.0
        z, free = z[covered < COVERED], free[covered < COVERED]
        if len(taken) == n or len(free) == 0:
            break
        z = _mixture(known, free, taken, n - len(taken), tau, z > USED)
    others = np.setdiff1d(every, taken)
    return np.concatenate([taken, rng.permutation(others)[: n - len(taken)]])


def _mixture(known: Known, free: Indices, taken: Indices, n: int, tau: float, likely: NDArray[np.bool_]) -> Array:
    """The master's z for n columns of `free` beside those that are taken."""
    served = tau * known.overlaps[np.ix_(free, taken)].sum(axis=1)
    return solve_master(
        part(known.overlaps, free), known.costs[free] + served, known.sizes[free], known.prices[free],
        (np.arange(len(free)), np.zeros(len(free), np.int64)), np.array([n]), tau, likely,
    )  # fmt: skip


def draw(every: Indices, z: Array, n: int, rng: np.random.Generator) -> Indices:
    """n columns by weight alone: often worse than a dive, but never the same twice."""
    likely = z + 1e-9 * z.sum() / len(z)
    return np.asarray(rng.choice(every, n, replace=False, p=likely / likely.sum()))


def child(elite: list[tuple[float, Array]], rng: np.random.Generator) -> Array:
    """Centroids of two parents are matched; one of each pair is taken."""
    first, second = rng.choice(len(elite), 2, replace=False)
    a, b = elite[first][1], elite[second][1]
    _, matched = linear_sum_assignment(((a[:, None] - b[None]) ** 2).sum(axis=2))
    return np.where(rng.random((len(a), 1)) < 0.5, a, b[matched])


def swapped(centroids: Array, points: Array, z: Array, rng: np.random.Generator) -> Array:
    """One centroid moves to the point of a column that has weight and lies apart from all centroids."""
    away = ((points[:, None] - centroids[None]) ** 2).sum(axis=2).min(axis=1) * (z + 1e-9)
    moved = centroids.copy()
    if away.sum() > 0.0:
        moved[rng.integers(len(moved))] = points[rng.choice(len(points), p=away / away.sum())]
    return moved
