"""The proximal master against Clarabel on the same problem, with all columns at once."""

import clarabel
import numpy as np
import pytest
from scipy import sparse

from consentroid.rowprices import master
from consentroid.rowprices.master import solve_master
from consentroid.rowprices.pivoting import pivot


def random_master(seed, n_columns, n_rows, share, n_cells=1):
    rng = np.random.default_rng(seed)
    members = rng.random((n_columns, n_rows)) < share
    members[:, 0] = True
    weights = rng.uniform(0.5, 2.0, n_rows)
    prices = rng.uniform(0.0, 2.0, n_rows)
    overlaps = (members * weights) @ members.T
    costs = members @ (weights * prices) * rng.uniform(0.4, 1.2, n_columns)
    cells = rng.integers(n_cells, size=n_columns)
    counts = rng.integers(1, 5, size=n_cells).astype(float)
    return overlaps, costs, members @ weights, members @ (weights * prices), (np.arange(n_columns), cells), counts


def objective(z, overlaps, costs, sizes, prices, tau):
    return float(z @ (costs - prices - tau * sizes) + 0.5 * tau * z @ overlaps @ z)


def by_clarabel(overlaps, costs, sizes, prices, places, counts, tau):
    n, n_cells = len(costs), len(counts)
    quadratic = np.zeros((n + n_cells, n + n_cells))
    quadratic[:n, :n] = tau * overlaps + 1e-10 * tau * np.diag(sizes)
    linear = np.concatenate([costs - prices - tau * sizes, np.zeros(n_cells)])
    cells = np.concatenate([places[1], np.arange(n_cells)])
    rows = sparse.csc_matrix((np.ones(n + n_cells), (cells, np.arange(n + n_cells))))
    matrix = sparse.vstack([rows, -sparse.eye(n + n_cells, format="csc")], format="csc")
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    cones = [clarabel.ZeroConeT(n_cells), clarabel.NonnegativeConeT(n + n_cells)]
    right = np.concatenate([counts, np.zeros(n + n_cells)])
    quadratic = sparse.csc_matrix(np.triu(quadratic))
    return np.array(clarabel.DefaultSolver(quadratic, linear, matrix, right, cones, settings).solve().x)[:n]


@pytest.fixture(params=["pivoting", "interior point"])
def way(request, monkeypatch):
    """Both ways to the same mixture."""
    if request.param == "interior point":
        monkeypatch.setattr(master, "pivot", lambda *_: None)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("share", [0.02, 0.3])  # sparse overlaps, dense overlaps
@pytest.mark.parametrize("n_cells", [1, 3])
@pytest.mark.parametrize("seed", range(4))
def test_as_good_as_clarabel(seed, share, n_cells):
    problem = random_master(seed, 120, 60, share, n_cells)
    for tau in (0.01, 1.0):
        ours, theirs = solve_master(*problem, tau), by_clarabel(*problem, tau)
        value, best = (objective(z, *problem[:4], tau) for z in (ours, theirs))
        assert value <= best + 1e-6 * (1.0 + abs(best))
        assert np.all(ours >= 0.0)
        assert np.all(np.bincount(problem[4][1], ours, n_cells) <= problem[5] * (1.0 + 1e-9))


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("seed", range(6))
def test_beginning_with_few_columns_ends_at_the_same_mixture(seed):
    problem = random_master(seed, 150, 80, 0.3)
    likely = np.zeros(150, bool)
    likely[np.random.default_rng(seed).choice(150, 10, replace=False)] = True
    few, every = solve_master(*problem, 0.3, likely), solve_master(*problem, 0.3)
    best = objective(every, *problem[:4], 0.3)
    assert objective(few, *problem[:4], 0.3) <= best + 1e-5 * abs(best)


def test_sifting_is_what_few_likely_columns_take(monkeypatch):
    calls = []
    monkeypatch.setattr(master, "pivot", lambda *_: None)
    sift = master._sift
    monkeypatch.setattr(master, "_sift", lambda *args: calls.append(1) or sift(*args))
    problem = random_master(0, 50, 40, 0.3)
    solve_master(*problem, 0.3, np.arange(50) < 5)
    solve_master(*problem, 0.3, np.arange(50) < 45)
    solve_master(*problem, 0.3)
    assert len(calls) == 1


@pytest.mark.parametrize("seed", range(20))
def test_pivoting_meets_the_conditions_of_an_optimum(seed):
    """From any guess: no weight below 0, no reduced cost below 0, both 0 together; cells are full or worth nothing."""
    rng = np.random.default_rng(seed)
    n, n_cells = int(rng.integers(5, 80)), int(rng.integers(1, 4))
    members = (rng.random((n, 100)) < rng.uniform(0.02, 0.4)).astype(float)
    quadratic = members @ members.T + 1e-6 * np.eye(n)
    linear = -rng.uniform(0.1, 1.0, n) * np.maximum(members.sum(axis=1), 1)
    linear /= np.abs(linear).max()
    cells, counts = rng.integers(n_cells, size=n), rng.integers(1, 9, size=n_cells) / 2.0
    z = pivot(quadratic, linear, cells, counts, rng.random(n) < 0.5)
    assert z is not None
    together = np.bincount(cells, z, n_cells)
    assert np.all(z >= 0.0)
    assert np.all(together <= counts * (1.0 + 1e-9))
    gradient = linear + quadratic @ z
    for cell in range(n_cells):
        inside, full = cells == cell, together[cell] > counts[cell] - 1e-6
        used = inside & (z > 1e-6)
        worth = float(gradient[used].mean()) if full and used.any() else 0.0
        assert worth <= 1e-6
        assert np.all(np.abs(gradient[used] - worth) <= 1e-5)
        assert np.all(gradient[inside] >= worth - 1e-5)


def test_pivoting_gives_up_where_it_cannot_factor():
    assert pivot(np.zeros((2, 2)), np.array([-1.0, -1.0]), np.zeros(2, int), np.array([1.0]), np.ones(2, bool)) is None
    assert pivot(np.full((2, 2), np.nan), np.ones(2), np.zeros(2, int), np.array([1.0]), np.ones(2, bool)) is None
    assert pivot(np.eye(2), np.ones(2), np.zeros(2, int), np.array([1.0]), np.zeros(2, bool)).tolist() == [0.0, 0.0]


def test_no_column_at_all():
    nothing = np.empty(0)
    places = (np.empty(0, np.int64), np.empty(0, np.int64))
    assert len(solve_master(np.empty((0, 0)), nothing, nothing, nothing, places, np.array([3.0]), 1.0)) == 0
