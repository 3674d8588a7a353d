"""Searches of one cell with any prices: for tests of judge and search against enumeration."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from consentroid.core.problem import Domain, NodeData
from consentroid.protocol.messages import Coordinates, PriceQuery, PriceReply
from consentroid.rowprices.cells import Cell
from consentroid.rowprices.session import Session
from consentroid.rowprices.totals import Totals
from consentroid.site.guard import Guard
from consentroid.site.worker import SiteWorker
from oracle import cell_minimum

SLOT = 1


class Priced:
    """Rows at some sites, with prices in slot 1, as the engine sees them."""

    def __init__(self, y, w, prices, n_sites: int = 1, least: int = 1) -> None:
        self.y, self.w, self.prices = y, w, prices
        parts = [np.arange(len(y))[s::n_sites] for s in range(n_sites)]
        self.workers = [
            SiteWorker(NodeData.checked(f"s{i}", y[part], w[part]), guard=Guard(least)) for i, part in enumerate(parts)
        ]
        low, high = y.min(axis=0), y.max(axis=0)
        self.root = Cell(low - 1e-9, high + 1e-9, 1)
        self.session = Session(
            Totals(self.ask), Domain(low, high), 1, 1e-6, math.inf, np.random.default_rng(0), n_rows=len(y)
        )
        n_features = y.shape[1]
        self.session.totals.ask(PriceQuery(0, coordinates=Coordinates(np.zeros(n_features), np.eye(n_features), 1.0)))
        for worker, part in zip(self.workers, parts, strict=True):
            inner = worker._prices
            inner.slots[SLOT] = np.ascontiguousarray(prices[part][inner.order])

    def ask(self, query: PriceQuery) -> Sequence[PriceReply]:
        return [worker.answer(query) for worker in self.workers]

    def minimum(self, cell: Cell) -> tuple[Fraction, list[list[Fraction]]]:
        return cell_minimum(self.y, self.w, self.prices, cell.lower, cell.upper)


def random_priced(rng: np.random.Generator, most_rows: int = 7, most_features: int = 3, least: int = 1) -> Priced:
    n, d = int(rng.integers(2, most_rows + 1)), int(rng.integers(1, most_features + 1))
    y = rng.normal(size=(n, d))
    if rng.random() < 0.3:
        y = np.round(2 * y) / 2
    if np.all(y == y[0]):
        y[0, 0] += 1.0
    w = rng.integers(1, 4, n).astype(float)
    prices = rng.exponential(size=n) * 10.0 ** rng.uniform(-1, 1)
    return Priced(y, w, prices, int(rng.integers(1, 3)), least)


def random_cell(rng: np.random.Generator, root: Cell) -> Cell:
    """The root, or a part of it with one to all of its sides inside."""
    low, high = root.lower.copy(), root.upper.copy()
    for d in range(len(low)):
        shares = np.sort(rng.random(2))
        if rng.random() < 0.5:
            low[d] += shares[0] * (root.upper - root.lower)[d]
        if rng.random() < 0.5:
            high[d] = root.lower[d] + max(shares[1], 0.01) * (root.upper - root.lower)[d]
        if high[d] <= low[d]:
            low[d] = root.lower[d]
    return Cell(low, high, 1)
