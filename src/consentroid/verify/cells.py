"""Do the leaves cover every way in which K centroids can lie in the cells?

A leaf's path is replayed from the root box with all K centroids: a branch replaces one cell by the parts below and
above a value, with k and r − k of its r centroids. The leaves cover everything if, wherever paths branch, they do so at
the same cell, axis and value, and every k = 0..r is there. Loops, no recursion: paths may be long.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from ..certificate.document import Certificate, LeafProof
from ..core.arrays import Array
from ..core.errors import CertificateInvalid


@dataclass
class CheckedCell:
    lower: Array
    upper: Array
    count: int


@dataclass
class TreeNode:
    branch: tuple[int, int, float] | None = None  # None: a leaf ends here
    count: int = 0  # of the cell that is branched
    children: dict[int, TreeNode] = field(default_factory=dict)


def check_cover(certificate: Certificate, tick: Callable[[], None]) -> None:
    """Raise `CertificateInvalid` unless the leaves are exactly the leaves of a tree of cells."""
    if certificate.pairs is not None:  # then there are none
        return
    top: TreeNode | None = None
    inner: list[TreeNode] = []
    for number, leaf in enumerate(certificate.leaves):
        counts = _replayed(certificate, leaf, f"leaf {number}", tick)
        if top is None:
            top = TreeNode()
            fresh = True
        else:
            fresh = False
        node = top
        for (cell, axis, value, below), count in zip(leaf.path, counts, strict=True):
            tick()
            branch = (cell, axis, value)
            if fresh:
                node.branch, node.count = branch, count
                inner.append(node)
            elif node.branch != branch:
                raise CertificateInvalid(f"leaf {number}: its path parts from the others' at another cell or value")
            fresh = below not in node.children
            node = node.children.setdefault(below, TreeNode())
        if not fresh:
            raise CertificateInvalid(f"leaf {number}: another leaf has the same path or continues it")
    for node in inner:
        tick()
        if len(node.children) != node.count + 1:  # keys are from 0 to count, see _replayed
            raise CertificateInvalid(
                f"leaves: where a cell of {node.count} centroids is branched, {node.count + 1} leaves or subtrees are "
                f"due, {len(node.children)} are there: some centroids are not covered"
            )


def _replayed(certificate: Certificate, leaf: LeafProof, place: str, tick: Callable[[], None]) -> list[int]:
    """Check the leaf's cells against its path; returns the count of the cell branched at every step."""
    cells = [CheckedCell(certificate.root[0], certificate.root[1], certificate.n_clusters)]
    counts = []
    for i, (at, axis, value, below) in enumerate(leaf.path):
        tick()
        old = cells[at]
        if not old.lower[axis] <= value <= old.upper[axis]:
            raise CertificateInvalid(f"{place}, path[{i}]: the value {value!r} lies outside the cell")
        if not 0 <= below <= old.count:
            raise CertificateInvalid(f"{place}, path[{i}]: {below} of {old.count} centroids cannot lie below")
        upper, lower = old.upper.copy(), old.lower.copy()
        upper[axis] = lower[axis] = value
        cells[at : at + 1] = [CheckedCell(old.lower, upper, below), CheckedCell(lower, old.upper, old.count - below)]
        counts.append(old.count)
    for i, (cell, stated) in enumerate(zip(cells, leaf.cells, strict=True)):
        tick()
        if cell.count != stated.count or not (
            np.array_equal(cell.lower, stated.lower) and np.array_equal(cell.upper, stated.upper)
        ):
            raise CertificateInvalid(f"{place}, cell {i}: is not the cell that its path makes")
    return counts
