"""The rows of every column at one site. Columns are named by their place; nothing but sums over them is told."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..core.arrays import Array
from ..core.errors import NodeRefused
from .kernels.members import move_prices, overlaps_of, priced_columns
from .parallel import Pool, in_parallel


class ColumnSets:
    def __init__(self, weights: Array, pool: Pool) -> None:
        self.weights, self.pool = weights, pool
        self.bits = np.zeros((0, -(-len(weights) // 64)), np.uint64)  # (S, words)
        self.n_rows = np.zeros(0)  # (S,) of each column
        self._equal = bool(len(weights)) and bool(weights.min() == weights.max())

    def __len__(self) -> int:
        return len(self.bits)

    def room_for(self, kept: NDArray[np.bool_], n_new: int) -> NDArray[np.uint64]:
        """Keep some columns and put empty ones behind them, which are returned."""
        if len(kept) != len(self):
            raise NodeRefused(f"{len(kept)} marks for {len(self)} columns")
        n_kept = int(kept.sum())
        bits = np.zeros((n_kept + n_new, self.bits.shape[1]), np.uint64)
        np.compress(kept, self.bits, axis=0, out=bits[:n_kept])
        self.bits, self.n_rows = bits, np.concatenate([self.n_rows[kept], np.zeros(n_new)])
        return bits[n_kept:]

    def spread_out(self, stride: int, weights: Array) -> ColumnSets:
        """The same columns of rows, each `stride` of which were one here."""
        out = ColumnSets(weights, self.pool)
        bits = np.zeros((len(self), 8 * out.bits.shape[1]), np.uint8)
        for column, own in zip(bits, self.bits, strict=True):
            marks = np.unpackbits(own.view(np.uint8), bitorder="little")[: len(self.weights)]
            packed = np.packbits(np.repeat(marks, stride)[: len(weights)], bitorder="little")
            column[: len(packed)] = packed
        out.bits, out.n_rows = bits.view(np.uint64), stride * self.n_rows
        return out

    def overlaps(self, n_new: int) -> Array:
        """(Q, S) Σ_{S_c ∩ S_c'} w of the last `n_new` columns with all."""
        out = np.empty((n_new, len(self)))

        def work(first: int, last: int) -> None:
            overlaps_of(self.weights, self._equal, self.bits, len(self) - n_new, first, last, out)

        in_parallel(work, n_new, self.pool, n_new * self.bits.size)
        return out

    def prices(self, prices: Array) -> Array:
        """(S,) Σ_{S_c} w λ."""
        out, weighted = np.empty(len(self)), self.weights * prices
        in_parallel(lambda a, b: priced_columns(weighted, self.bits, a, b, out), len(self), self.pool, self.bits.size)
        return out

    def moved(self, centre: Array, z: Array, tau: float) -> Array:
        """λ = max(0, λ̂ + τ (1 − Σ_{c∋j} z_c))."""
        if len(z) != len(self):
            raise NodeRefused(f"{len(z)} weights for {len(self)} columns")
        out, n_words = np.empty(len(centre)), self.bits.shape[1]
        effort = n_words * int(np.count_nonzero(z)) + len(centre)
        in_parallel(lambda a, b: move_prices(centre, self.bits, z, tau, a, b, out), n_words, self.pool, effort)
        return out
