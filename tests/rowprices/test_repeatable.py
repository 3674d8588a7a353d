"""Two runs that end within their limit give the same result, on a quick machine and on a slow one."""

from __future__ import annotations

import time

import numpy as np
import pytest

from consentroid.fitting import fit


class UnevenClock:
    """The true time, stretched by a factor that changes from look to look, as on a machine with other work."""

    def __init__(self, seed: int, most: float) -> None:
        self._random, self._most = np.random.default_rng(seed), most
        self._true, self._shown = time.perf_counter(), 0.0
        self._look = time.perf_counter

    def __call__(self) -> float:
        now = self._look()
        self._shown += (now - self._true) * self._random.uniform(1.0, self._most)
        self._true = now
        return self._shown


@pytest.mark.parametrize(("n", "d", "k", "regions"), [(300, 3, 4, True), (300, 5, 3, True), (50_000, 2, 3, False)])
def test_the_clock_decides_nothing(n: int, d: int, k: int, regions: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(n)
    rows = random.normal(size=(k, d))[random.integers(0, k, n)] + 0.4 * random.normal(size=(n, d))
    sites = {"one": rows[: n // 3], "two": rows[n // 3 :]}
    results = []
    for seed, most in ((0, 1.0), (1, 300.0), (2, 300.0)):
        monkeypatch.setattr("time.perf_counter", UnevenClock(seed, most))
        results.append(fit(sites, k, gap=1e-3, time_limit=1e6, regions=regions))
        monkeypatch.undo()
    first = results[0]
    assert first.certified
    for other in results[1:]:
        np.testing.assert_array_equal(first.centroids, other.centroids)
        assert (first.upper_bound, first.lower_bound) == (other.upper_bound, other.lower_bound)
        assert (first.boxes, first.rounds) == (other.boxes, other.rounds)
