"""Groups of rows as single points: sums over them are sums over rows, and nothing is proven from them."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from consentroid.core.errors import NodeRefused
from consentroid.fitting import fit
from consentroid.protocol.messages import Claim, Coordinates, Examine, KeepPrices, MakeColumns, MovePrices, StartPrices
from consentroid.rowprices import session
from consentroid.site.blocks import Blocks, neighbours
from consentroid.site.cloud import Cloud, fair_stride
from consentroid.site.prices import PricedRows
from consentroid.verify import verify

CENTROIDS = np.array([[-1.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])


def cloud_of(n: int, seed: int = 0) -> Cloud:
    random = np.random.default_rng(seed)
    y, w = random.normal(size=(n, 3)), random.uniform(0.1, 3.0, n)
    order, starts = neighbours(y)
    return Cloud(y[order], w[order], Blocks.of(y[order], starts))


@pytest.mark.parametrize("n", [1, 2, 31, 32, 33, 1000])
@pytest.mark.parametrize("equal", [False, True])
def test_neighbours_are_all_rows_in_small_blocks(n: int, equal: bool) -> None:
    y = np.zeros((n, 2)) if equal else np.random.default_rng(n).normal(size=(n, 2))
    order, starts = neighbours(y)
    assert sorted(order.tolist()) == list(range(n))
    assert starts[0] == 0
    assert starts[-1] == n
    assert 0 < np.diff(starts).min() <= np.diff(starts).max() <= 32
    blocks = Blocks.of(y[order], starts)
    for b, (first, last) in enumerate(itertools.pairwise(starts)):
        assert (y[order[first:last]] >= blocks.low[b]).all()
        assert (y[order[first:last]] <= blocks.high[b]).all()


@pytest.mark.parametrize("n", [7, 64, 1001])
def test_squared_distances_of_groups_are_those_of_their_rows(n: int) -> None:
    rows = cloud_of(n)
    groups = rows.grouped(4)
    assert groups.w.sum() == pytest.approx(rows.w.sum())
    for m in np.random.default_rng(1).normal(size=(5, 3)) * 2:
        of_rows = rows.w * ((rows.y - m) ** 2).sum(axis=1)
        of_groups = groups.w * ((groups.y - groups.among(m[None])[0]) ** 2).sum(axis=1)
        np.testing.assert_allclose(of_groups, np.add.reduceat(of_rows, np.arange(0, n, 4)), rtol=1e-10)


def test_totals_and_columns_stay_what_they_were_on_groups() -> None:
    random = np.random.default_rng(3)
    rows = PricedRows(random.normal(size=(9001, 3)), random.uniform(0.5, 2.0, 9001))
    rows.locate(Coordinates(np.zeros(3), np.eye(3), 1.0, stride=8))
    assert rows.cloud.stride == 8
    assert len(rows.y) == 1126
    rows.start(StartPrices(0, CENTROIDS))
    columns = rows.make_columns(MakeColumns(0, 0, np.zeros(0, bool), CENTROIDS * 0.7))
    moved = rows.move(MovePrices(1, 0, 0.02, np.array([0.7, 1.2, 0.9])))
    for proving in (
        lambda: rows.examine(
            Examine(1, *np.zeros((2, 1, 3)), np.zeros((1, 3), bool), *np.ones((1, 1)), np.array([1]), np.array([-1]))
        ),
        lambda: rows.claim(
            Claim(1, *np.zeros((2, 1, 3)), np.zeros((1, 3), bool), *np.zeros((3, 0), int), *np.zeros((2, 0)))
        ),
        lambda: rows.keep(KeepPrices(np.array([1])), None),
    ):
        with pytest.raises(NodeRefused, match="carry them over"):
            proving()
    carried = rows.start(StartPrices(2, CENTROIDS, learnt=1))
    assert len(rows.y) == 9001
    assert rows.slots[2].min() >= 0.0
    assert carried.total == pytest.approx(moved.total, rel=1e-9)
    np.testing.assert_allclose(carried.column_prices, moved.column_prices, rtol=1e-9)
    again = rows.make_columns(MakeColumns(2, 2, np.ones(3, bool), np.zeros((0, 3))))
    assert again.overlaps.shape == (0, 3)
    bits = np.unpackbits(rows.columns.bits.view(np.uint8), axis=1, bitorder="little")[:, :9001]
    for c in range(3):
        squared = ((rows.y - 0.7 * CENTROIDS[c]) ** 2).sum(axis=1)
        assert (rows.weights * squared) @ bits[c] == pytest.approx(columns.costs[c])
        assert rows.weights @ bits[c] == pytest.approx(columns.sizes[c])
    with pytest.raises(NodeRefused, match="no groups"):
        rows.start(StartPrices(3, CENTROIDS, learnt=2))


def test_samples_are_nested_and_large() -> None:
    assert [fair_stride(s, 100_000) for s in (-3, 0, 1, 2, 3, 5, 64, 99, 10**9)] == [1, 1, 1, 2, 2, 4, 64, 64, 64]
    assert fair_stride(50, 999) == 1


def test_what_is_learnt_on_groups_ends_in_a_proof_about_rows(tmp_path, monkeypatch) -> None:
    random = np.random.default_rng(5)
    table = random.normal(size=(3, 2))[random.integers(0, 3, 6000)] * 3 + random.normal(size=(6000, 2)) * 0.4
    monkeypatch.setattr(session, "LEARN_GROUPS", 3000)
    result = fit({"one": table[:4000], "two": table[4000:]}, 3, gap=1e-3, folder=tmp_path, regions=False)
    assert result.certified
    prices = {name: tmp_path / f"prices-{name}.npz" for name in ("one", "two")}
    assert verify(result.certificate, {"one": table[:4000], "two": table[4000:]}, prices).verified
    monkeypatch.setattr(session, "LEARN_GROUPS", 10**9)
    whole = fit({"one": table[:4000], "two": table[4000:]}, 3, gap=1e-3, regions=False)
    assert result.upper_bound == pytest.approx(whole.upper_bound, rel=1e-9)


@pytest.mark.parametrize("n", [1001, 1024])
def test_wide_groups_are_not_guessed_with(n: int) -> None:
    rows = cloud_of(n)
    groups = rows.grouped(4)
    dear, cheap = np.full(n, 1e6), np.full(n, 1e-6)
    assert rows.guess(groups, dear)[0] is groups
    some, prices = rows.guess(groups, cheap)
    assert some.y.shape == (-(-n // 4), 3)
    assert prices.shape == some.w.shape
    assert some.w.sum() == pytest.approx(rows.w.sum())
    assert {tuple(row) for row in some.y} <= {tuple(row) for row in rows.y}
