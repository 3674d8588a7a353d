"""Prices put right where columns turn up that nobody knew."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from test_bundle import linear_optimum, small_rows

import priced_nodes
from consentroid.fitting import fit
from consentroid.rowprices import bundle
from consentroid.rowprices.columns import Columns
from consentroid.rowprices.mending import MOST, Prices, lowered, too_cheap
from consentroid.rowprices.totals import Totals
from consentroid.verify import verify
from row_problems import row_problem


class Known:
    """Columns as sets of rows of some weight, prices of rows, two cells."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.sets, self.weights = rng.random((30, 50)) < 0.2, rng.uniform(0.5, 2.0, 50)
        self.prices, self.cells = rng.uniform(1.0, 3.0, 50), rng.integers(2, size=30)
        self.counts, self.costs = np.array([7.0, 4.0]), rng.uniform(0.0, 3.0, 30)
        self.columns = Columns(Totals(lambda *_: []), 2)
        self.columns.costs, self.columns.sizes = self.costs, self.sets @ self.weights
        self.columns.overlaps = (self.sets * self.weights) @ self.sets.T

    def priced(self, prices: np.ndarray) -> Prices:
        of_columns = self.sets @ (self.weights * prices)
        least = np.zeros(2)
        np.minimum.at(least, self.cells, self.costs - of_columns)
        return Prices(float(self.weights @ prices), of_columns, least)


@pytest.mark.parametrize("seed", range(10))
def test_lowered_prices_are_worth_what_the_programme_says_and_no_others_are_needed(seed: int) -> None:
    known = Known(seed)
    before = known.priced(known.prices)
    reduced = known.costs - before.of_columns
    least = np.array([np.quantile(reduced[known.cells == i], 0.3) for i in range(2)])  # a third turned up late
    which = too_cheap(reduced, known.cells, least)
    assert set(which) == {c for c in range(30) if reduced[c] < least[known.cells[c]]}
    y = lowered(known.columns, which, known.cells[which], reduced[which], least, known.counts)
    assert y is not None
    assert np.all(y >= 0.0)
    assert not np.any(np.delete(y, which))
    after = known.priced(known.prices - y @ known.sets)
    assert np.all(after.least <= least + 1e-9)  # columns known before are where they were, or above
    assert after.value(known.counts) > before.value(known.counts)
    # one column alone: lowering its rows costs what it lacks, once, instead of as often as its cell counts
    deepest = which[np.argmin((reduced - least[known.cells])[which])]
    one = lowered(known.columns, np.array([deepest]), known.cells[[deepest]], reduced[[deepest]], least, known.counts)
    assert one is not None
    lacks = least[known.cells[deepest]] - reduced[deepest]
    assert one[deepest] * known.columns.sizes[deepest] == pytest.approx(lacks)


def test_nothing_to_mend_and_too_much_of_it() -> None:
    known, none = Known(0), np.empty(0, np.int64)
    assert lowered(known.columns, none, none, np.empty(0), np.zeros(2), known.counts) is None
    many = np.zeros(MOST + 1, np.int64)
    assert lowered(known.columns, many, many, np.full(MOST + 1, -1.0), np.zeros(2), known.counts) is None
    for bad in (np.nan, -np.inf):
        assert lowered(known.columns, many[:1], many[:1], np.array([bad]), np.zeros(2), known.counts) is None


@pytest.mark.parametrize("seed", range(8))
def test_mended_prices_reach_the_linear_programme_and_never_pass_it(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundle, "MENDED", 1)
    prices = priced_nodes.Prices(small_rows(seed), 2 + seed % 2)
    found = prices.priced(prices.root, None)
    best = linear_optimum(prices.y, prices.root.cells)
    assert prices.root.bound <= best + 1e-9 * (best + 1e-9 * found.total)
    assert prices.root.bound >= best - 1e-5 * found.total


@pytest.mark.parametrize("seed", range(30))
def test_no_bound_is_above_the_optimum(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundle, "MENDED", 1)
    problem = row_problem(seed)
    result = problem.solved(gap=1e-9, regions=False)
    assert result.lower_bound <= problem.optimum <= result.upper_bound


def test_a_run_that_mends_is_verified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also in nodes of several cells, and where a proof rests on the prices that are mended."""
    x = np.random.default_rng(3).normal(size=(300, 2))
    rows = {f"s{i}": x[i::3] for i in range(3)}
    better, used = list[bool](), bundle.Bundle._mended

    def counted(self: bundle.Bundle, tau: float, z: np.ndarray, prices: Prices, least: np.ndarray) -> Prices | None:
        mended = used(self, tau, z, prices, least)
        better.append(mended is not None)
        return mended

    monkeypatch.setattr(bundle.Bundle, "_mended", counted)
    monkeypatch.setattr(bundle, "NEW_TRIPLES", 0)
    result = fit(rows, 12, gap=1e-5, folder=tmp_path, regions=False)
    assert any(better)
    assert result.certified
    assert result.certificate is not None
    report = verify(result.certificate, rows, {name: tmp_path / f"prices-{name}.npz" for name in rows})
    assert report.verified
    monkeypatch.setattr(bundle, "MENDED", 99)
    without = fit(rows, 12, gap=1e-5, regions=False)
    assert without.certified
    assert without.upper_bound == pytest.approx(result.upper_bound, rel=1e-5)
