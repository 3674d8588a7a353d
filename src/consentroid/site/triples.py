"""Triples of a site's own rows and their fees (`kernels/triples.py`): which there are, which columns pay them.

To the master a triple is one more row, of weight w̄ and price −σ (fee φ = w̄ σ), which a column serves if it has two or
more of the three rows, and which may be served less than once: σ = max(0, σ̂ + τ (Σ z − 1)). So all that a coordinator
is told are sums as before, in which triples count beside rows; which rows they are stays here.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..core.arrays import Array
from ..core.search import PARTLY
from ..protocol.messages import ColumnSums, MakeColumns
from .columns import ColumnSets
from .kernels.triples import most_violated, two_or_more
from .parallel import Pool, in_parallel

MOST_ROWS = 20_000  # of a site that looks for triples: with more, no few rows matter
MOST_PATTERNS = 4_000  # sets of columns that rows are in, which are compared by pairs
LEAST = 0.05  # by which the mixture must violate a triple
MOST_COLUMNS = 4_000  # the heaviest
MOST_SERVED = 2.0  # Σ z of a row, which a master serves about once: no other mixture keeps a site busy for long
OFTEN = 2  # triples at a time with rows that are in the same columns
Bits = NDArray[np.uint64]


def where_two_gain(y: Array, prices: Array) -> tuple[Array, Array]:
    """Centres of triples (T, 3, D), and the squared distance from them beyond which at most one row gains."""
    centres = y.mean(axis=1)
    reach = np.sqrt(((y - centres[:, None]) ** 2).sum(axis=2)) + np.sqrt(prices)
    return centres, np.sort(reach, axis=1)[:, 1] ** 2 * (1.0 + 1e-12)


class Triples:
    def __init__(self, weights: Array, pool: Pool) -> None:
        self.rows = np.empty((0, 3), np.int64)
        self.columns = ColumnSets(np.empty(0), pool)  # which of them have two or more of the rows
        self.weight = float(weights.mean()) if len(weights) else 0.0  # of each triple, beside those of rows
        self.n_rows, self.pool = len(weights), pool
        self.slots: dict[int, Array] = {}

    def __len__(self) -> int:
        return len(self.rows)

    # ------------------------------------------------------------------ prices

    def prices(self, slot: int) -> Array:
        """σ of all triples; those found since the slot was filled cost nothing in it."""
        known = self.slots.get(slot, np.empty(0))
        return np.concatenate([known, np.zeros(len(self) - len(known))])

    def fees(self, slot: int) -> Array:
        return self.weight * self.prices(slot)

    def moved(self, centre: int, z: Array, tau: float) -> Array:
        """σ = max(0, σ̂ + τ (Σ z − 1)), a row's rule with the opposite sign."""
        return self.columns.moved(self.prices(centre), z, -tau) if len(self) else np.empty(0)

    def paid(self, slot: int) -> Array:
        """Σ φ of the triples of which each column has two or more rows; of no column, if there are no triples."""
        return self.columns.prices(self.prices(slot))

    def paying(self, slot: int) -> tuple[NDArray[np.int64], Array]:
        """Rows and fees of the triples that cost something."""
        fees = self.fees(slot)
        return self.rows[fees > 0.0], fees[fees > 0.0]

    # ------------------------------------------------------------------ columns

    def added_to(self, made: ColumnSums, request: MakeColumns, bits: Bits) -> ColumnSums:
        """Sums over rows of the new columns, the last of `bits`, with the triples that these serve."""
        n = len(request.points)
        new = self.columns.room_for(request.kept, n)
        self._count(bits[len(bits) - n :], self.rows, new)
        overlaps, last = self.columns.overlaps(n), len(bits) - n
        return ColumnSums(
            made.costs,
            made.sizes + np.diag(overlaps[:, last:]),
            made.overlaps + overlaps,
            np.maximum(made.prices - self.paid(request.slot)[last:], 0.0),  # at other prices a set may not be worth it
            np.maximum(made.centre_prices - self.paid(request.centre)[last:], 0.0),
        )

    def find(self, z: Array, most: int, bits: Bits) -> Array:
        """Add triples that the columns with rows `bits`, mixed by z, violate; their overlaps of all columns, (S, S)."""
        new = self._violated(z, most, bits)
        if len(new) == 0:
            return np.zeros((len(bits), len(bits)))
        self.add(new, bits)
        return self._served(new, bits).overlaps(len(bits))

    def add(self, new: NDArray[np.int64], bits: Bits) -> None:
        rows = np.concatenate([self.rows, new])
        self.rows, self.columns = rows, self._served(rows, bits)

    def _served(self, triples: NDArray[np.int64], bits: Bits) -> ColumnSets:
        """Columns with rows `bits` as sets of triples."""
        served = ColumnSets(np.full(len(triples), self.weight), self.pool)
        self._count(bits, triples, served.room_for(np.zeros(0, np.bool_), len(bits)))
        return served

    def _count(self, bits: Bits, triples: NDArray[np.int64], out: Bits) -> None:
        in_parallel(lambda a, b: two_or_more(bits, triples, a, b, out), len(bits), self.pool, 8 * bits.size)

    def _violated(self, z: Array, most: int, bits: Bits) -> NDArray[np.int64]:
        """Rows of new triples, the most violated first; no row is in two."""
        used = np.flatnonzero((z > PARTLY) & (z < 1.0 - PARTLY))
        used = np.sort(used[np.argsort(-z[used], kind="stable")[:MOST_COLUMNS]])
        if self.n_rows > MOST_ROWS or len(used) < 3 or most < 1:
            return np.empty((0, 3), np.int64)
        members = np.unpackbits(bits[used].view(np.uint8), axis=1, bitorder="little")[:, : self.n_rows].T
        free = np.ones(self.n_rows, np.bool_)
        free[self.rows.ravel()] = False
        rows = np.flatnonzero(
            free & (members.sum(axis=1) >= 2) & (np.einsum("jc,c->j", members, z[used]) <= MOST_SERVED)
        )
        patterns, of_row, counts = np.unique(members[rows], axis=0, return_inverse=True, return_counts=True)
        if len(patterns) > MOST_PATTERNS:  # those of most rows
            common = np.sort(np.argsort(-counts, kind="stable")[:MOST_PATTERNS])
            place = np.full(len(patterns), -1)
            place[common] = np.arange(MOST_PATTERNS)
            patterns, of_row = patterns[common], place[of_row.ravel()]
        pairs = (patterns * z[used]) @ patterns.T.astype(float)
        n = len(patterns)
        partners, scores = np.zeros((n, 2), np.int64), np.zeros(n)

        def work(first: int, last: int) -> None:
            most_violated(pairs, patterns.view(np.bool_), z[used], first, last, LEAST, partners, scores)

        in_parallel(work, n, self.pool, n**3)
        waiting = [rows[of_row.ravel() == i].tolist() for i in range(n)]
        times, chosen = np.zeros(n, np.int64), list[list[int]]()
        for i in np.argsort(-scores, kind="stable"):
            three = [int(i), *partners[i].tolist()]
            if scores[i] <= 0.0 or len(chosen) >= most:
                break
            if all(times[k] < OFTEN and waiting[k] for k in three):
                times[three] += 1
                chosen.append([waiting[k].pop(len(waiting[k]) // 2) for k in three])
        return np.array(chosen, dtype=np.int64).reshape(-1, 3)
