"""The private file of a site's prices, and the digest by which a certificate names it."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import numpy as np

from ..core.arrays import Array


def write_prices(path: Path | None, prices: Array) -> None:
    """A file that only its owner may read."""
    if path is not None:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            np.savez(file, prices=prices)


def price_digest(prices: Array) -> str:
    """sha256 over the shape (two int64) and the prices (float64), little-endian, row by row."""
    shape = np.array(prices.shape, dtype="<i8").tobytes()
    return hashlib.sha256(shape + np.ascontiguousarray(prices, dtype="<f8").tobytes()).hexdigest()
