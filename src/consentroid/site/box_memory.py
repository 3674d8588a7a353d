"""What a site remembers of the boxes it has examined: children begin with what their parent left undecided.

Only a short cut: a box whose parent is forgotten looks at all rows, and its sums are as true.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..core.arrays import Array

MOST = 32_000_000  # undecided rows kept for boxes whose children may come; the oldest are forgotten
Places = NDArray[np.int32]


@dataclass(frozen=True)
class Remembered:
    """A box's undecided rows (those of triples that cost a fee apart), in-sums and triples."""

    rows: Places
    sums: Array
    near: Places  # triples with a row that is not out

    @property
    def size(self) -> int:
        return len(self.rows) + len(self.sums) + len(self.near)


class BoxMemory:
    """Boxes under the prices of one slot."""

    def __init__(self) -> None:
        self._boxes: dict[int, Remembered] = {}
        self._size, self.slot = 0, -1

    def forget(self, slot: int = -1) -> None:
        """All of them; those to come are about the prices in `slot`."""
        self._boxes.clear()
        self._size, self.slot = 0, slot

    def get(self, key: int) -> Remembered | None:
        return self._boxes.get(key)

    def keep(self, key: int, box: Remembered) -> None:
        self._boxes[key] = box
        self._size += box.size
        while self._size > MOST and len(self._boxes) > 1:
            self._size -= self._boxes.pop(next(iter(self._boxes))).size


@dataclass(frozen=True)
class Inherited:
    """What several boxes begin with, one after the other; kernels write over all of it."""

    rows: Places
    starts: NDArray[np.int64]  # where each box's rows begin
    lengths: NDArray[np.int64]
    sums: Array
    near: Places
    near_starts: NDArray[np.int64]
    near_lengths: NDArray[np.int64]

    @classmethod
    def of(cls, boxes: Sequence[Remembered]) -> Inherited:
        rows, near = _joined([box.rows for box in boxes]), _joined([box.near for box in boxes])
        return cls(*rows, np.stack([box.sums for box in boxes]), *near)

    def remembered(self, b: int, kept: Places, length: int) -> Remembered:
        """Box b with the rows that it `kept`, as many as `length`, where its parent's were."""
        first, near = self.starts[b], self.near_starts[b]
        close = self.near[near : near + self.near_lengths[b]]
        return Remembered(kept[first : first + length].copy(), self.sums[b], close.copy())


def _joined(parts: Sequence[Places]) -> tuple[Places, NDArray[np.int64], NDArray[np.int64]]:
    """One after the other, where each begins, and how long it is."""
    lengths = np.array([len(part) for part in parts], dtype=np.int64)
    return np.concatenate(parts), np.cumsum(lengths) - lengths, lengths
