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
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from .certificate import Leaf, sum_down
from .consensus import balanced
from .symmetry import Symmetry

Array = NDArray[np.float64]

MAX_PRICINGS = 3  # of one box before it is split
WORTHWHILE = 0.3  # share of the missing bound that a pricing must have gained to be followed by another


@dataclass(frozen=True)
class Box:
    """A part of the domain with the proof of its bound, and the prices to try next."""

    boxes: Array  # (2, K, D)
    proof: Leaf  # of this box or of one that contains it
    prices: Array  # (N, K, D)
    pricings: int = 0

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
    """What all nodes said about one box at its prices."""

    box: Box
    node_bounds: Array  # (N,)
    centroids: Array  # (N, K, D)
    optimal: bool


def process(tree: Tree, results: list[Evaluated], cutoff: float, target: float, levels: int = 1) -> None:
    """Close, price again or split every evaluated box."""
    for result in results:
        tree.n_evaluated += 1
        box, bound = result.box, sum_down(result.node_bounds)
        gained = bound - box.bound
        if bound > box.bound:
            box = replace(box, proof=Leaf(box.boxes, box.prices, result.node_bounds))
        if box.bound >= cutoff:
            tree.close(box.leaf)
        elif box.pricings < MAX_PRICINGS and gained > WORTHWHILE * (cutoff - box.bound):
            tree.push(replace(box, prices=_next_prices(result, bound, target), pricings=box.pricings + 1))
        else:
            box = replace(box, prices=_next_prices(result, bound, target))
            for child in split(box, result.centroids, levels):
                if excluded(child.boxes, tree.symmetry):
                    tree.close(Leaf(child.boxes, None, None))
                else:
                    tree.push(child)


def _next_prices(result: Evaluated, bound: float, target: float) -> Array:
    """Polyak step towards the incumbent's cost along the nodes' disagreement, the projected subgradient in price space."""
    disagreement = result.centroids - result.centroids.mean(axis=0)
    squared = float(np.sum(disagreement**2))
    if squared <= 0.0:
        return result.box.prices
    return balanced(result.box.prices + (target - bound) / squared * disagreement)


def split(box: Box, centroids: Array, levels: int) -> list[Box]:
    """Halve the box where disagreement × width is largest, at the mean of the nodes' centroids but not near an edge."""
    lower, upper = box.boxes
    width = upper - lower
    disagreement = np.abs(centroids - centroids.mean(axis=0)).sum(axis=0)
    score = disagreement * width
    if not np.any(score > 0):
        score = width
    k, d = np.unravel_index(int(np.argmax(score)), score.shape)
    at = np.clip(
        centroids[:, k, d].mean(), lower[k, d] + 0.2 * width[k, d], upper[k, d] - 0.2 * width[k, d]
    )
    children = []
    for side in (0, 1):
        boxes = box.boxes.copy()
        boxes[1 - side, k, d] = at
        child = replace(box, boxes=boxes, pricings=0)
        children.extend([child] if levels <= 1 else split(child, np.clip(centroids, *boxes), levels - 1))
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
