"""Axes in part: the bounds add up, are true, and are certified; which bound it is, is said."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from consentroid.certificate.document import Certificate
from consentroid.core.errors import CertificateInvalid
from consentroid.core.problem import Problem
from consentroid.core.result import StopReason
from consentroid.fitting import fit, run
from consentroid.rowprices import engine, proof, session
from consentroid.rowprices.floors import floors, loss_of
from consentroid.site.worker import SiteWorker
from consentroid.transport.checked import CheckedTransport
from consentroid.transport.inprocess import InProcessTransport
from consentroid.verify import verify
from oracle import clustering_optimum


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch, without_pairs: None) -> None:
    """The search of all axes is given up as soon as it begins."""
    monkeypatch.setattr(engine, "SEARCH_UNTIL", 0.0)
    monkeypatch.setattr(engine, "SEARCH_FOR", -1.0)
    monkeypatch.setattr(session, "NEARLY", -1.0)
    monkeypatch.setattr(session, "PART", -1.0)


def sites_of(x: np.ndarray, n: int) -> dict[str, np.ndarray]:
    return {f"s{i}": x[i::n] for i in range(n)}


def prices_in(folder: Path, sites: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name: np.load(folder / f"prices-{name}.npz")["prices"] for name in sites}


def blurred(seed: int, n: int = 90, d: int = 6, k: int = 3) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return 4.0 * rng.normal(size=(k, d))[rng.integers(k, size=n)] * (np.arange(d) < 2) + rng.normal(size=(n, d))


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("seed", range(20))
def test_bounds_of_axes_in_part_are_true(seed: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(seed)
    d, k = int(rng.integers(2, 5)), 2
    x = rng.normal(size=(int(rng.integers(5, 9)), d)) * rng.choice([1.0, 0.1, 5.0], size=d)
    x *= 10.0 ** (seed % 5 - 2)
    sites = sites_of(x, 1 + seed % 3)
    result = fit(sites, k, gap=1e-3, time_limit=20.0, folder=tmp_path)
    optimum = clustering_optimum(x, np.ones(len(x)), k)
    assert 0.0 < Fraction(result.lower_bound) <= optimum <= Fraction(result.upper_bound)
    report = verify(result.certificate, sites, prices_in(tmp_path, sites))
    assert report.verified
    assert report.lower_bound == pytest.approx(result.lower_bound, rel=1e-8)
    assert Fraction(report.lower_bound) <= optimum


@pytest.mark.usefixtures("impatient")
def test_it_climbs_from_the_spectrum_to_a_proof(tmp_path: Path) -> None:
    x = blurred(1)
    sites = sites_of(x, 3)
    result = fit(sites, 3, gap=1e-3, time_limit=60.0, folder=tmp_path)
    assert result.bound_from == "row prices and spectrum"
    assert result.stop_reason is StopReason.GAP
    assert result.gap <= 1e-3
    assert result.regions is None
    patient = fit(sites, 3, gap=1e-3, init=result.centroids)
    assert result.lower_bound <= patient.upper_bound
    certificate = result.certificate
    assert certificate is not None
    assert certificate.rest is not None
    report = verify(certificate, sites, prices_in(tmp_path, sites))
    assert report.verified
    assert report.gap <= 1e-3 * (1 + 1e-6)
    for name in sites:  # the others' moments are taken as claimed
        part = verify(certificate, {name: sites[name]}, prices_in(tmp_path, sites))
        assert part.conditional_bound == pytest.approx(result.lower_bound, rel=1e-8)
        assert not part.verified


@pytest.mark.usefixtures("impatient")
def test_the_spectrum_alone_where_nothing_else_was_in_time(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("consentroid.rowprices.attempts.floors", lambda *_: iter(()))
    x = blurred(2)
    sites = sites_of(x, 2)
    result = fit(sites, 3, gap=1e-4, time_limit=60.0, folder=tmp_path)
    assert result.bound_from == "spectrum"
    assert result.stop_reason is StopReason.TIME_LIMIT
    assert result.lower_bound == pytest.approx(result.spectral_bound, rel=1e-9)
    centred = x - x.mean(axis=0)
    expected = np.linalg.eigvalsh(centred.T @ centred)[: x.shape[1] - 2].sum()
    assert result.lower_bound == pytest.approx(expected, rel=1e-9)
    assert verify(result.certificate, sites, prices_in(tmp_path, sites)).verified


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("what", ["bound", "moments", "no moments", "no rest", "basis", "lower"])
def test_forged_rests_are_refuted(what: str, tmp_path: Path) -> None:
    x = blurred(3)
    sites = sites_of(x, 2)
    certificate = fit(sites, 3, gap=1e-2, time_limit=60.0, folder=tmp_path).certificate
    assert certificate is not None
    rest, prices = certificate.rest, prices_in(tmp_path, sites)
    assert rest is not None
    assert rest.moments is not None
    more = 1e-6 * certificate.upper
    higher = replace(certificate, lower=certificate.lower + more)
    higher = replace(higher, gap=(higher.upper - higher.lower) / higher.upper)
    forged: dict[str, Certificate] = {
        "bound": replace(certificate, rest=replace(rest, bound=rest.bound + more)),
        "moments": replace(certificate, rest=replace(rest, moments=rest.moments * (1.0 + 1e-6))),
        "no moments": replace(higher, rest=replace(rest, moments=None)),
        "no rest": replace(certificate, rest=None),
        "basis": replace(certificate, basis=certificate.basis * 0.9),
        "lower": higher,
    }
    with pytest.raises(CertificateInvalid):
        verify(forged[what], sites, prices)


@pytest.mark.parametrize(("n", "d", "k"), [(60_000, 8, 5), (6_000, 30, 4)])
def test_out_of_time_there_is_the_spectrum(n: int, d: int, k: int, tmp_path: Path) -> None:
    """Rows so many that prices are learnt on groups; and a rounding that must not grow with rows and features."""
    x = np.random.default_rng(0).normal(size=(n, d))
    result = fit({"a": x}, k, time_limit=1e-3, folder=tmp_path)
    assert result.bound_from == "spectrum"
    assert 0.5 < result.lower_bound / result.upper_bound < 1.0
    assert verify(result.certificate, {"a": x}, prices_in(tmp_path, {"a": x})).verified


def test_sites_that_are_checked_may_say_what_underflow_costs() -> None:
    x = np.random.default_rng(0).normal(size=(2000, 12))
    problem = Problem.checked({"a": x[::2], "b": x[1::2]}, 8, None, None)
    transport = CheckedTransport(InProcessTransport([SiteWorker(node) for node in problem.nodes], 1))
    result = run(transport, 8, domain=problem.domain, time_limit=1e-3)
    assert result.bound_from == "spectrum"


def test_a_loose_gap_is_proven_by_the_spectrum() -> None:
    x = np.random.default_rng(1).normal(size=(300, 20))
    result = fit({"a": x}, 2, gap=0.3, time_limit=1e-3)
    assert result.bound_from == "spectrum"
    assert result.stop_reason is StopReason.GAP


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("nth", [1, 2, 3])
def test_interrupted_certificates_are_finished(nth: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Sites' price files are those of the certificate that is returned."""
    sites, calls = sites_of(blurred(1), 2), 0
    real = proof._cell

    def interrupted(*arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == nth:
            raise KeyboardInterrupt
        return real(*arguments)

    monkeypatch.setattr(proof, "_cell", interrupted)
    result = fit(sites, 3, gap=1e-6, time_limit=60.0, folder=tmp_path)
    assert result.stop_reason is StopReason.INTERRUPTED
    assert result.lower_bound > 0.0
    assert verify(result.certificate, sites, prices_in(tmp_path, sites)).verified


def test_losses_fall_to_what_is_asked_and_are_the_bounds_shortfall() -> None:
    rng = np.random.default_rng(0)
    scatters = np.sort(rng.uniform(0.0, 10.0, 8))[::-1]
    within = scatters * rng.uniform(0.2, 1.0, 8)
    found = list(floors(scatters, within, 3, 5.0, 0.01))
    assert [loss for _, loss in found] == sorted((loss for _, loss in found), reverse=True)
    assert found[0][1] <= 3.0
    assert found[-1][1] <= 0.01 < found[-2][1]
    for floor, loss in found:
        left_out = np.minimum(scatters, floor)
        spectral = np.sort(left_out)[:6].sum()
        searched = (within * (1.0 - left_out / scatters)).sum()
        assert loss == pytest.approx(within.sum() - searched - spectral, abs=1e-12)
    assert loss_of(math.inf, scatters, within, 9) == pytest.approx(within.sum())


def test_every_floor_leaves_something_to_search() -> None:
    scatters = np.array([4.0, 1.0])
    found = list(floors(scatters, np.array([1.5, 0.75]), 2, 3.0, 1e-3))
    assert found
    assert all(floor < scatters.max() for floor, _ in found)
    assert list(floors(scatters, np.array([0.5, 0.5]), 2, 3.0, 1e-3)) == []  # nothing seems lost
    assert list(floors(np.zeros(2), np.zeros(2), 2, 3.0, 1e-3)) == []
