"""Prices on pairs as a way of proving: when they are tried, what several sites make of it, what a run says of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from consentroid.core.problem import Domain
from consentroid.core.result import Step, StopReason
from consentroid.fitting import fit
from consentroid.rowprices import attempts, engine, pairing
from consentroid.rowprices.pairing import FEW_FEATURES, FEWEST, MOST, MOST_ROWS, rows_together, seconds_needed
from consentroid.rowprices.session import Session
from consentroid.site.pairs import prices as pair_prices
from consentroid.site.pairs import site as site_pairs
from consentroid.verify import verify


def rows(n: int, d: int, seed: int = 0) -> np.ndarray:
    """Three clusters, the same for all seeds."""
    centres = 2.0 * np.random.default_rng(99).normal(size=(3, d))
    return np.random.default_rng(seed).normal(size=(n, d)) + centres[np.arange(n) % 3]


@pytest.mark.usefixtures("pairs_at_once")
def test_one_site_is_proven(tmp_path: Path) -> None:
    data, weights = {"a": rows(60, 12)}, {"a": np.random.default_rng(1).uniform(0.5, 2.0, 60)}
    result = fit(data, 3, weights=weights, gap=1e-3, folder=tmp_path)
    assert result.bound_from == "pair prices"
    assert result.stop_reason is StopReason.GAP
    assert result.gap <= 1e-3
    assert result.phases["pairs"] > 0.0
    assert any(step.phase == "pairs" for step in result.trace)
    report = verify(result.certificate, data, {"a": tmp_path / "prices-a.npz"}, weights)
    assert report.verified
    assert report.lower_bound >= result.lower_bound


@pytest.mark.usefixtures("pairs_at_once")
def test_no_triangles_were_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pair_prices, "BEFORE_TRIANGLES", 60)
    data = {"a": np.random.default_rng(3).normal(size=(50, 8)) + 9.0 * (np.arange(50) % 2)[:, None]}
    result = fit(data, 2, gap=1e-3, folder=tmp_path)
    assert result.bound_from == "pair prices"
    with np.load(tmp_path / "prices-a.npz") as stored:
        assert stored["pair_triangles"].shape == (0, 3)
    assert verify(result.certificate, data, {"a": tmp_path / "prices-a.npz"}).verified


def test_an_interrupt_among_pairs_keeps_what_they_proved_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where they came in the middle of a search."""
    monkeypatch.setattr(engine, "seconds_needed", lambda session: 0.0)
    data, seen = {"a": np.random.default_rng(4).normal(size=(80, 16))}, list[Step]()

    def stop(step: Step) -> None:
        if step.phase == "pairs" and step.lower > 0.0 and not seen:
            seen.append(step)
            raise KeyboardInterrupt

    result = fit(data, 5, gap=1e-6, on_step=stop)
    assert result.stop_reason is StopReason.INTERRUPTED
    assert result.bound_from == "pair prices"
    assert 0.0 < result.lower_bound <= result.upper_bound


@pytest.mark.usefixtures("pairs_at_once")
def test_several_sites_add_up_what_each_proves_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempts.Attempts, "_climb", lambda self, first: None)
    data = {name: rows(40, 10, seed) for seed, name in enumerate("ab")}
    result = fit(data, 3, gap=1e-4, folder=tmp_path)
    alone = sum(fit({name: table}, 3, gap=1e-4).upper_bound for name, table in data.items())
    assert result.bound_from == "pair prices, site by site"
    assert not result.certified
    assert 0.99 * alone < result.lower_bound <= alone
    files = {name: tmp_path / f"prices-{name}.npz" for name in data}
    report = verify(result.certificate, data, files)
    assert report.verified
    one = verify(result.certificate, {"a": data["a"]}, files)
    assert not one.verified
    assert one.conditional_bound == pytest.approx(result.lower_bound, rel=1e-6)
    assert [site.checked for site in one.sites] == [True, False]


def test_a_search_that_ends_needs_no_pairs() -> None:
    assert fit({"a": rows(60, 2)}, 3).bound_from == "row prices"


def test_too_many_rows_have_none() -> None:
    domain = Domain(np.zeros(6), np.ones(6))
    run = Session(None, domain, 3, 1e-4, 60.0, np.random.default_rng(0))  # type: ignore[arg-type]
    too_many = MOST_ROWS**2 // FEWEST + 1  # even in anticlusters
    for counts in ((), (too_many,), (10, too_many)):
        run.site_rows = counts
        assert seconds_needed(run) == np.inf
    run.site_rows = (100,)
    assert 0.0 < seconds_needed(run) < 10.0
    assert MOST_ROWS == site_pairs.MOST_ROWS
    run.domain = Domain(np.zeros(FEW_FEATURES), np.ones(FEW_FEATURES))
    assert seconds_needed(run) == np.inf  # a search does better


def test_anticlusters_have_as_many_rows_as_the_time_allows() -> None:
    domain = Domain(np.zeros(6), np.ones(6))
    counts = [(1_000,), (7_000,), (7_000, 6_000), (50_000,)]
    by_limit = []
    for limit in (60.0, 600.0, np.inf):
        run = Session(None, domain, 3, 1e-4, limit, np.random.default_rng(0))  # type: ignore[arg-type]
        together = []
        for run.site_rows in counts:
            together.append(rows_together(run))
        by_limit.append(together)
    short, long, endless = by_limit
    assert short[0] == long[0] == 1_000  # all rows of a site, where they are few
    assert FEWEST == short[3] < short[2] < short[1] < long[1] == MOST
    assert endless == [1_000, MOST, MOST, MOST]


@pytest.mark.usefixtures("pairs_at_once")
def test_a_site_with_many_rows_is_proven_by_anticlusters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pairing, "rows_together", lambda session: 70)
    data = {"a": rows(200, 8)}
    weights = {"a": np.random.default_rng(2).uniform(0.5, 2.0, 200)}
    result = fit(data, 3, weights=weights, gap=2e-2, folder=tmp_path)
    assert result.bound_from == "pair prices"
    assert result.gap <= 2e-2
    with np.load(tmp_path / "prices-a.npz") as stored:
        assert sorted(stored["pair_sizes"][:, 0].tolist()) == [66, 67, 67]
    report = verify(result.certificate, data, {"a": tmp_path / "prices-a.npz"}, weights)
    assert report.verified
    assert report.lower_bound >= result.lower_bound


@pytest.mark.usefixtures("pairs_at_once")
def test_a_site_that_answers_nothing_of_pairs_costs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site_pairs, "MOST_ROWS", 5)
    result = fit({"a": rows(40, 6)}, 3, gap=1e-2, time_limit=20.0)
    assert result.bound_from != "pair prices"
    assert result.lower_bound > 0.0


@pytest.mark.usefixtures("pairs_at_once")
def test_two_runs_give_the_same() -> None:
    first, second = (fit({"a": rows(50, 11)}, 3, gap=1e-3) for _ in range(2))
    assert first.lower_bound == second.lower_bound
    np.testing.assert_array_equal(first.centroids, second.centroids)
