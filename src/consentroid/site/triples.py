"""Triples of a site's own rows and their fees (`kernels/triples.py`): which there are, which columns pay them.

To the master a triple is one more row, of weight w̄ and price −σ (fee φ = w̄ σ), which a column serves if it has two or
more of the three rows, and which may be served less than once: σ = max(0, σ̂ + τ (Σ z − 1)). So all that a coordinator
is told are sums as before, in which triples count beside rows; which rows they are stays here.
"""

from __future__ import annotations

from itertools import product

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from ..core.arrays import Array
from ..core.search import PARTLY
from ..protocol.messages import ColumnSums, MakeColumns
from .clumps import MOST_SHARED, MOST_TIED, Clump, Clumps, joined, tied_together
from .columns import ColumnSets
from .kernels.triples import most_violated, two_or_more
from .parallel import Pool, in_parallel

MOST_ROWS = 20_000  # of a site that looks for triples: with more, no few rows matter
MOST_PATTERNS = 4_000  # sets of columns that rows are in, which are compared by pairs
LEAST, WEAK = 0.05, 0.02  # by which the mixture must violate a triple; if none does, or clusters are many
MANY = 40  # clusters that are mixed: steps are dear then, and triples what is lacking
MOST_COLUMNS = 4_000  # the heaviest
MOST_SERVED = 2.0  # Σ z of a row, which a master serves about once: no other mixture keeps a site busy for long
OFTEN = 2  # triples at a time with rows that are in the same columns
SHARING = 1_000  # rows of a site from which on triples share some: each that a fee keeps out makes boxes more
TRIED = 4  # rows of these that are in a triple already, for one more
Bits = NDArray[np.uint64]


class Triples:
    def __init__(self, weights: Array, pool: Pool) -> None:
        self.rows = np.empty((0, 3), np.int64)
        self.columns = ColumnSets(np.empty(0), pool)  # which of them have two or more of the rows
        self.weight = float(weights.mean()) if len(weights) else 0.0  # of each triple, beside those of rows
        self.n_rows, self.pool = len(weights), pool
        self.slots: dict[int, Array] = {}
        self._clumps: dict[int, tuple[Array | None, Clumps]] = {}  # with the prices that they are made of

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

    def paying(self, slot: int) -> Clumps:
        """Clumps of the triples that cost something."""
        prices = self.slots.get(slot)
        if self._clumps.get(slot, (None,))[0] is not prices or prices is None:
            self._clumps[slot] = prices, Clumps.of(self.rows, self.fees(slot))
        return self._clumps[slot][1]

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
        """Rows of new triples, the most violated first; clumps stay small."""
        used = np.flatnonzero((z > PARTLY) & (z < 1.0 - PARTLY))
        used = np.sort(used[np.argsort(-z[used], kind="stable")[:MOST_COLUMNS]])
        if self.n_rows > MOST_ROWS or len(used) < 3 or most < 1:
            return np.empty((0, 3), np.int64)
        members = np.unpackbits(bits[used].view(np.uint8), axis=1, bitorder="little")[:, : self.n_rows].T
        sharing, free = self.n_rows >= SHARING, np.ones(self.n_rows, np.bool_)
        free[self.rows.ravel()] = sharing
        rows = np.flatnonzero(
            free & (members.sum(axis=1) >= 2) & (np.einsum("jc,c->j", members, z[used]) <= MOST_SERVED)
        )
        _, some, of_row, counts = np.unique(
            np.packbits(members[rows], axis=1), axis=0, return_index=True, return_inverse=True, return_counts=True
        )
        patterns, of_row = members[rows[some]], of_row.ravel()
        if len(patterns) > MOST_PATTERNS:  # those of most rows
            common = np.sort(np.argsort(-counts, kind="stable")[:MOST_PATTERNS])
            place = np.full(len(patterns), -1)
            place[common] = np.arange(MOST_PATTERNS)
            patterns, of_row = patterns[common], place[of_row]
        sparse = csr_array(patterns, dtype=float)
        pairs = (sparse * z[used]).tocsr() @ sparse.T
        n = len(patterns)
        order, ends = np.argsort(of_row, kind="stable"), np.searchsorted(np.sort(of_row), np.arange(n + 1))
        waiting = [rows[order[ends[i] : ends[i + 1]]].tolist() for i in range(n)]
        choice = ChosenTriples(
            self.rows.tolist(), min(most, max(self.n_rows - len(self), 0)), MOST_TIED if sharing else 3
        )
        dense, holds, many = pairs.toarray(), np.ascontiguousarray(patterns).view(np.bool_), z.sum() > MANY - 0.5
        for least in (WEAK,) if many else (LEAST, WEAK):
            if not choice.chosen:
                self._choose(choice, dense, holds, z[used], least, waiting)
        return np.array(choice.chosen, dtype=np.int64).reshape(-1, 3)

    def _choose(
        self, choice: ChosenTriples, pairs: Array, patterns: NDArray[np.bool_], z: Array, least: float,
        waiting: list[list[int]],
    ) -> None:  # fmt: skip
        """From each pattern the triple that is violated most, if by more than `least`."""
        n = len(patterns)
        partners, scores = np.zeros((n, 2), np.int64), np.zeros(n)

        def work(first: int, last: int) -> None:
            most_violated(pairs, patterns, z, first, last, least, partners, scores)

        in_parallel(work, n, self.pool, n**3)
        for i in np.argsort(-scores, kind="stable"):
            if scores[i] <= 0.0 or choice.full:
                break
            choice.take([int(i), *partners[i].tolist()], waiting)


class ChosenTriples:
    """Triples of rows, chosen by their patterns one after the other so that clumps stay small: rows that are in no
    triple first."""

    def __init__(self, known: list[list[int]], most: int, largest: int = MOST_TIED) -> None:
        self._most, self._largest, self.chosen = most, largest, list[list[int]]()
        self._clump_of = tied_together(known)
        self._known = {frozenset(three) for three in known}
        self._times: dict[int, int] = {}

    @property
    def full(self) -> bool:
        return len(self.chosen) >= self._most

    def take(self, patterns: list[int], rows: list[list[int]]) -> None:
        if any(self._times.get(k, 0) >= OFTEN for k in patterns):
            return
        three = self._rows([rows[k] for k in patterns])
        if three is None:
            return
        for k in patterns:
            self._times[k] = self._times.get(k, 0) + 1
        self.chosen.append(three)
        self._known.add(frozenset(three))
        whole = self._joined(three)
        whole.triples.append(-1)
        self._clump_of.update(dict.fromkeys(whole.rows, whole))

    def _rows(self, candidates: list[list[int]]) -> list[int] | None:
        """One of each, if their clump is not too large and they are no triple already."""
        free = [[j for j in some if j not in self._clump_of] for some in candidates]
        # where triples share rows always the first of those that are alike: then they meet in few clumps
        options = [
            [some[0 if self._largest > 3 else len(some) // 2]] if some else every[:TRIED]
            for some, every in zip(free, candidates, strict=True)
        ]
        for three in product(*options):
            whole = self._joined(list(three))
            small = len(whole.rows) <= self._largest and len(whole.triples) < MOST_SHARED
            if small and frozenset(three) not in self._known:
                return list(three)
        return None

    def _joined(self, three: list[int]) -> Clump:
        parts = {id(self._clump_of[j]): self._clump_of[j] for j in three if j in self._clump_of}
        return joined(list(parts.values()), three)
