"""The front door: what is asked for is checked, and what is answered says what was done."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from clocks import Clock, SlowSites
from consentroid.core.errors import InvalidInput
from consentroid.core.problem import Domain, Problem
from consentroid.core.result import StopReason, relative_gap
from consentroid.fitting import METHODS, fit, run
from consentroid.rowprices import search, session
from consentroid.rowprices.proof import BOXES_PER_EXCHANGE
from consentroid.transport.inprocess import InProcessTransport
from consentroid.verify import verify

RNG = np.random.default_rng(5)
ROWS = {"a": RNG.normal(size=(20, 2)), "b": RNG.normal(size=(15, 2)) + 4.0}


def test_what_a_result_says() -> None:
    result = fit(ROWS, 2, features=("height", "weight"))
    assert result.certified
    assert result.stop_reason is StopReason.GAP
    assert result.method == "row-prices" == METHODS[0]
    assert result.bound_from == "row prices"
    assert result.features == ("height", "weight")
    assert result.gap == relative_gap(result.lower_bound, result.upper_bound)
    assert result.counts.sum() == 35.0
    assert [site.name for site in result.sites] == ["a", "b"]
    assert sum(site.cost for site in result.sites) == pytest.approx(result.upper_bound, rel=1e-12)
    np.testing.assert_allclose(sum(site.counts for site in result.sites), result.counts)
    assert result.centroids.tolist() == sorted(result.centroids.tolist())
    assert result.settings["gap"] == 1e-4
    assert result.bytes_up > 0
    assert result.bytes_down > 0
    assert result.rounds > 0
    lowers = [step.lower for step in result.trace]
    uppers = [step.upper for step in result.trace]
    assert lowers == sorted(lowers)
    assert uppers == sorted(uppers, reverse=True)
    assert sum(result.phases.values()) <= result.seconds * 1.01


def test_price_files_are_private_and_verify(tmp_path: Path) -> None:
    result = fit(ROWS, 2, folder=tmp_path)
    files = {name: tmp_path / f"prices-{name}.npz" for name in ROWS}
    assert all(file.stat().st_mode & 0o777 == 0o600 for file in files.values())
    assert verify(result.certificate, ROWS, files).verified


def test_over_any_transport_the_result_is_the_same() -> None:
    inside = fit(ROWS, 2, regions=False)
    outside = run(InProcessTransport.of(Problem.checked(ROWS, 2)), 2, regions=False)
    np.testing.assert_array_equal(inside.centroids, outside.centroids)
    assert inside.lower_bound == outside.lower_bound


def test_given_centroids_are_the_first_incumbent() -> None:
    best = fit(ROWS, 2)
    again = fit(ROWS, 2, init=best.centroids, seed=9)
    assert again.upper_bound <= best.upper_bound * (1 + 1e-12)
    assert again.certified


@pytest.mark.parametrize("limit", [0.3, 2.0, 10.0])
def test_the_time_limit_is_kept(limit: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a clock that only exchanges move: what comes after the limit is the certificate of what was searched."""
    rng = np.random.default_rng(0)
    rows = {"a": rng.normal(size=(400, 5)), "b": rng.normal(size=(300, 5))}
    clock = Clock()
    for module in (session, search):
        monkeypatch.setattr(module, "time", clock)
    sites = SlowSites.of(Problem.checked(rows, 5))
    sites.clock, sites.per_exchange, sites.ended = clock, 0.05, []
    result = run(sites, 5, gap=1e-9, time_limit=limit)
    sites.close()
    assert result.stop_reason is StopReason.TIME_LIMIT
    late = sum(at > 1000.0 + limit for at in sites.ended)
    assert late <= 17 + math.ceil(result.boxes / BOXES_PER_EXCHANGE)  # the certificate of a spectrum takes five
    assert result.seconds == pytest.approx(0.05 * len(sites.ended), abs=0.11)
    assert 0.0 <= result.lower_bound <= result.upper_bound < math.inf


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "magic"}, "unknown method 'magic'"),
        ({"gap": -0.1}, "gap=-0.1"),
        ({"gap": 1.0}, "gap=1.0"),
        ({"gap": math.nan}, "gap=nan"),
        ({"time_limit": 0.0}, "time_limit=0.0"),
        ({"time_limit": math.nan}, "time_limit=nan"),
        ({"topology": "star"}, "belong to the paper"),
        ({"domain": Domain(np.zeros(2), np.ones(2))}, "outside the domain"),
    ],
)
def test_bad_requests(options: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        fit(ROWS, 2, **options)


@pytest.mark.parametrize("method", ["row-prices", "btm"])
def test_radii_are_those_of_the_rows(method: str) -> None:
    weights = {name: np.linspace(0.5, 2.0, len(rows)) for name, rows in ROWS.items()}
    result = fit(ROWS, 2, weights=weights, method=method, gap=0.01)
    rows, mass = np.concatenate(list(ROWS.values())), np.concatenate(list(weights.values()))
    squared = ((rows[:, None] - result.centroids[None]) ** 2).sum(axis=2)
    labels = squared.argmin(axis=1)
    expected = [np.sqrt(np.average(squared[labels == k, k], weights=mass[labels == k])) for k in range(2)]
    np.testing.assert_allclose(result.radii, expected, rtol=1e-9)
    assert (result.counts * result.radii**2).sum() == pytest.approx(result.upper_bound)
