"""Rows dealt into anticlusters: parts that are as like each other as can be (Späth 1986).

K clusters of all rows cost no less than K clusters of each part by itself, so bounds of parts add up, and pairs within
parts are far fewer than pairs of all rows. What is lost is by how much the parts' own best clusterings cost less than
the common one: next to nothing if every part has the same number, mean and spread of rows in every cluster. So
neighbours are dealt to different parts, then rows change places with near ones until means and spreads agree.

Another clustering that costs only a little more than the common one may still be the better one in some parts. Where
parts turn out to have such a clustering, rows are dealt anew, the same for each set of rows that is in one cluster of
all clusterings: then each of these costs the same in every part.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ...core.arrays import Array, nearest, squared_distances
from ..kernels.dealing import exchange

SWEEPS = 200  # of exchanges
REACH = 2  # times the number of parts: how far apart in the order of neighbours two rows may change places
ROUNDS, OTHERS = 10, 5  # of dealing; clusterings beside the common one
NUMBERS = 2.5e6  # rows times features times clusters of these rounds: no request keeps a site busy for long
JUDGED = 12  # parts, at most, that say what they would rather have
STARTS, SOME, STEPS = 8, 10_000, 40  # of Lloyd's method, with so many rows: what would a part rather have?
CHEAPER = 1e-6  # of a part's cost: a clustering that costs less by more is a better one
ENOUGH = 1e-4  # of the cost: with less lost than that, rows are not dealt again
ANOTHER = 1e-4  # of the cost, by which clusterings differ that are not the same
Rows = NDArray[np.int64]


def deal(x: Array, w: Array, centroids: Array, most: int) -> tuple[list[Rows], float]:
    """The rows of each anticluster, none with more than `most`, as many of each as of the others or one more; and about
    what these cost by themselves: no bound of them comes higher."""
    n_parts = -(-len(x) // most)
    rng, known = np.random.default_rng(0), [centroids]
    parts, cost = [np.arange(len(x))] if n_parts == 1 else _dealt(x, w, known, n_parts, rng), 0.0
    with np.errstate(over="ignore", invalid="ignore"):
        if not np.isfinite(w @ (x**2)).all():  # squares overflow: nothing can be said of costs
            return parts, 0.0
        chosen, costs = parts, [_lloyd(x, w, centroids)[1]]
    rounds = min(int(NUMBERS / (x.size * len(centroids))), ROUNDS)
    if not np.isfinite(costs[0]):
        return parts, 0.0
    if rounds < 2:  # it would take too long
        return parts, costs[0]
    tried = _somewhere_else(x, w, len(centroids), rng)
    for _ in range(rounds if n_parts > 1 else 1):
        total, better = _best_of_parts(x, w, parts, [*known, *tried], rng)
        if total > cost:
            chosen, cost = parts, total
        if cost > (1.0 - ENOUGH) * costs[0]:
            break
        for other, its in sorted((_lloyd(x, w, one) for one in better), key=lambda end: end[1]):
            if len(known) <= OTHERS and np.abs(np.array(costs) - its).min() > ANOTHER * costs[0]:
                known.append(other)
                costs.append(its)
        parts = _dealt(x, w, known, n_parts, rng)
    return chosen, cost


def _dealt(x: Array, w: Array, clusterings: list[Array], n_parts: int, rng: np.random.Generator) -> list[Rows]:
    """Every set of rows that are together in all clusterings is dealt to all parts alike."""
    n = len(x)
    labels = np.stack([nearest(x, centroids) for centroids in clusterings], axis=1)
    _, together = np.unique(labels, axis=0, return_inverse=True)
    together = together.ravel()
    sets = [_neighbours(x, np.flatnonzero(together == k), n_parts) for k in range(together.max() + 1)]
    rounds = rng.permuted(np.tile(np.arange(n_parts), (-(-n // n_parts), 1)), axis=1).ravel()
    dealt = np.empty(n, np.int64)
    dealt[np.concatenate(sets)] = rounds[:n]
    for order in sets:
        if len(order) > 1:
            _balance(x, w, order, dealt, n_parts, rng)
    return [np.flatnonzero(dealt == part) for part in range(n_parts)]


def _best_of_parts(
    x: Array, w: Array, parts: list[Rows], known: list[Array], rng: np.random.Generator
) -> tuple[float, list[Array]]:
    """What the parts cost at least, as far as Lloyd's method finds out from some of them, and clusterings that are
    better than the common one in one of them."""
    total, better, n_clusters = 0.0, [], len(known[0])
    for part in rng.permutation(len(parts))[:JUDGED]:
        y, v = x[parts[part]], w[parts[part]]
        if len(y) <= n_clusters:
            continue
        starts = known + [y[rng.choice(len(y), n_clusters, replace=False)] for _ in range(STARTS)]
        ends = [_lloyd(y, v, start) for start in starts]
        cost = min(end[1] for end in ends)
        total += cost
        if cost < (1.0 - CHEAPER) * ends[0][1]:
            better.append(min(ends, key=lambda end: end[1])[0])
    return total * max(len(parts) / JUDGED, 1.0), better


def _somewhere_else(x: Array, w: Array, n_clusters: int, rng: np.random.Generator) -> list[Array]:
    """Where Lloyd's method ends for some of the rows."""
    some = rng.choice(len(x), min(len(x), SOME), replace=False)
    ends = [_lloyd(x[some], w[some], x[rng.choice(some, n_clusters, replace=False)]) for _ in range(STARTS)]
    return [centroids for centroids, _ in ends]


def _lloyd(x: Array, w: Array, centroids: Array) -> tuple[Array, float]:
    """Where Lloyd's method goes from there, and the cost."""
    centroids, label, cost = centroids.copy(), np.full(len(x), -1), 0.0
    for _ in range(STEPS):
        squared = squared_distances(x, centroids)
        before, label = label, squared.argmin(axis=1)
        cost = float(w @ squared[np.arange(len(x)), label])
        if np.array_equal(before, label):
            break
        weights = np.bincount(label, w, len(centroids))
        sums = np.stack([np.bincount(label, w * column, len(centroids)) for column in x.T], axis=1)
        filled = weights > 0.0
        centroids[filled] = sums[filled] / weights[filled, None]
    return centroids, cost


def _neighbours(x: Array, rows: NDArray[np.int64], few: int) -> NDArray[np.int64]:
    """The rows, halved across their principal axis again and again: those that are alike stand together."""
    done, waiting = [], [rows]
    while waiting:
        rows = waiting.pop()
        if len(rows) <= few:
            done.append(rows)
            continue
        apart = x[rows] - x[rows].mean(axis=0)
        scatter = apart.T @ apart
        if not np.isfinite(scatter).all():  # rows so far apart that squares overflow: they stay in their order
            done.append(rows)
            continue
        _, vectors = np.linalg.eigh(scatter)
        along = rows[np.argsort(apart @ vectors[:, -1], kind="stable")]
        waiting += [along[len(rows) // 2 :], along[: len(rows) // 2]]
    return np.concatenate(done)


def _balance(
    x: Array, w: Array, order: NDArray[np.int64], dealt: NDArray[np.int64], n_parts: int, rng: np.random.Generator
) -> None:
    """Exchanges until each anticluster has the same mean and spread of these rows, or nearly."""
    apart = x[order] - np.average(x[order], axis=0, weights=w[order])
    with np.errstate(over="ignore", invalid="ignore"):
        squares = (apart**2).sum(axis=1)
        mean = float(np.average(squares, weights=w[order]))
    if 0.0 < mean < np.inf:
        apart = np.column_stack([apart, (squares - mean) / np.sqrt(mean)])
    offsets = np.zeros((len(x), apart.shape[1]))
    offsets[order] = w[order, None] * apart
    sums = np.zeros((n_parts, apart.shape[1]))
    np.add.at(sums, dealt[order], offsets[order])
    for _ in range(SWEEPS):
        exchange(offsets, order, rng.integers(1, REACH * n_parts + 1, len(order)), dealt, sums)
