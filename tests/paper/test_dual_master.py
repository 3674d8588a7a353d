"""The structured interior-point master against Clarabel, and what must hold of its answer whatever the cuts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from consentroid.paper.dual._clarabel import Block, Cone, solve_conic
from consentroid.paper.dual._master import solve_master


def random_cuts(seed, n_nodes, n_cuts, shape, scale=1.0):
    """Costs and points with one point common to all nodes, and a centre off the origin."""
    rng = np.random.default_rng(seed)
    points = [rng.uniform(-1, 1, (n_cuts, *shape)) for _ in range(n_nodes)]
    for own in points[1:]:
        own[0] = points[0][0]
    costs = [(own**2).sum(axis=(1, 2)) * rng.uniform(0.2, 1.0, n_cuts) for own in points]
    centre = rng.normal(size=(n_nodes, *shape)) * 0.5
    centre -= centre.mean(axis=0)
    return [c * scale**2 for c in costs], [p * scale for p in points], centre * scale


def model(costs, points, prices):
    return sum((c + np.tensordot(p, price, axes=2)).min() for c, p, price in zip(costs, points, prices, strict=True))


def objective(costs, points, centre, proximity, prices):
    return model(costs, points, prices) - proximity / 2 * np.sum((prices - centre) ** 2)


def by_clarabel(costs, points, centre, proximity):
    """(M) as stated, in the variables (p − p̂, v)."""
    n, size = len(costs), centre[0].size
    rows, rhs = [], []
    for i in range(n):
        for cost, point in zip(costs[i], points[i], strict=True):
            row = np.zeros(n * size + n)
            row[i * size : (i + 1) * size], row[n * size + i] = -point.ravel(), 1.0
            rows.append(row)
            rhs.append(cost + np.sum(centre[i] * point))
    zero_sum = np.hstack([np.tile(np.eye(size), n), np.zeros((size, n))])
    quadratic = np.diag(np.concatenate([np.full(n * size, proximity), np.zeros(n)]))
    linear = np.concatenate([np.zeros(n * size), -np.ones(n)])
    blocks = [Block(np.array(rows), np.array(rhs), Cone.NONNEGATIVE), Block(zero_sum, np.zeros(size), Cone.ZERO)]
    x = solve_conic(quadratic, linear, blocks)
    return centre + x[: n * size].reshape(centre.shape)


@given(
    seed=st.integers(0, 10_000),
    n_nodes=st.integers(1, 6),
    n_cuts=st.integers(1, 12),
    shape=st.sampled_from([(1, 1), (2, 2), (3, 2), (4, 3)]),
    proximity=st.sampled_from([1e-2, 0.1, 1.0, 30.0]),
)
def test_master_equals_clarabel(seed, n_nodes, n_cuts, shape, proximity):
    costs, points, centre = random_cuts(seed, n_nodes, n_cuts, shape)
    ours = solve_master(costs, points, centre, proximity)
    theirs = by_clarabel(costs, points, centre, proximity)
    np.testing.assert_allclose(ours.prices, theirs, atol=1e-5)
    best = objective(costs, points, centre, proximity, theirs)
    assert objective(costs, points, centre, proximity, ours.prices) == pytest.approx(best, abs=1e-8)


@given(seed=st.integers(0, 10_000), n_nodes=st.integers(1, 8), proximity=st.floats(1e-3, 1e2))
def test_weights_prove_that_the_prices_are_optimal(seed, n_nodes, proximity):
    """Strong duality: the weighted cuts at the centre plus ‖x − x̄‖²/2u equal the primal objective."""
    costs, points, centre = random_cuts(seed, n_nodes, 7, (2, 2))
    master = solve_master(costs, points, centre, proximity)
    weights = master.weights.reshape(n_nodes, 7)
    np.testing.assert_allclose(weights.sum(axis=1), 1.0)
    assert weights.min() >= 0.0
    np.testing.assert_allclose(master.primal, np.einsum("nc,nckd->nkd", weights, np.array(points)), atol=1e-12)
    np.testing.assert_allclose(master.prices.sum(axis=0), 0.0, atol=1e-12)
    assert master.value == pytest.approx(model(costs, points, master.prices), abs=1e-10)
    heights = np.array(costs) + np.einsum("nckd,nkd->nc", np.array(points), centre)
    apart = np.sum((master.primal - master.primal.mean(axis=0)) ** 2)
    dual = np.sum(weights * heights) + apart / (2 * proximity)
    assert objective(costs, points, centre, proximity, master.prices) == pytest.approx(dual, abs=1e-7)


@given(seed=st.integers(0, 10_000), scale=st.sampled_from([1e-6, 1e-2, 1e3, 1e6]))
def test_the_unit_of_length_does_not_matter(seed, scale):
    """Points and prices scale with the unit, costs with its square; the proximity has no unit."""
    one = solve_master(*random_cuts(seed, 3, 6, (2, 2)), 0.5)
    other = solve_master(*random_cuts(seed, 3, 6, (2, 2), scale), 0.5)
    np.testing.assert_allclose(other.prices, one.prices * scale, atol=1e-6 * scale)


@given(seed=st.integers(0, 10_000), offset=st.sampled_from([1.0, 1e3, 1e6]))
def test_where_the_origin_lies_does_not_matter(seed, offset):
    """Prices sum to zero, so a common shift of all points changes no price."""
    costs, points, centre = random_cuts(seed, 3, 6, (2, 2))
    one = solve_master(costs, points, centre, 0.5)
    shifted = [own + offset for own in points]
    # ⟨p̂_i, shift⟩ moves all cuts of a node alike; only rounding of the points can matter.
    other = solve_master(costs, shifted, centre, 0.5)
    np.testing.assert_allclose(other.prices, one.prices, atol=1e-6 + 1e-10 * offset)
    np.testing.assert_allclose(other.primal, one.primal + offset, atol=1e-4)


def test_repeated_cuts_change_no_price():
    costs, points, centre = random_cuts(1, 3, 5, (2, 2))
    one = solve_master(costs, points, centre, 0.3)
    twice = solve_master([np.tile(c, 2) for c in costs], [np.concatenate([p, p]) for p in points], centre, 0.3)
    np.testing.assert_allclose(twice.prices, one.prices, atol=1e-7)


def test_nodes_may_have_different_numbers_of_cuts():
    costs, points, centre = random_cuts(2, 3, 6, (2, 2))
    costs, points = [c[: i + 1] for i, c in enumerate(costs)], [p[: i + 1] for i, p in enumerate(points)]
    master = solve_master(costs, points, centre, 0.3)
    assert len(master.weights) == 6
    np.testing.assert_allclose(master.prices, by_clarabel(costs, points, centre, 0.3), atol=1e-6)


def test_all_cuts_in_one_point_leave_the_centre_alone():
    costs, points = [np.array([1.0, 0.5]), np.array([2.0])], [np.ones((2, 1, 2)), np.ones((1, 1, 2))]
    centre = np.array([[[0.5, -0.5]], [[-0.5, 0.5]]])
    master = solve_master(costs, points, centre, 0.1)
    np.testing.assert_array_equal(master.prices, centre)
    assert master.value == pytest.approx(2.5)
    np.testing.assert_array_equal(master.weights, [0.0, 1.0, 1.0])


@pytest.mark.parametrize("proximity", [1e-12, 1e-6, 1e6, 1e12])
def test_extreme_proximity_gives_finite_prices_and_a_model_no_worse_than_at_the_centre(proximity):
    costs, points, centre = random_cuts(3, 4, 8, (3, 2))
    master = solve_master(costs, points, centre, proximity)
    assert np.isfinite(master.prices).all()
    assert master.value >= model(costs, points, centre) - 1e-9
