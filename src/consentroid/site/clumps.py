"""Triples that share rows make a clump: which of its rows a centroid serves is decided for all of them together."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..core.arrays import Array

MOST_TIED = 8  # rows of a clump, of which every subset is looked at; the checker refuses more
MOST_SHARED = 16  # triples of a clump


@dataclass(frozen=True)
class Clumps:
    rows: NDArray[np.int64]  # (C, MOST_TIED), −1 where there are fewer
    masks: NDArray[np.int64]  # (C, MOST_SHARED) a bit for each row that a triple has; 0 where there are fewer
    numbers: NDArray[np.int64]  # (C, MOST_SHARED) of the triples, −1

    @classmethod
    def of(cls, triples: NDArray[np.int64]) -> Clumps:
        clumps = list({id(clump): clump for clump in tied_together(triples.tolist()).values()}.values())
        rows = np.full((len(clumps), MOST_TIED), -1, np.int64)
        masks, numbers = np.zeros((len(clumps), MOST_SHARED), np.int64), np.full((len(clumps), MOST_SHARED), -1)
        for c, clump in enumerate(clumps):
            rows[c, : len(clump.rows)] = clump.rows
            place = {row: i for i, row in enumerate(clump.rows)}
            masks[c, : len(clump.triples)] = [sum(1 << place[j] for j in triples[t].tolist()) for t in clump.triples]
            numbers[c, : len(clump.triples)] = clump.triples
        return cls(rows, masks, numbers)

    def paying(self, fees: Array) -> FeesOfClumps:
        """Those in which a triple costs something."""
        due = np.append(fees, 0.0)[self.numbers]
        some = due.any(axis=1)
        return FeesOfClumps(self.rows[some], self.masks[some], due[some])


@dataclass(frozen=True)
class FeesOfClumps:
    """What kernels take; fees that are 0 cost nothing."""

    rows: NDArray[np.int64]
    masks: NDArray[np.int64]
    fees: Array

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
        return centres, np.sort(np.where(there, reach, 0.0), axis=1)[:, -2] ** 2 * (1.0 + 1e-12)


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
