"""What an attacker makes of the sums that a coordinator sees: points that may be rows. Used by `disclosure.py` alone.

* means: the mean of every group that was told, singletons among them;
* differences: of every two sums whose weights differ by one row, over all replies; then averages of those that lie
  close together, since rounding averages out where the same row is met often;
* refined: sums of the same group as values at several points tell them, f(m) = A − 2 m·V + W |m|² (trilateration), and
  the differences of these;
* nested columns: overlaps tell which columns are another one and one row more; a column's point is about its mean;
* edges: a coordinator that does not follow the protocol moves half-spaces over the rows in several directions. Where a
  count jumps lies a row; directions in between tell which coordinates belong together.

The attacks know everything public. They yield far more candidates than there are rows; nothing marks the right ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from ..core.arrays import Array
from ..protocol.messages import Coordinates, PriceQuery, PriceReply

MOST_GROUPS = 3_000  # of a site, for the differences of all pairs
MOST_AVERAGED = 20_000
NEIGHBOURS = (4, 16, 64)


@dataclass
class Seen:
    """Weights, absolute sums Σ w x and values of groups, and the columns, as one site or all together told them."""

    weights: list[Array] = field(default_factory=list)
    sums: list[Array] = field(default_factory=list)  # (n, D)
    valued: list[Array] = field(default_factory=list)  # rows W, Σ w y, m, f(m), in the search's coordinates
    nested: list[Array] = field(default_factory=list)  # candidates from columns
    axes: Coordinates | None = None
    _points: Array = field(default_factory=lambda: np.empty((0, 0)))  # of the columns that the sites hold
    _sizes: Array = field(default_factory=lambda: np.empty(0))

    def look(self, query: PriceQuery, reply: PriceReply) -> None:
        if query.coordinates is not None:
            self.axes, self._sizes = query.coordinates, np.empty(0)
            self._points = np.empty((0, len(query.coordinates.origin)))
        if query.evaluate is not None and reply.evaluated is not None:
            told = reply.evaluated
            self.add(told.counts, told.offsets + told.counts[..., None] * query.evaluate.candidates)
        if self.axes is None:
            return
        if query.trim is not None and reply.trimmed is not None and query.trim.stride == 1:
            step = reply.trimmed
            self._add_located(step.weights, step.offsets, query.trim.points, step.values)
        for asked, boxes in ((query.examine, reply.boxes), (query.claim, reply.claimed)):
            if asked is not None and boxes is not None:
                rest = boxes.minorants - boxes.insides  # chords scale a row's weight and offset alike
                for part in (boxes.insides, boxes.minorants, rest):
                    self._add_located(part[:, 0], part[:, 1:-1], 0.5 * (asked.lower + asked.upper), part[:, -1])
        if query.columns is not None and reply.columns is not None:
            self._look_at_columns(query.columns.kept, query.columns.points, reply.columns.sizes, reply.columns.overlaps)

    def add(self, weights: Array, sums: Array) -> None:
        self.weights.append(np.ravel(weights))
        self.sums.append(sums.reshape(-1, sums.shape[-1]))

    def _add_located(self, weights: Array, offsets: Array, points: Array, values: Array) -> None:
        about = offsets + weights[:, None] * points
        self.add(weights, self.back(weights, about))
        self.valued.append(np.column_stack([weights, about, points, values]))

    def _look_at_columns(self, kept: NDArray[np.bool_], points: Array, sizes: Array, overlaps: Array) -> None:
        self._points = np.concatenate([self._points[kept], points])
        self._sizes = np.concatenate([self._sizes[kept], sizes])
        fewer = np.minimum(sizes[:, None], self._sizes)
        one_more = np.abs(np.abs(sizes[:, None] - self._sizes) - 1.0) < 1e-6
        new, old = np.nonzero(one_more & (np.abs(overlaps - fewer) < 1e-6) & (fewer > 0.0))
        by = sizes[new, None] * points[new] - self._sizes[old, None] * self._points[old]
        self.nested.append(self.back(np.ones(len(new)), by * np.sign(sizes[new] - self._sizes[old])[:, None]))

    def back(self, weights: Array, sums: Array) -> Array:
        """Σ w y as Σ w x; what axes in part leave out stays at their origin."""
        assert self.axes is not None
        back = np.linalg.pinv(self.axes.basis)
        return np.asarray(sums / self.axes.scale @ back + weights[:, None] * self.axes.origin)

    def groups(self) -> tuple[Array, Array]:
        weights, sums = np.concatenate(self.weights), np.concatenate(self.sums)
        real = weights > 1e-9
        told: Array = np.unique(np.round(np.column_stack([weights[real], sums[real]]), 9), axis=0)
        return np.asarray(told[:, 0]), np.asarray(told[:, 1:])


def candidates(seen: Seen) -> Iterator[tuple[str, Array]]:
    """Points that may be rows, with the name of the attack."""
    weights, sums = seen.groups()
    yield "means", sums / weights[:, None]
    found = []
    for differences in _differences(weights, sums):
        found.append(differences)
        yield "differences", differences
    yield from (("averages", average) for average in _averages(found))
    if seen.valued:
        refined = _refined(np.concatenate(seen.valued))
        if len(refined):
            sums = seen.back(refined[:, 0], refined[:, 1:])
            yield "refined", sums / refined[:, :1]
            yield from (("refined", one) for one in _differences(refined[:, 0], sums))
    yield from (("nested columns", one) for one in seen.nested)


def _differences(weights: Array, sums: Array) -> Iterator[Array]:
    """Of every two groups that may differ by one row."""
    whole = np.flatnonzero(np.abs(weights - np.round(weights)) < 1e-6)
    if len(whole) > MOST_GROUPS:
        whole = np.random.default_rng(0).choice(whole, MOST_GROUPS, replace=False)
    sizes = np.round(weights[whole]).astype(int)
    for size in np.unique(sizes):
        less, more = sums[whole[sizes == size]], sums[whole[sizes == size + 1]]
        if len(more):
            for one in less:
                yield more - one


def _averages(found: list[Array]) -> Iterator[Array]:
    """Means of the differences about each of them: the same row, met under other roundings."""
    every = np.concatenate(found) if found else np.empty((0, 1))
    if len(every) <= NEIGHBOURS[0]:
        return
    if len(every) > MOST_AVERAGED:
        every = every[np.random.default_rng(0).choice(len(every), MOST_AVERAGED, replace=False)]
    tree = cKDTree(every / np.maximum(every.std(axis=0), 1e-12))
    for k in NEIGHBOURS:
        if k < len(every):
            yield every[tree.query(tree.data, k)[1]].mean(axis=1)


def _refined(valued: Array) -> Array:
    """(W, Σ w y) of groups that were told at D + 2 points or more, from their values alone."""
    d = (valued.shape[1] - 2) // 2
    keys, of_group = np.unique(np.round(valued[:, : 1 + d], 6), axis=0, return_inverse=True)
    order = np.argsort(of_group, kind="stable")
    ends = np.searchsorted(of_group.ravel()[order], np.arange(len(keys) + 1))
    made = []
    for g in np.flatnonzero(np.diff(ends) >= d + 2):
        rows = valued[order[ends[g] : ends[g + 1]]]
        weight, points, values = rows[0, 0], rows[:, 1 + d : 1 + 2 * d], rows[:, -1]
        matrix = np.column_stack([np.ones(len(rows)), -2.0 * points])
        solved, _, rank, _ = np.linalg.lstsq(matrix, values - weight * (points**2).sum(axis=1), rcond=1e-10)
        if rank == d + 1 and weight > 0.0:
            made.append(np.concatenate([[weight], solved[1:]]))
    return np.array(made).reshape(-1, 1 + d)


def edges(count: Callable[[Array, Array], Array], lower: Array, upper: Array, thresholds: int) -> Array:
    """Rows from counts alone; `count(direction, at)` is the weight of the rows with x·direction below each of `at`."""
    n_features, width = len(lower), upper - lower
    rng = np.random.default_rng(0)

    def jumps(direction: Array) -> Array:
        ends = np.sort(np.stack([direction * lower, direction * upper]), axis=0).sum(axis=1)
        at = np.linspace(ends[0] - 1e-6 * (ends[1] - ends[0]), ends[1] + 1e-6 * (ends[1] - ends[0]), thresholds)
        told = count(direction, at)
        places = np.flatnonzero(np.abs(np.diff(told)) > 0.5)
        return np.asarray(0.5 * (at[places] + at[places + 1]))

    points = jumps(np.eye(n_features)[0])[:, None]
    for d in range(1, n_features):
        values = jumps(np.eye(n_features)[d])
        if len(values) == 0 or len(points) == 0:
            return np.empty((0, n_features))
        points = np.column_stack([np.repeat(points, len(values), axis=0), np.tile(values, len(points))])
        for _ in range(2):  # a direction in between: its jumps must lie where the candidates' do
            direction = np.zeros(n_features)
            direction[: d + 1] = rng.uniform(0.5, 1.0, d + 1) / width[: d + 1]
            seen = np.sort(jumps(direction))
            if len(seen) == 0:
                return np.empty((0, n_features))
            place = points @ direction[: d + 1]
            after = np.clip(np.searchsorted(seen, place), 1, max(len(seen) - 1, 1))
            near = np.minimum(np.abs(place - seen[after - 1]), np.abs(place - seen[np.minimum(after, len(seen) - 1)]))
            points = points[near <= 1.5 * (d + 1) / thresholds]
        if len(points) > 200_000:
            return np.empty((0, n_features))
    return points
