"""Do the leaves cover the domain? Decided by comparing numbers, without arithmetic, so without rounding.

A region is covered if one leaf contains it. Otherwise it is cut at a face of some leaf, if possible one that no leaf
crosses, and both halves have to be covered by the leaves that reach into them. A region that no leaf reaches is a hole.
Leaves may overlap. All regions end on faces of leaves, of which there are finitely many: the search ends.

Boxes of K clusters in D features are treated as boxes in K·D coordinates. A coordinate in which the domain has width
zero has to be met by value; in all others a leaf that only touches a region from outside does not help to cover it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ...core.arrays import Array
from ...core.errors import CertificateInvalid


def check_cover(domain: Array, leaves: Array) -> None:
    """`domain` (2, K, D), `leaves` (L, 2, K, D): raise an error that names a leaf outside, or a hole."""
    outside = (leaves[:, 0] < domain[0]) | (leaves[:, 1] > domain[1])
    if outside.any():
        i, k, d = (int(axis[0]) for axis in np.nonzero(outside))
        raise CertificateInvalid(
            f"leaf {i}: reaches from {leaves[i, 0, k, d]!r} to {leaves[i, 1, k, d]!r} in feature {d} of cluster {k}, "
            f"outside the domain [{domain[0, k, d]!r}, {domain[1, k, d]!r}]"
        )
    hole = find_hole(domain.reshape(2, -1), leaves.reshape(len(leaves), 2, -1))
    if hole is not None:
        raise CertificateInvalid(
            f"leaves: none covers the centroids from {hole[0].reshape(domain.shape[1:]).tolist()} "
            f"to {hole[1].reshape(domain.shape[1:]).tolist()}"
        )


def find_hole(domain: Array, leaves: Array) -> Array | None:
    """A box (2, C) inside the domain (2, C) that no leaf (L, 2, C) reaches, or None if all is covered."""
    regions = [(domain, np.arange(len(leaves)))]
    while regions:
        region, near = regions.pop()
        near = near[_reach(region, leaves[near])]
        if len(near) == 0:
            return region
        lower, upper = leaves[near, 0], leaves[near, 1]
        if np.any(np.all((lower <= region[0]) & (upper >= region[1]), axis=1)):
            continue
        coordinate, value = _cut(region, lower, upper)
        for side in (0, 1):
            half = region.copy()
            half[1 - side, coordinate] = value
            regions.append((half, near))
    return None


def _reach(region: Array, leaves: Array) -> NDArray[np.bool_]:
    low, high = np.maximum(leaves[:, 0], region[0]), np.minimum(leaves[:, 1], region[1])
    return np.all(np.where(region[0] < region[1], low < high, low <= high), axis=1)


def _cut(region: Array, lower: Array, upper: Array) -> tuple[int, float]:
    """The face inside the region that the fewest leaves cross; among those the most balanced."""
    best: tuple[int, int, int, float] | None = None
    for c in range(region.shape[1]):
        faces = np.unique(np.concatenate([lower[:, c], upper[:, c]]))
        faces = faces[(faces > region[0, c]) & (faces < region[1, c])]
        if len(faces) == 0:
            continue
        started = np.searchsorted(np.sort(lower[:, c]), faces, side="left")  # leaves with lower < face
        ended = np.searchsorted(np.sort(upper[:, c]), faces, side="right")  # leaves with upper ≤ face
        crossing, unbalanced = started - ended, np.abs(started + ended - len(lower))
        i = np.lexsort((unbalanced, crossing))[0]
        candidate = (int(crossing[i]), int(unbalanced[i]), c, float(faces[i]))
        best = candidate if best is None else min(best, candidate)
    assert best is not None, "a leaf that reaches into a region without containing it has a face inside"
    return best[2], best[3]
