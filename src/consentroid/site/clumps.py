"""Triples that share rows make a clump: which of its rows a centroid serves is decided for all of them together."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..core.arrays import Array

MOST_TIED = 40  # rows of a clump, among which the best set is sought; the checker refuses more
MOST_SHARED = 64  # triples of a clump


@dataclass(frozen=True)
class Clumps:
    rows: NDArray[np.int64]  # (C, R), −1 where there are fewer
    masks: NDArray[np.int64]  # (C, Q) a bit for each of these rows that a triple has; 0 where there are fewer
    fees: Array  # (C, Q)

    @classmethod
    def of(cls, triples: NDArray[np.int64], fees: Array) -> Clumps:
        """Those of the triples that cost something."""
        triples, fees = triples[fees > 0.0], fees[fees > 0.0]
        clumps = list({id(clump): clump for clump in tied_together(triples.tolist()).values()}.values())
        n_rows = max((len(clump.rows) for clump in clumps), default=0)
        n_triples = max((len(clump.triples) for clump in clumps), default=0)
        rows = np.full((len(clumps), n_rows), -1, np.int64)
        masks, due = np.zeros((len(clumps), n_triples), np.int64), np.zeros((len(clumps), n_triples))
        for c, clump in enumerate(clumps):
            rows[c, : len(clump.rows)] = clump.rows
            place = {row: i for i, row in enumerate(clump.rows)}
            masks[c, : len(clump.triples)] = [sum(1 << place[j] for j in triples[t].tolist()) for t in clump.triples]
            due[c, : len(clump.triples)] = fees[clump.triples]
        return cls(rows, masks, due)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def tied(self) -> NDArray[np.int64]:
        """All their rows."""
        return np.asarray(self.rows[self.rows >= 0])

    def where_two_gain(self, y: Array, prices: Array) -> tuple[Array, Array]:
        """A centre of each clump, and the squared distance from it beyond which at most one row gains."""
        there = self.rows >= 0
        points = y[self.rows]
        centres = np.where(there[:, :, None], points, 0.0).sum(axis=1) / np.maximum(there.sum(axis=1), 1)[:, None]
        reach = np.sqrt(((points - centres[:, None]) ** 2).sum(axis=2)) + np.sqrt(prices[self.rows])
        second = np.sort(np.where(there, reach, 0.0), axis=1)[:, -2] if len(self) else np.empty(0)
        return centres, second**2 * (1.0 + 1e-12)


@dataclass
class Clump:
    rows: list[int]
    triples: list[int]  # their numbers


def tied_together(triples: list[list[int]]) -> dict[int, Clump]:
    """The clump of every row that is in a triple."""
    clump_of: dict[int, Clump] = {}
    for number, three in enumerate(triples):
        parts = list({id(clump_of[j]): clump_of[j] for j in three if j in clump_of}.values())
        whole = joined(parts, three)
        whole.triples.append(number)
        clump_of.update(dict.fromkeys(whole.rows, whole))
    return clump_of


def joined(parts: list[Clump], three: list[int]) -> Clump:
    """One clump of all these and three rows."""
    rows = [row for part in parts for row in part.rows]
    return Clump([*rows, *(j for j in three if j not in rows)], [t for part in parts for t in part.triples])
