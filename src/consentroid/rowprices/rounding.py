"""Whole clusterings from the master's fractional one: dives into it, and children of the best clusterings so far.

The master's z is a mixture of clusterings. A *dive* takes the columns with the greatest z for certain, solves the
master again for the others, and so on until there are K; Lloyd does the rest. Two good clusterings mostly differ in a
few places, so a *child* that takes every centroid from one of two parents is often better than both (Gribel, Vidal:
HG-means: a scalable hybrid genetic algorithm for minimum sum-of-squares clustering, 2019). All of it needs only sums.
"""

from __future__ import annotations

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


def find_incumbents(session: Session, columns: Columns, prices: Array, tau: float, spread: Array) -> None:
    """Offer the session what dives and children come to; `prices` are those of the columns, `tau` weighs coverage."""
    before, every = session.upper, np.flatnonzero(columns.sizes > 0.0)
    if len(every) < session.n_clusters:
        return
    z = _mixture(columns, every, every[:0], prices, session.n_clusters, tau, columns.idle[every] == 0)
    used, chosen = z > USED, []
    if np.count_nonzero(used) < session.n_clusters:
        used[:] = True
    for _ in range(DIVES):
        session.check_time()
        chosen.append(dive(columns, prices, every[used], z[used], session.n_clusters, tau, session.rng))
    chosen += [draw(every, z, session.n_clusters, session.rng) for _ in range(DRAWS)]
    trials = session.axes.back(columns.points[np.array(chosen)])
    if len(session.elite) > 1:
        trials = np.concatenate([trials, [child(session.elite, session.rng) for _ in range(CHILDREN)]])
    if session.centroids is not None:
        points = session.axes.back(columns.points[every])
        trials = np.concatenate([trials, [swapped(session.centroids, points, z, session.rng) for _ in range(SWAPS)]])
    many = session.n_clusters >= PATIENT
    ended = lloyd(session, trials, spread, keep=KEPT_OF_MANY if many else KEPT)
    costs = evaluate(session, ended).costs
    session.elite = _best(session, [*session.elite, *zip(costs.tolist(), ended, strict=True)], BRED if many else ELITE)
    if many:
        graft(session, ended, spread)
        _breed(session, spread)
        if session.upper >= before * (1.0 - 1e-9):  # these lead nowhere else: the next begin without them
            session.elite = []


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


def dive(
    columns: Columns, prices: Array, free: Indices, z: Array, n: int, tau: float, rng: np.random.Generator
) -> Indices:
    """n of the columns `free`, which have the weights z, that serve nearly every row once."""
    every, overlaps, sizes = free, columns.overlaps, columns.sizes
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
        z = _mixture(columns, free, taken, prices, n - len(taken), tau, z > USED)
    others = np.setdiff1d(every, taken)
    return np.concatenate([taken, rng.permutation(others)[: n - len(taken)]])


def _mixture(
    columns: Columns, free: Indices, taken: Indices, prices: Array, n: int, tau: float, likely: NDArray[np.bool_]
) -> Array:
    """The master's z for n columns of `free` beside those that are taken."""
    served = tau * columns.overlaps[np.ix_(free, taken)].sum(axis=1)
    return solve_master(
        part(columns.overlaps, free), columns.costs[free] + served, columns.sizes[free], prices[free],
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
