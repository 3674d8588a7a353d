"""The record of a search: which box was cut where, split where, and closed by what.

Boxes are numbered as they are made; a box has at most one record of what was done with it. `preorder` writes all of it
as the certificate wants it. What a kind means is in docs/certificate.md.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ..core.arrays import Array

SPLIT, STATIONARY, COST, CLOSED, CLOSED_BY_CUT, SHRUNK = 0, 1, 2, 3, 4, 5
Cut = tuple[int, int, int, float, float]  # kind, axis, side, threshold, μ


@dataclass
class SearchTree:
    """Boxes with their bounds; `first_child` is −1 for a leaf, and a box that was only shrunk has one child."""

    lower: list[Array] = field(default_factory=list)
    upper: list[Array] = field(default_factory=list)
    cuts: dict[int, list[Cut]] = field(default_factory=dict)  # used on the box before anything else
    splits: dict[int, tuple[int, float]] = field(default_factory=dict)  # axis and value, of what the cuts left
    children: dict[int, tuple[int, ...]] = field(default_factory=dict)
    closing: dict[int, Cut] = field(default_factory=dict)  # boxes closed by a cut at their own side

    def add(self, lower: Array, upper: Array) -> int:
        self.lower.append(lower)
        self.upper.append(upper)
        return len(self.lower) - 1

    def __len__(self) -> int:
        return len(self.lower)

    def preorder(self) -> Preorder:
        """All records, parents before children, and the boxes on which something is claimed."""
        records: list[tuple[int, int, int, float, float]] = []
        claimed: list[int] = []
        cut_box: list[int] = []
        used: list[Cut] = []
        slab_box: list[int] = []
        slabs: list[Cut] = []
        closed: list[bool] = []
        pending = [0]
        while pending:
            box = pending.pop()
            cuts = self.cuts.get(box, [])
            if cuts:
                records += cuts
                records.append((SHRUNK, 0, 0, 0.0, 0.0))
                cut_box += [len(claimed)] * sum(cut[0] == STATIONARY for cut in cuts)
                used += [cut for cut in cuts if cut[0] == STATIONARY]
                slab_box += [len(claimed)] * sum(cut[0] == COST for cut in cuts)
                slabs += [cut for cut in cuts if cut[0] == COST]
                claimed.append(box)
                closed.append(False)
            if box in self.splits:
                axis, value = self.splits[box]
                records.append((SPLIT, axis, 0, value, 0.0))
            elif box in self.closing:
                _, axis, side, at, mu = self.closing[box]
                records.append((CLOSED_BY_CUT, axis, side, 0.0, mu))
                cut_box.append(len(claimed))
                used.append((STATIONARY, axis, side, at, mu))
                claimed.append(box)
                closed.append(False)
            elif box not in self.children:
                records.append((CLOSED, 0, 0, 0.0, 0.0))
                claimed.append(box)
                closed.append(True)
            pending += reversed(self.children.get(box, ()))
        return Preorder(
            records=Cuts.of(records),
            lower=np.array([self.lower[b] for b in claimed]),
            upper=np.array([self.upper[b] for b in claimed]),
            closed=np.array(closed, dtype=bool),
            cut_box=np.array(cut_box, dtype=np.int64),
            cuts=Cuts.of(used),
            slab_box=np.array(slab_box, dtype=np.int64),
            slabs=Cuts.of(slabs),
        )


@dataclass(frozen=True)
class Cuts:
    """Records or cuts, one array for each of their numbers."""

    kind: NDArray[np.int64]
    axis: NDArray[np.int64]
    side: NDArray[np.int64]
    at: Array
    mu: Array

    @classmethod
    def of(cls, cuts: list[Cut]) -> Cuts:
        table = np.array(cuts, dtype=float).reshape(-1, 5).T.copy()
        kind, axis, side = table[:3].astype(np.int64)
        return cls(kind, axis, side, table[3], table[4])


@dataclass(frozen=True)
class Preorder:
    records: Cuts
    # boxes on which something is claimed, in order
    lower: Array  # (claimed, D)
    upper: Array
    closed: NDArray[np.bool_]  # closed by its own minorant
    # stationarity cuts and cost cuts, each with the index of its box
    cut_box: NDArray[np.int64]
    cuts: Cuts
    slab_box: NDArray[np.int64]
    slabs: Cuts
