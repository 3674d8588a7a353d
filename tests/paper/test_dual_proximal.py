"""The proximal bundle: what its state proves, and that unit, topology and inexact nodes do not lead it astray."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from consentroid.core.errors import InvalidInput
from consentroid.paper.dual.bundle_trust import BundleTrust
from consentroid.paper.dual.proximal_bundle import ProximalBundle, optimal_within, with_cuts
from consentroid.paper.dual.registry import dual_named
from dual_problems import PieceDual, climb


def states(problem, rounds, **settings):
    rule = ProximalBundle(problem.topology, **settings)
    state = rule.init(problem.start)
    for _ in range(rounds):
        state = rule.update(state, problem.evaluate(state.lam))
        yield rule, state


def true_value(problem, prices):
    """d, whatever the nodes would have answered."""
    return (problem.costs + np.einsum("nckd,nkd->nc", problem.points, prices)).min(axis=1).sum()


@given(seed=st.integers(0, 10_000), n_nodes=st.integers(2, 5), looseness=st.sampled_from([0.0, 1e-3, 0.1]))
def test_no_prices_beat_what_the_state_proves(seed, n_nodes, looseness):
    problem = PieceDual.random(seed, n_nodes, looseness=looseness)
    rng = np.random.default_rng(seed)
    for _, state in states(problem, 8):
        error, residual = optimal_within(state)
        for size in (0.01, 0.3, 3.0):
            prices = rng.normal(size=state.centre.shape) * size
            prices -= prices.mean(axis=0)
            away = np.linalg.norm(prices - state.centre)
            assert true_value(problem, prices) <= state.bound + error + residual * away + 1e-9
        assert state.bound <= true_value(problem, state.centre) <= state.level + 1e-9


@given(seed=st.integers(0, 10_000), n_nodes=st.integers(2, 6))
def test_it_ends_with_a_proof_that_nothing_is_left(seed, n_nodes):
    problem = PieceDual.random(seed, n_nodes)
    tolerance = 1e-4 * problem.optimum
    ended = [state for rule, state in states(problem, 60) if rule.exhausted(state, tolerance)]
    assert ended
    assert problem.optimum - ended[0].bound <= tolerance


@given(seed=st.integers(0, 10_000))
def test_the_primal_point_agrees_and_costs_the_optimum_at_the_end(seed):
    problem = PieceDual.random(seed, 3)
    *_, (_, state) = states(problem, 60)
    np.testing.assert_allclose(state.primal, np.broadcast_to(state.primal.mean(axis=0), state.primal.shape), atol=1e-3)
    assert state.bound + state.error == pytest.approx(problem.optimum, abs=1e-3)


def test_the_bound_of_the_centre_never_falls_and_only_serious_steps_move_it():
    previous = None
    for _, state in states(PieceDual.random(3, 4), 30):
        if previous is not None:
            assert state.bound >= previous.bound
            assert (state.streak > 0) == (state.bound > previous.bound)
            if state.streak < 0:
                np.testing.assert_array_equal(state.centre, previous.centre)
        previous = state


@pytest.mark.parametrize("scale", [1e-5, 1e5])
def test_the_unit_of_length_changes_no_step(scale):
    one, _ = climb(*rule_and_problem(PieceDual.random(4, 4)), 15)
    other, _ = climb(*rule_and_problem(PieceDual.random(4, 4, scale=scale)), 15)
    np.testing.assert_allclose(other / scale**2, one, rtol=1e-4)


@pytest.mark.parametrize("kind", ["ring", "star", "complete"])
def test_the_topology_changes_no_bound(kind):
    """The master works on prices; the graph only carries them."""
    line, _ = climb(*rule_and_problem(PieceDual.random(5, 4)), 15)
    other, _ = climb(*rule_and_problem(PieceDual.random(5, 4, kind=kind)), 15)
    np.testing.assert_allclose(other, line, atol=1e-6)


def rule_and_problem(problem):
    return ProximalBundle(problem.topology), problem


@given(seed=st.integers(0, 10_000), looseness=st.sampled_from([1e-4, 1e-2]))
def test_inexact_nodes_cost_no_more_than_their_looseness(seed, looseness):
    problem = PieceDual.random(seed, 3, looseness=looseness)
    bounds, _ = climb(*rule_and_problem(problem), 60)
    assert problem.optimum - bounds[-1] <= 6 * looseness + 1e-3 * problem.optimum


@pytest.mark.parametrize("seed", range(3))
def test_cuts_of_single_nodes_need_a_third_of_the_rounds_of_cuts_of_their_sum(seed):
    problem = PieceDual.random(seed, 8, shape=(3, 2), n_pieces=30)

    def rounds(rule):
        bounds, _ = climb(rule, problem, 90)
        return (
            1 + np.argmax(bounds >= problem.optimum * (1 - 1e-3)) if bounds[-1] > problem.optimum * (1 - 1e-3) else 90
        )

    assert 3 * rounds(ProximalBundle(problem.topology)) <= rounds(BundleTrust())


def test_cuts_without_weight_leave_the_bundle():
    problem = PieceDual.random(1, 3, n_pieces=60, shape=(3, 2))
    most = max(len(state.costs) for _, state in states(problem, 60, age=4))
    kept = max(len(state.costs) for _, state in states(problem, 60, age=100))
    assert most < kept


def test_cuts_at_points_all_nodes_know_bound_the_model_by_their_cost():
    """What candidates cost at each node is a cut as well; together they cap the model at the incumbent's cost."""
    problem = PieceDual.random(2, 3)
    rule = ProximalBundle(problem.topology, first=100.0)
    state = rule.init(problem.start)
    at = problem.evaluate(state.lam)
    plain = rule.update(state, at)
    capped = rule.update(with_cuts(state, np.arange(3), problem.costs[:, 0], problem.points[:, 0]), at)
    incumbent = problem.costs[:, 0].sum()
    assert plain.bound + plain.model_gap > incumbent
    assert capped.bound + capped.model_gap <= incumbent + 1e-9


def test_rows_that_cost_nothing_still_give_a_first_step():
    """d(0) = 0 where every node has at most K rows: there is no value to measure the first step by."""
    problem = PieceDual.random(0, 2)
    free = problem.costs.copy()
    free[np.arange(2), free.argmin(axis=1)] = 0.0
    problem = dataclasses.replace(problem, costs=free)
    bounds, state = climb(*rule_and_problem(problem), 40)
    assert bounds[0] == 0.0
    assert state.proximity > 0.0
    assert bounds[-1] == pytest.approx(problem.optimum, abs=1e-4)


def test_a_round_without_any_proof_does_not_poison_the_next():
    """A node that ran out of time at once may have no bound at all; its cut is still valid."""
    problem = PieceDual.random(0, 3)
    rule = ProximalBundle(problem.topology)
    state = rule.init(problem.start)
    state = rule.update(state, dataclasses.replace(problem.evaluate(state.lam), bound=-np.inf))
    assert not rule.exhausted(state, 1e6)
    for _ in range(30):
        state = rule.update(state, problem.evaluate(state.lam))
    assert state.bound == pytest.approx(problem.optimum, abs=1e-4)


def test_it_asks_for_the_topology():
    with pytest.raises(InvalidInput, match="topology"):
        dual_named("proximal")
