"""Where centroids may lie: a partition of the root box into cells, each with the number of centroids in it.

Where the bound of a node leaves a gap, one cell is split at a threshold, and a child is made for every way to share its
count. Centroids are never labelled, so there is no symmetry to break.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ..core.arrays import Array
from .tree import SearchTree

Branch = tuple[int, int, float, int]  # cell, axis, threshold, centroids below it
NARROWEST = 1e-6  # of the root: a cell that is not halved any more


@dataclass(frozen=True)
class Cell:
    lower: Array
    upper: Array
    count: int

    def holds(self, points: Array) -> NDArray[np.bool_]:
        return np.asarray(np.all((points >= self.lower) & (points <= self.upper), axis=1))

    def faces(self, root: Cell) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Sides that are not sides of the root: there a minimiser need not be stationary."""
        return self.lower > root.lower, self.upper < root.upper


@dataclass
class Node:
    cells: tuple[Cell, ...]
    slot: int  # its prices at the sites
    bound: float  # proven, in the search's units; inherited until its own search is done
    path: tuple[Branch, ...] = ()
    priced: bool = False  # whether the sites hold prices in its slot
    total: float = 0.0  # Σ w λ
    targets: Array = field(default_factory=lambda: np.empty(0))  # t of each cell
    trees: list[SearchTree | None] = field(default_factory=list)
    children: list[Node] = field(default_factory=list)

    @property
    def counts(self) -> Array:
        return np.array([cell.count for cell in self.cells], dtype=float)

    def cell_of(self, points: Array) -> NDArray[np.int64]:
        """The first cell that holds each point."""
        inside = np.array([cell.holds(points) for cell in self.cells])
        return np.asarray(np.argmax(inside, axis=0))

    def places(self, points: Array) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """All pairs of a point and a cell that holds it: a point on a face between two cells lies in both."""
        cells, which = np.nonzero([cell.holds(points) for cell in self.cells])
        return which, cells

    def clipped(self, points: Array, cells: NDArray[np.int64]) -> Array:
        lower, upper = np.array([cell.lower for cell in self.cells]), np.array([cell.upper for cell in self.cells])
        return np.asarray(np.clip(points, lower[cells], upper[cells]))

    def branch(self, cell: int, axis: int, threshold: float) -> list[Node]:
        """One child for every number of centroids below the threshold."""
        old = self.cells[cell]
        below, above = old.upper.copy(), old.lower.copy()
        below[axis] = above[axis] = threshold
        for k in range(old.count + 1):
            parts = (Cell(old.lower, below, k), Cell(above, old.upper, old.count - k))
            cells = (*self.cells[:cell], *parts, *self.cells[cell + 1 :])
            path = (*self.path, (cell, axis, threshold, k))
            self.children.append(Node(cells, self.slot, self.bound, path))
        return self.children


def most_fractional(node: Node, points: Array, cells: NDArray[np.int64], z: Array) -> tuple[int, int, float] | None:
    """Cell, axis and threshold below which the number of centroids is farthest from an integer."""
    best, choice = 1e-7, None
    used = z > 1e-9
    for i in range(len(node.cells)):
        here = np.flatnonzero(used & (cells == i))
        if len(here) < 2:
            continue
        for axis in range(points.shape[1]):
            order = here[np.argsort(points[here, axis], kind="stable")]
            at, below = points[order, axis], np.cumsum(z[order])[:-1]
            apart = np.diff(at)
            width = max(float(at[-1] - at[0]), 1e-300)
            fraction = np.minimum(below - np.floor(below), np.ceil(below) - below)
            score = np.where(apart > 1e-9 * width, fraction * (0.25 + np.minimum(apart / width, 0.25)), 0.0)
            k = int(np.argmax(score)) if len(score) else 0
            if len(score) and score[k] > best:
                best, choice = float(score[k]), (i, axis, float(0.5 * (at[k] + at[k + 1])))
    return choice


def between_centroids(node: Node, centroids: Array) -> tuple[int, int, float] | None:
    """Where no number is fractional: the widest gap between the coordinates of centroids within a cell."""
    best, choice = 0.0, None
    for i, cell in enumerate(node.cells):
        inside = centroids[np.all((centroids >= cell.lower) & (centroids <= cell.upper), axis=1)]
        if len(inside) < 2:
            continue
        for axis in range(centroids.shape[1]):
            at = np.sort(inside[:, axis])
            k = int(np.argmax(np.diff(at)))
            if at[k + 1] - at[k] > best:
                best, choice = float(at[k + 1] - at[k]), (i, axis, float(0.5 * (at[k] + at[k + 1])))
    return choice


def in_the_middle(node: Node, root: Cell) -> tuple[int, int, float] | None:
    """Where centroids do not tell a place either: the widest cell that counts, halved."""
    width = np.maximum(root.upper - root.lower, 1e-300)
    best, choice = NARROWEST, None
    for i, cell in enumerate(node.cells):
        wide = (cell.upper - cell.lower) / width
        axis = int(np.argmax(wide))
        if cell.count > 0 and wide[axis] > best:
            best, choice = float(wide[axis]), (i, axis, float(0.5 * (cell.lower[axis] + cell.upper[axis])))
    return choice


def frontier(node: Node) -> list[Node]:
    """The proven nodes whose cells cover every clustering: children where all of them prove more than their parent."""
    if node.children:
        below = [frontier(child) for child in node.children]
        if all(below) and min(leaf.bound for part in below for leaf in part) > node.bound:
            return [leaf for part in below for leaf in part]
    return [node] if node.trees or not node.path else []
