"""What the exact solver knows of a node's rows before any question: scaled rows, kd-tree, per K starts and tails."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from ...core.arrays import Array
from ._batch import Workspace, make_workspace
from ._prepare import power_above, prepare_few
from ._scaling import ScaledRows
from ._start import lloyd_seeds
from ._tails import tail_bounds
from ._tree import Tree, build_tree

MOST_MERGED = 5000  # rows up to which equal ones are merged
MOST_ORDERED = 1000  # rows up to which the search order, quadratic in their number, is worked out
MOST_ORDERED_ON_A_LINE = 128  # where more rows are clustered by dynamic programming, in any order
MOST_WITH_TAILS = 256  # rows up to which the price-free tails are worth their search
SAMPLE = 4000  # rows from which starts are found
RUNS, FEW_RUNS, FEW_ROWS = 10, 5, 30  # of Lloyd's algorithm, for starts; fewer for few rows or one feature
TAIL_NODES = 20_000  # most search nodes for one tail


class PreparedRows:
    """Computed once for a node's rows, and kept."""

    def __init__(
        self, points: Array, weights: Array, y: Array, w: Array, centre: Array, scale: float, weight_scale: float
    ) -> None:
        self.points, self.weights, self.y, self.w = points, weights, y, w
        self.centre, self.scale, self.weight_scale = centre, scale, weight_scale
        self._rows: dict[int, ScaledRows] = {}
        self._workspaces: dict[int, list[Workspace]] = {}
        self._effort: dict[int, tuple[int, int]] = {}  # search nodes spent on the tails, and offered

    @classmethod
    def of(cls, points: Array, weights: Array) -> PreparedRows:
        """Shift, scale, merge equal rows, order for the search."""
        points, weights = np.array(points, dtype=float, order="C"), np.array(weights, dtype=float)
        if len(points) <= (MOST_ORDERED if points.shape[1] > 1 else MOST_ORDERED_ON_A_LINE):
            return cls(points, weights, *prepare_few(points, weights))
        kept = weights > 0
        distinct, w = points[kept], weights[kept]
        if len(w) <= MOST_MERGED:
            distinct, inverse = np.unique(distinct, axis=0, return_inverse=True)
            w = np.bincount(inverse.ravel(), w, minlength=len(distinct)).astype(float)
        centre, shifted = np.zeros(points.shape[1]), distinct
        if len(w) > 0:
            middle = np.partition(distinct, len(distinct) // 2, axis=0)[len(distinct) // 2]
            with np.errstate(over="ignore"):
                difference = distinct - middle
            if np.isfinite(difference).all():
                centre, shifted = middle.copy(), difference
        scale = power_above(float(np.max(np.abs(shifted), initial=0.0)))
        weight_scale = power_above(float(w.max(initial=0.0)))
        y, w = np.ascontiguousarray(shifted / scale), np.ascontiguousarray(w / weight_scale)
        return cls(points, weights, y, w, centre, scale, weight_scale)

    @cached_property
    def tree(self) -> Tree:
        return build_tree(self.y, self.w, 8)

    def rows(self, n_clusters: int, seconds: float) -> ScaledRows:
        """With starts and tails for K clusters; tails cut short for want of time are redone when there is more."""
        effort = int(min(max(seconds, 0.0), 2.0) * 200_000)
        spent, offered = self._effort.get(n_clusters, (0, -1))
        if n_clusters not in self._rows or (spent >= offered and effort > offered):
            y, w, spent = self.y, self.w, -1
            seeds = np.zeros((0, n_clusters, y.shape[1]))
            if len(y) > 0:
                step = len(y) // SAMPLE
                sample = (y, w) if step <= 1 else (y[::step].copy(), w[::step].copy())
                runs = 1 if y.shape[1] == 1 else FEW_RUNS if len(y) <= FEW_ROWS else RUNS
                seeds = lloyd_seeds(*sample, n_clusters, runs, 3)
            tail, best = np.zeros(len(y) + 1), np.zeros((n_clusters, y.shape[1]))
            if 0 < len(y) <= MOST_WITH_TAILS:
                spent = tail_bounds(y, w, len(self.weights), n_clusters, seeds, TAIL_NODES, effort, tail, best)
                seeds = np.concatenate([best[None], seeds])
            self._effort[n_clusters] = (spent, effort)
            self._rows[n_clusters] = ScaledRows(
                self.points, self.weights, y, w, self.centre, self.scale, self.weight_scale, tail, seeds
            )
        return self._rows[n_clusters]

    def borrow_workspace(self, n_clusters: int) -> Workspace:
        """For one search; threads that search at the same time get different ones."""
        try:
            return self._workspaces.setdefault(n_clusters, []).pop()
        except IndexError:
            return make_workspace(len(self.w), n_clusters, self.y.shape[1])

    def return_workspace(self, n_clusters: int, workspace: Workspace) -> None:
        self._workspaces[n_clusters].append(workspace)
