"""Prices against the linear programme they approximate: set partitioning with all columns, solved by HiGHS."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.optimize import linprog

from consentroid.bench.profile import birds
from consentroid.fitting import fit
from consentroid.rowprices.bundle import Bundle
from consentroid.rowprices.cells import Cell
from priced_nodes import Prices


def linear_optimum(y: np.ndarray, cells: tuple[Cell, ...]) -> float:
    """min Σ c z over all sets of rows: every row served once, a cell's columns at most as often as it counts."""
    costs, rows, owner = [], [], []
    for i, cell in enumerate(cells):
        for chosen in range(1, 1 << len(y)):
            member = np.array([chosen >> j & 1 for j in range(len(y))], dtype=bool)
            point = np.clip(y[member].mean(axis=0), cell.lower, cell.upper)
            costs.append(((y[member] - point) ** 2).sum())
            rows.append(member)
            owner.append(i)
    serves = np.array(rows, dtype=float).T
    uses = np.array([[float(i == k) for i in owner] for k in range(len(cells))])
    counts = [cell.count for cell in cells]
    found = linprog(costs, A_ub=uses, b_ub=counts, A_eq=serves, b_eq=np.ones(len(y)), method="highs")
    return float(found.fun) if found.status == 0 else math.inf


def small_rows(seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(5, 9)), int(rng.integers(1, 3))
    x = rng.normal(size=(n, d)) if seed % 2 else rng.integers(0, 4, size=(n, d)) + 0.01 * rng.normal(size=(n, d))
    return {"a": x[: n // 2], "b": x[n // 2 :]}


@pytest.mark.parametrize("seed", range(16))
def test_the_root_reaches_the_linear_programme_and_never_passes_it(seed: int) -> None:
    prices = Prices(small_rows(seed), 2 + seed % 2)
    root = prices.root
    bundle = prices.priced(root, None)
    best = linear_optimum(prices.y, root.cells)
    size = best + 1e-9 * bundle.total
    assert root.bound <= best + 1e-9 * size
    assert bundle.value <= best + 1e-6 * bundle.total  # what the search has confirmed
    assert root.bound >= best - 1e-5 * bundle.total


@pytest.mark.parametrize("seed", range(8))
def test_nodes_with_cells_and_counts_too(seed: int) -> None:
    prices = Prices(small_rows(seed), 2 + seed % 2)
    rng = np.random.default_rng(seed)
    root, parent = prices.root, prices.priced(prices.root, None)
    axis = int(rng.integers(prices.y.shape[1]))
    least, most = prices.y[:, axis].min(), prices.y[:, axis].max()
    for child in root.branch(0, axis, float(least + rng.uniform(0.3, 0.7) * (most - least))):
        child.bound = 0.0
        bundle = prices.priced(child, parent)
        best = linear_optimum(prices.y, child.cells)
        assert child.bound <= best + 1e-9 * (best + bundle.total)
        if math.isfinite(best):
            assert child.bound >= best - 1e-4 * bundle.total


def test_prices_that_stand_clear_leave_small_regions(monkeypatch: pytest.MonkeyPatch) -> None:
    """The best prices are many; those where other clusters earn clearly less say more about where centroids can lie."""
    rows = birds()
    clear = fit(rows, 3, gap=1e-6)
    monkeypatch.setattr(Bundle, "stand_clear", lambda self, goal: False)
    plain = fit(rows, 3, gap=1e-6)
    assert clear.regions is not None
    assert (clear.regions.upper - clear.regions.lower).max() < 0.01
    assert plain.regions is None or (plain.regions.upper - plain.regions.lower).max() > 0.1


@pytest.mark.parametrize("seed", range(6))
def test_prices_stay_where_none_stand_clear(seed: int) -> None:
    prices = Prices(small_rows(seed), 2)
    bundle = prices.priced(prices.root, None)
    before, value = prices.kept([bundle.centre]), bundle.value
    assert not bundle.stand_clear(math.inf)
    after = prices.kept([bundle.centre])
    for site, old in before.items():
        assert (after[site] == old).all()
    assert bundle.value == pytest.approx(value, rel=1e-9)


@pytest.mark.parametrize("seed", range(8))
def test_prices_that_stand_clear_never_pass_the_linear_programme(seed: int) -> None:
    prices = Prices(small_rows(seed), 2)
    root = prices.root
    bundle = prices.priced(root, None)
    bundle.stand_clear(bundle.value - 1e-3 * bundle.total)
    prices.engine._search_cells(root, bundle, bundle.least - 1e-7 * bundle.total / 2)
    assert root.bound <= linear_optimum(prices.y, root.cells) + 1e-9 * bundle.total
