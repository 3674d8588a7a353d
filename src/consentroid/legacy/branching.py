"""Federated branch and bound: the paper's loop on ever smaller parts of the domain, until nothing is left to prove.

A `Box` restricts every centroid to its own axis-parallel box. Its bound is the dual function over that part of the
domain, Σ_i min_{m ∈ box} f_i(m) + ⟨p_i, m⟩ with prices that sum to zero: the nodes evaluate it with the same message as
in the paper's loop, only on smaller boxes, and many boxes share one exchange. Children inherit their parent's prices.

Each round takes the boxes with the least bounds. A box is closed when its bound reaches the cutoff, priced again while
that pays, and otherwise split where the nodes disagree most: at the dual optimum the gap comes from nothing else.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ..core.arrays import Array
from ..core.symmetry import Symmetry
from ..core.topology import balanced
from ..paper.dual._master import Master, solve_flat_master
from .certificate import Leaf, sum_down

Index = NDArray[np.int64]

MAX_PRICINGS = 1  # of one box before it is split
CUTS_KEPT = 8  # of each node and box


@dataclass(frozen=True)
class Cuts:
    """What the nodes attained in a box: node, cost f_i(m) and centroids m, valid at every price."""

    node: Index  # (C,) ascending
    cost: Array  # (C,)
    point: Array  # (C, K, D)

    @classmethod
    def none(cls, n_clusters: int, n_features: int) -> Cuts:
        return cls(np.empty(0, dtype=np.int64), np.empty(0), np.empty((0, n_clusters, n_features)))

    def plus(self, costs: Array, centroids: Array) -> Cuts:
        """One more cut of every node; of each node the oldest beyond `CUTS_KEPT` is dropped."""
        node = np.concatenate([self.node, np.arange(len(costs))])
        order = np.argsort(node, kind="stable")
        node = node[order]
        newer = np.searchsorted(node, node, side="right") - np.arange(len(node))  # cuts of the same node from here on
        order, node = order[newer <= CUTS_KEPT], node[newer <= CUTS_KEPT]
        cost, point = np.concatenate([self.cost, costs]), np.concatenate([self.point, centroids])
        return Cuts(node, cost[order], point[order])

    def inside(self, boxes: Array) -> Cuts:
        """Those that a smaller box still allows."""
        kept = np.all((self.point >= boxes[0]) & (self.point <= boxes[1]), axis=(1, 2))
        return Cuts(self.node[kept], self.cost[kept], self.point[kept])

    def offsets(self, n_nodes: int) -> Index:
        return np.searchsorted(self.node, np.arange(n_nodes + 1)).astype(np.int64)


@dataclass(frozen=True)
class Box:
    """A part of the domain with the proof of its bound, the prices to try next, and the cuts known in it."""

    boxes: Array  # (2, K, D)
    proof: Leaf  # of this box or of one that contains it
    trials: Array  # (T, N, K, D): prices to try next, all in one exchange
    cuts: Cuts
    pricings: int = 0
    counted: bool = False  # whether its decided rows have been counted

    @property
    def bound(self) -> float:
        return self.proof.bound

    @property
    def leaf(self) -> Leaf:
        """The proof stated for this box: a bound on a larger box holds on a smaller one."""
        return replace(self.proof, boxes=self.boxes)


class Tree:
    """Open boxes by bound and closed leaves; together they cover the domain at any moment."""

    def __init__(self, root: Box, symmetry: Symmetry) -> None:
        self.symmetry = symmetry
        self.closed: list[Leaf] = []
        self.n_evaluated = 0
        self.next_serial = 0  # ties between bounds are broken by age, so that a run can be repeated
        self._heap: list[tuple[float, int, Box]] = []
        self._least_closed = np.inf
        self.push(root)

    @classmethod
    def restored(
        cls, symmetry: Symmetry, closed: list[Leaf], entries: list[tuple[int, Box]], n_evaluated: int, serial: int
    ) -> Tree:
        """The tree that a checkpoint describes."""
        tree = cls.__new__(cls)
        tree.symmetry, tree.n_evaluated, tree.next_serial = symmetry, n_evaluated, serial
        tree.closed = []
        tree._least_closed = np.inf
        for leaf in closed:
            tree.close(leaf)
        tree._heap = [(box.bound, number, box) for number, box in entries]
        heapq.heapify(tree._heap)
        return tree

    def push(self, box: Box) -> None:
        heapq.heappush(self._heap, (box.bound, self.next_serial, box))
        self.next_serial += 1

    def close(self, leaf: Leaf) -> None:
        self.closed.append(leaf)
        self._least_closed = min(self._least_closed, leaf.bound)

    def take(self, n_boxes: int) -> list[Box]:
        """The boxes with the least bounds."""
        return [heapq.heappop(self._heap)[2] for _ in range(min(n_boxes, len(self._heap)))]

    @contextmanager
    def all_or_nothing(self) -> Iterator[None]:
        """Undo whatever an interrupted round has done: boxes in flight must not be missing from the cover."""
        heap, n_closed, least = list(self._heap), len(self.closed), self._least_closed
        counters = self.n_evaluated, self.next_serial
        try:
            yield
        except BaseException:
            self._heap, self._least_closed = heap, least
            del self.closed[n_closed:]
            self.n_evaluated, self.next_serial = counters
            raise

    @property
    def n_open(self) -> int:
        return len(self._heap)

    @property
    def entries(self) -> list[tuple[float, int, Box]]:
        """Open boxes with their bounds and ages."""
        return list(self._heap)

    @property
    def lower(self) -> float:
        return min(self._heap[0][0] if self._heap else np.inf, self._least_closed)

    def leaves(self) -> list[Leaf]:
        return self.closed + [box.leaf for _, _, box in self._heap]


@dataclass(frozen=True)
class Evaluated:
    """What all nodes said about one box at each of its trial prices."""

    box: Box
    node_bounds: Array  # (T, N)
    node_values: Array  # (T, N)
    centroids: Array  # (T, N, K, D)


def process(tree: Tree, results: list[Evaluated], cutoff: float, target: float) -> None:
    """Close, price again or split every evaluated box; prices aim at a bound of `target`."""
    for result in results:
        tree.n_evaluated += 1
        best = int(np.argmax(result.node_bounds.sum(axis=1)))
        box = _learned(result, best)
        if box.bound >= cutoff:
            tree.close(box.leaf)
            continue
        master = _master(box, result.centroids[best], target)
        trials = _trials(box, result.centroids[best], master, target)
        if box.pricings < MAX_PRICINGS and master.value >= cutoff:
            tree.push(replace(box, trials=trials, pricings=box.pricings + 1))
            continue
        for child in split(box, result.centroids[best], trials):
            if excluded(child.boxes, tree.symmetry):
                tree.close(Leaf(child.boxes, None, None))
            else:
                tree.push(child)


def take_counts(tree: Tree, boxes: list[Box], prices: Array, node_bounds: Array, cutoff: float) -> list[Box]:
    """Use the cheap bound: close what it suffices for; elsewhere its prices are one more trial."""
    remaining = []
    for box, price, bounds in zip(boxes, prices, node_bounds, strict=True):
        trials = np.concatenate([box.trials, price[None]])
        proof = Leaf(box.boxes, price, bounds)
        box = replace(box, counted=True, trials=trials, proof=proof if proof.bound > box.bound else box.proof)
        if box.bound >= cutoff:
            tree.n_evaluated += 1
            tree.close(box.leaf)
        else:
            remaining.append(box)
    return remaining


def _learned(result: Evaluated, best: int) -> Box:
    """The box with what its evaluation taught: a better proof, perhaps, and cuts of every node."""
    box, cuts = result.box, result.box.cuts
    for prices, values, centroids in zip(box.trials, result.node_values, result.centroids, strict=True):
        cuts = cuts.plus(values - np.sum(prices * centroids, axis=(1, 2)), centroids)
    box = replace(box, cuts=cuts)
    if sum_down(result.node_bounds[best]) > box.bound:
        box = replace(box, proof=Leaf(box.boxes, box.trials[best], result.node_bounds[best]))
    return box


def _proximity(box: Box, centroids: Array, target: float) -> float:
    """At which one cut alone promises a bound of `target`: a Polyak step."""
    squared = float(np.sum((centroids - centroids.mean(axis=0)) ** 2))
    return squared / max(target - box.bound, 1e-12 * abs(target)) if squared > 0.0 else 1.0


def _master(box: Box, centroids: Array, target: float) -> Master:
    """Master of the proximal bundle around the best prices."""
    assert box.proof.prices is not None
    offsets = box.cuts.offsets(len(centroids))
    points = box.cuts.point.reshape(len(box.cuts.point), -1)
    return solve_flat_master(box.cuts.cost, points, offsets, box.proof.prices, _proximity(box, centroids, target))


def _trials(box: Box, centroids: Array, master: Master, target: float) -> Array:
    """The master's prices and a Polyak step: where one fails the other often does not."""
    assert box.proof.prices is not None
    step = (centroids - centroids.mean(axis=0)) / _proximity(box, centroids, target)
    return np.stack([balanced(master.prices), balanced(box.proof.prices + step)])


def split(box: Box, centroids: Array, trials: Array) -> list[Box]:
    """Cut the box in two where the nodes' centroids disagree most, and wide, at their mean but not near an edge."""
    lower, upper = box.boxes
    width = upper - lower
    mean = centroids.mean(axis=0)
    score = np.abs(centroids - mean).sum(axis=0) * width
    if not np.any(score > 0):
        score = width
    k, d = np.unravel_index(int(np.argmax(score)), score.shape)
    at = np.clip(mean[k, d], lower[k, d] + 0.2 * width[k, d], upper[k, d] - 0.2 * width[k, d])
    children = []
    for side in (0, 1):
        boxes = box.boxes.copy()
        boxes[1 - side, k, d] = at
        children.append(Box(boxes, box.proof, trials, box.cuts.inside(boxes)))
    return children


def excluded(boxes: Array, symmetry: Symmetry) -> bool:
    """Whether no centroids in the boxes obey the order rule: even the best corner violates one inequality.

    The test is an interval computation; the margin covers its rounding, so that nothing is excluded in doubt.
    """
    if symmetry.rule != "order" or symmetry.references is None:
        return False
    lower, upper = boxes
    normals = symmetry.normals(len(lower))
    for k, other in itertools.combinations(range(len(lower)), 2):
        terms = np.maximum(normals[k, other] * (upper[k] - lower[other]), normals[k, other] * (lower[k] - upper[other]))
        magnitude = np.abs(normals[k, other]) * (np.abs(boxes[:, [k, other]]).max(axis=(0, 1)) * 2)
        if terms.sum() < -8 * (len(terms) + 4) * np.finfo(float).eps * magnitude.sum():
            return True
    return False
