"""Where rows lie changes nothing: splits, restarts, repeated and lost messages, and two runs that are the same."""

from __future__ import annotations

import numpy as np
import pytest

from consentroid.core.problem import Problem
from consentroid.fitting import FitResult, fit, run
from consentroid.protocol.messages import Failure, PriceQuery, Request, Response
from consentroid.site.worker import SiteWorker

RNG = np.random.default_rng(23)
ROWS = RNG.normal(size=(45, 2)) + 4.0 * RNG.integers(0, 3, size=(45, 1)) * [1.0, -0.5]
K = 3


def split(rows: np.ndarray, n_sites: int) -> dict[str, np.ndarray]:
    return {f"site {s}": rows[s::n_sites] for s in range(n_sites)}


class Sites:
    """All sites in this process, with faults."""

    bytes_up = bytes_down = 0

    def __init__(self, rows: dict[str, np.ndarray]) -> None:
        self.data = Problem.checked(rows, K).nodes
        self.workers = [SiteWorker(node) for node in self.data]
        self.asked = 0

    @property
    def nodes(self) -> tuple[str, ...]:
        return tuple(node.name for node in self.data)

    def exchange(self, requests) -> list[Response]:
        self.asked += 1
        return [self.answer(i, request) for i, request in enumerate(requests)]

    def answer(self, i: int, request: Request) -> Response:
        return self.workers[i].answer(request)

    def close(self) -> None:
        pass


class Restarting(Sites):
    """Every so often a site is replaced by a fresh one that has forgotten everything."""

    restarts = 0

    def answer(self, i: int, request: Request) -> Response:
        if isinstance(request, PriceQuery) and self.asked % 17 == 9 and i == self.asked % len(self.workers):
            self.workers[i] = SiteWorker(self.data[i])
            self.restarts += 1
        return super().answer(i, request)


class Repeating(Sites):
    """Every message arrives twice."""

    def answer(self, i: int, request: Request) -> Response:
        super().answer(i, request)
        return super().answer(i, request)


class Losing(Sites):
    """Now and then an answer is lost after the site has done the work."""

    lost = 0

    def answer(self, i: int, request: Request) -> Response:
        response = super().answer(i, request)
        if isinstance(request, PriceQuery) and self.asked % 11 == 5 and i == 0:
            self.lost += 1
            return Failure(self.nodes[i], "lost", request.round)
        return response


def same(one: FitResult, other: FitResult) -> None:
    np.testing.assert_array_equal(one.centroids, other.centroids)
    assert one.lower_bound == other.lower_bound
    assert one.upper_bound == other.upper_bound
    assert one.boxes == other.boxes
    assert one.certificate.fingerprint == other.certificate.fingerprint


@pytest.fixture(scope="module")
def plain() -> FitResult:
    return run(Sites(split(ROWS, 3)), K, gap=1e-6, regions=False)


@pytest.mark.parametrize("n_sites", [1, 2, 5])
@pytest.mark.parametrize("order", [0, 1])
def test_splits_change_bounds_by_rounding_only(plain: FitResult, n_sites: int, order: int) -> None:
    rows = ROWS if order == 0 else ROWS[np.random.default_rng(order).permutation(len(ROWS))]
    result = fit(split(rows, n_sites), K, gap=1e-6, regions=False)
    assert result.certified
    assert result.upper_bound == pytest.approx(plain.upper_bound, rel=1e-12)
    assert result.lower_bound == pytest.approx(plain.lower_bound, rel=1.1e-6)
    np.testing.assert_allclose(result.centroids, plain.centroids, atol=1e-9)


def test_two_runs_are_the_same(plain: FitResult) -> None:
    same(run(Sites(split(ROWS, 3)), K, gap=1e-6, regions=False), plain)


def test_a_site_that_restarts_changes_nothing_but_rounding(plain: FitResult) -> None:
    """Its prices are the same; sums over the in-rows of a box, which it had inherited, are made anew."""
    sites = Restarting(split(ROWS, 3))
    result = run(sites, K, gap=1e-6, regions=False)
    assert sites.restarts > 2
    np.testing.assert_array_equal(result.centroids, plain.centroids)
    assert result.upper_bound == plain.upper_bound
    assert result.lower_bound == pytest.approx(plain.lower_bound, rel=1e-9)
    assert result.boxes == plain.boxes
    assert result.certificate.price_files == plain.certificate.price_files


def test_repeated_messages_change_nothing(plain: FitResult) -> None:
    same(run(Repeating(split(ROWS, 3)), K, gap=1e-6, regions=False), plain)


def test_lost_answers_change_nothing(plain: FitResult) -> None:
    sites = Losing(split(ROWS, 3))
    same(run(sites, K, gap=1e-6, regions=False), plain)
    assert sites.lost > 2
