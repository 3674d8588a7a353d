"""The private file of a site's prices, and the digest by which a certificate names it."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core.arrays import Array


@dataclass(frozen=True)
class SitePrices:
    """Price vectors of a proof: λ of every row, and fees of triples of rows, named by their places."""

    prices: Array  # (L, n)
    triples: NDArray[np.int64]  # (T, 3)
    fees: Array  # (L, T)

    @classmethod
    def of(cls, prices: Array, triples: NDArray[np.int64], fees: Array) -> SitePrices:
        """Without the triples that cost nothing."""
        cost = fees.any(axis=0) if len(fees) else np.zeros(len(triples), np.bool_)
        return cls(prices, triples[cost], np.ascontiguousarray(fees[:, cost]))

    @classmethod
    def together(cls, parts: Sequence[SitePrices]) -> SitePrices:
        """Rows of all parts, one after the other."""
        before = np.cumsum([0, *(part.prices.shape[1] for part in parts)])
        return cls(
            np.concatenate([part.prices for part in parts], axis=1),
            np.concatenate([part.triples + at for part, at in zip(parts, before, strict=False)]),
            np.concatenate([part.fees for part in parts], axis=1),
        )

    def write(self, path: Path | None) -> None:
        """A file that only its owner may read."""
        if path is not None:
            arrays = {"triples": self.triples, "fees": self.fees} if len(self.triples) else {}
            with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
                np.savez(file, prices=self.prices, **arrays)  # type: ignore[arg-type]

    @property
    def digest(self) -> str:
        """sha256 over shape (two int64) and numbers (float64), little-endian, row by row: of the prices and, if there
        are triples, of these (int64) and their fees."""
        parts: list[tuple[NDArray[Any], str]] = [(self.prices, "<f8")]
        if len(self.triples):
            parts += [(self.triples, "<i8"), (self.fees, "<f8")]
        digest = hashlib.sha256()
        for array, kind in parts:
            digest.update(np.array(array.shape, dtype="<i8").tobytes() + np.ascontiguousarray(array, kind).tobytes())
        return digest.hexdigest()
