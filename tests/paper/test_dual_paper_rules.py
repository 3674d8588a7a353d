"""The paper's three rules, held to their equations."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize

from consentroid.paper.dual._bundle import CutBundle
from consentroid.paper.dual.bundle_trust import BundleTrust, direction
from consentroid.paper.dual.quasi_newton import (
    CURVATURE,
    QuasiNewton,
    epigraph_step,
    factor,
    paper_step,
    updated_hessian,
)
from consentroid.paper.dual.subgradient import Subgradient
from dual_problems import PieceDual


def trajectory(rule, problem, rounds):
    """(state before, evaluation, state after) of each round."""
    state = rule.init(problem.start)
    for _ in range(rounds):
        at = problem.evaluate(state.lam)
        after = rule.update(state, at)
        yield state, at, after
        state = after


def random_bundle(seed, n=5, n_cuts=6, scale=1.0):
    """Cuts of a concave piecewise-linear function at random points."""
    rng = np.random.default_rng(seed)
    slopes, heights = rng.normal(size=(9, n)), rng.uniform(0, 1, 9)
    lams = rng.normal(size=(n_cuts, n)) * 0.3
    pieces = lams @ slopes.T + heights
    best = pieces.argmin(axis=1)
    return CutBundle(lams * scale, slopes[best] * scale, pieces[np.arange(n_cuts), best] * scale**2)


def model(bundle, s):
    return np.min(bundle.subgradients @ s + bundle.errors)


def test_subgradient_step_shrinks_with_the_root_of_the_round():
    problem = PieceDual.random(0, 3)
    for t, (_, at, after) in enumerate(trajectory(Subgradient(), problem, 5), start=1):
        np.testing.assert_allclose(after.lam - at.lam, 0.5 / np.sqrt(t) * at.subgradient, atol=1e-15)


@pytest.mark.parametrize("rule", [BundleTrust(), QuasiNewton("paper"), QuasiNewton("epigraph")], ids=lambda r: r.name)
def test_squared_step_stays_in_the_trust_region_and_the_first_fills_it_or_is_newton(rule):
    problem = PieceDual.random(0, 4)
    for t, (_, at, after) in enumerate(trajectory(rule, problem, 30), start=1):
        step = after.lam - at.lam
        assert np.sum(step**2) <= 0.5 / np.sqrt(t) * (1 + 1e-7)
        if t == 1:
            norm = np.linalg.norm(at.subgradient)
            length = np.sqrt(0.5) if rule.name == "btm" else min(np.sqrt(0.5), norm)  # B = −I: Newton's step is g
            np.testing.assert_allclose(step, at.subgradient * length / norm, atol=1e-6)


@pytest.mark.parametrize("rule", [BundleTrust(age=4), QuasiNewton("epigraph", age=4)], ids=lambda r: r.name)
def test_the_bundle_forgets_what_is_older_than_its_age(rule):
    problem = PieceDual.random(0, 3)
    seen = []
    for _, at, after in trajectory(rule, problem, 7):
        seen.append(at.value)
        np.testing.assert_array_equal(after.values, seen[-4:])


def test_errors_make_the_cuts_of_the_bundle_again():
    bundle = random_bundle(3)
    s = np.random.default_rng(0).normal(size=5)
    cuts = bundle.values + np.einsum("ln,ln->l", bundle.subgradients, bundle.lams[-1] + s - bundle.lams)
    np.testing.assert_allclose(bundle.values[-1] + bundle.subgradients @ s + bundle.errors, cuts)
    assert np.all(bundle.errors >= 0)


@given(st.integers(0, 10_000), st.sampled_from([0.05, 0.4, 3.0]), st.sampled_from([1e-3, 1.0, 1e3]))
def test_the_direction_is_a_maximiser_of_the_model_in_the_ball(seed, radius, scale):
    """First-order condition: no random feasible point and no convex combination towards one is better."""
    bundle = random_bundle(seed, scale=scale)
    radius *= scale
    s = direction(bundle, radius)
    assert np.linalg.norm(s) <= radius * (1 + 1e-7)
    rivals = np.random.default_rng(seed).normal(size=(200, 5))
    rivals *= radius / np.linalg.norm(rivals, axis=1)[:, None]
    for rival in rivals:
        for share in (1e-3, 0.1, 1.0):
            assert model(bundle, s + share * (rival - s)) <= model(bundle, s) + 1e-7 * scale * radius


@given(st.integers(0, 10_000), st.sampled_from([0.05, 0.4, 3.0]))
def test_epigraph_step_maximises_the_smaller_of_quadratic_and_cuts(seed, radius):
    bundle = random_bundle(seed)
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(5, 5))
    hessian = -root @ root.T - 0.01 * np.eye(5)

    def smaller(s):
        return min(model(bundle, s), bundle.subgradients[-1] @ s + 0.5 * s @ hessian @ s)

    s = epigraph_step(bundle, hessian, radius)
    assert np.linalg.norm(s) <= radius * (1 + 1e-7)
    for rival in rng.normal(size=(200, 5)):
        rival *= radius / np.linalg.norm(rival)
        for share in (1e-3, 0.1, 1.0):
            assert smaller(s + share * (rival - s)) <= smaller(s) + 1e-7


@given(st.integers(0, 10_000), st.sampled_from([0.05, 0.4, 3.0]))
def test_paper_step_is_feasible_and_no_nearby_feasible_point_is_better(seed, radius):
    """Against an independent local solver (SLSQP) started at the step itself."""
    bundle = random_bundle(seed)
    gradient = bundle.subgradients[-1]
    hessian = -np.diag(np.random.default_rng(seed).uniform(0.1, 4.0, 5))

    def quadratic(s):
        return gradient @ s + 0.5 * s @ hessian @ s

    def slack(s):
        cuts = bundle.subgradients @ s + bundle.errors - quadratic(s)
        return np.append(cuts, radius**2 - s @ s)

    s = paper_step(bundle, hessian, radius)
    assert slack(s).min() >= -1e-12
    assert quadratic(s) >= 0.0
    polished = minimize(
        lambda x: -quadratic(x), s, jac=lambda x: -(gradient + hessian @ x), method="SLSQP",
        constraints={"type": "ineq", "fun": slack}, options={"maxiter": 100, "ftol": 1e-12},
    ).x  # fmt: skip
    if slack(polished).min() >= -1e-9 and np.linalg.norm(polished - s) <= 0.05 * radius:
        assert quadratic(polished) <= quadratic(s) + 1e-3 * max(1e-3, abs(quadratic(s)))


def test_quasi_newton_iterates_of_the_paper_form_respect_trust_region_and_cuts():
    problem = PieceDual.random(2, 4, shape=(3, 2), n_pieces=20)
    for t, (_, at, after) in enumerate(trajectory(QuasiNewton("paper"), problem, 40), start=1):
        bundle = CutBundle(after.lams, after.subgradients, after.values)
        s = (after.lam - at.lam).ravel()
        quadratic = bundle.subgradients[-1] @ s + 0.5 * s @ after.hessian @ s
        assert s @ s <= 0.5 / np.sqrt(t) * (1 + 1e-9)
        assert quadratic <= model(bundle, s) + 1e-9


@given(st.integers(0, 10_000), st.floats(-12, 6), st.floats(-12, 6))
def test_the_guarded_hessian_stays_negative_definite_whatever_comes(seed, log_step, log_turn):
    rng = np.random.default_rng(seed)
    hessian = -np.eye(6)
    for _ in range(10):
        s, y = 10.0**log_step * rng.normal(size=6), 10.0**log_turn * rng.normal(size=6)
        updated = updated_hessian(hessian, s, y)
        assert factor(updated) is not None
        if updated is not hessian:
            assert y @ s <= -CURVATURE * (s @ s)
            np.testing.assert_allclose(updated @ s, y, rtol=1e-4, atol=1e-6 * np.linalg.norm(y))  # secant equation
        hessian = updated


@pytest.mark.parametrize(
    ("s", "y"),
    [
        ([0.0, 0.0], [1.0, 0.0]),  # no step
        ([1.0, 0.0], [0.0, 1.0]),  # no curvature along the step
        ([1.0, 0.0], [1.0, 0.0]),  # convex: an inexact oracle
        ([1.0, 0.0], [-1e-9, 0.0]),  # as good as none
        ([1.0, 0.0], [-1e-3, 1e5]),  # would swamp B
        ([1.0, 0.0], [np.nan, 0.0]),
        ([1e-200, 0.0], [-1e-200, 0.0]),  # the squares vanish
    ],
)
def test_the_guard_leaves_the_hessian_alone(s, y):
    hessian = -np.eye(2)
    assert updated_hessian(hessian, np.array(s), np.array(y)) is hessian


def test_the_update_is_bfgs_where_curvature_is_sound():
    hessian, s, y = -np.diag([1.0, 2.0]), np.array([1.0, 1.0]), np.array([-3.0, -1.0])
    by_hand = (
        np.diag([-1.0, -2.0]) + np.array([[9.0, 3.0], [3.0, 1.0]]) / -4.0 - np.array([[1.0, 2.0], [2.0, 4.0]]) / -3.0
    )
    np.testing.assert_allclose(updated_hessian(hessian, s, y), by_hand)


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("rule", [BundleTrust(), QuasiNewton("paper"), QuasiNewton("epigraph")], ids=lambda r: r.name)
def test_data_of_any_scale_give_finite_steps_in_the_trust_region(rule, scale):
    problem = PieceDual.random(6, 3, scale=scale)
    for t, (_, at, after) in enumerate(trajectory(rule, problem, 20), start=1):
        assert np.isfinite(after.lam).all()
        assert np.sum((after.lam - at.lam) ** 2) <= 0.5 / np.sqrt(t) * (1 + 1e-6)
