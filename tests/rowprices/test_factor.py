"""One factorisation for many sets of columns, beside solving each set by itself."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.linalg import LinAlgError

from consentroid.rowprices import factor
from consentroid.rowprices.factor import Factor


def alone(quadratic, used, right):
    out = np.zeros(right.shape)
    out[used] = np.linalg.solve(quadratic[np.ix_(used, used)], right[used])
    return out


@pytest.mark.parametrize("seed", range(6))
def test_sets_that_change_step_by_step(seed, monkeypatch):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(120, 260))
    members = rng.random((n, 300)) < 0.15
    quadratic = members.astype(float) @ members.T + 1e-3 * np.eye(n)
    made = []
    monkeypatch.setattr(factor, "cholesky", lambda *a, **k: made.append(1) or np.linalg.cholesky(a[0]))
    solver, used = Factor(quadratic), rng.random(n) < 0.9
    bordered = 0
    for _ in range(12):
        right = rng.normal(size=(n, 2))
        x = solver.solve(used, right)
        bordered += solver.bordered
        np.testing.assert_allclose(x, alone(quadratic, used, right), rtol=1e-7, atol=1e-7 * np.abs(x).max())
        toggled = rng.choice(n, int(rng.integers(1, 12)), replace=False)
        used = used.copy()
        used[toggled] ^= True
    assert bordered >= 6
    assert len(made) == 1 + 12 - bordered  # of no column at first, then only where there is no border


def test_another_set_altogether():
    rng = np.random.default_rng(0)
    quadratic = np.eye(200) + 0.1 * np.ones((200, 200))
    solver, right = Factor(quadratic), rng.normal(size=(200, 1))
    first = np.arange(200) < 120
    for used in (first, ~first, np.zeros(200, bool), first):
        np.testing.assert_allclose(solver.solve(used, right), alone(quadratic, used, right), atol=1e-12)
        assert not solver.bordered


def test_what_cannot_be_factorised_is_told():
    with pytest.raises(LinAlgError):
        Factor(-np.eye(3)).solve(np.ones(3, bool), np.ones((3, 1)))
