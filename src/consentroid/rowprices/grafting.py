"""The best of two clusterings, place by place.

With many clusters a clustering is made of choices in many places that have little to do with each other, and another
one, though worse as a whole, has often chosen better in some of them. So centroids of both are matched, those that
differ are put into groups by how near they are to each other (single linkage: every group at every level), and what
each group saves, if taken over alone, is told by the sites for all groups at once. As groups far apart do not meddle,
the best choice of groups of which no two meet is a sum along the tree.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.cluster.hierarchy import linkage
from scipy.optimize import linear_sum_assignment

from ..core.arrays import Array, squared_distances
from .incumbents import evaluate, lloyd
from .session import Session

Marks = NDArray[np.bool_]

SHIFTED = 0.03  # of a cluster's radius: centroids that differ by less are the same


def graft(session: Session, others: Array, spread: Array) -> None:
    """Take over into the incumbent what is better in the other clusterings (C, K, D), one after the other."""
    for other in others:
        before = session.centroids
        assert before is not None
        places = Places.between(before, other, SHIFTED**2 * session.upper / session.weight)
        if len(places.groups) < 3:  # one place: nothing but the other clustering itself
            continue
        cost = session.upper
        saved = cost - evaluate(session, places.taken(before, places.groups)).costs
        if np.any(saved > 0.0):
            lloyd(session, places.taken(before, places.best(saved)[None]), spread)


class Places(NamedTuple):
    """Groups of centroids in which two clusterings differ: single ones first, then what each merger makes of two."""

    matched: Array  # (K, D) the other's centroids in the order of the first's
    groups: Marks  # (G, K)
    mergers: NDArray[np.int64]  # of which groups the later ones are made, two each

    @classmethod
    def between(cls, first: Array, other: Array, least: float) -> Places:
        """Centroids differ where they are more than `least` apart, squared."""
        _, order = linear_sum_assignment(squared_distances(first, other))
        matched = other[order]
        apart = np.flatnonzero(((matched - first) ** 2).sum(axis=1) > least)
        single = np.arange(len(first)) == apart[:, None]
        if len(apart) < 2:
            return cls(matched, single, np.empty((0, 2), np.int64))
        mergers = linkage(0.5 * (first + matched)[apart], "single")[:, :2].astype(np.int64)
        groups = list(single)
        for left, right in mergers.tolist():
            groups.append(groups[left] | groups[right])
        return cls(matched, np.array(groups), mergers)

    def taken(self, first: Array, groups: Marks) -> Array:
        """The first clustering with these groups from the other."""
        return np.where(groups[:, :, None], self.matched, first)

    def best(self, saved: Array) -> Marks:
        """The groups that save most in all, no two of which meet; the centroids in them."""
        best, chosen = np.maximum(saved, 0.0), self.groups & (saved > 0.0)[:, None]
        for group, (left, right) in enumerate(self.mergers.tolist(), start=len(self.groups) - len(self.mergers)):
            if best[left] + best[right] >= best[group]:
                best[group], chosen[group] = best[left] + best[right], chosen[left] | chosen[right]
        return np.asarray(chosen[-1])
