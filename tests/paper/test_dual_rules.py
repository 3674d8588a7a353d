"""Every rule × several problems whose optimum is known, and what must hold for every rule."""

from __future__ import annotations

import copy
import dataclasses

import numpy as np
import pytest

from consentroid.core.errors import InvalidInput
from consentroid.paper.dual.registry import METHODS, dual_named
from dual_problems import PieceDual, climb

PROBLEMS = {
    "two nodes": PieceDual.random(0, 2),
    "line of three": PieceDual.random(1, 3),
    "ring of three": PieceDual.random(1, 3, kind="ring"),
    "star of four": PieceDual.random(2, 4, kind="star", shape=(3, 2)),
    "complete graph of four": PieceDual.random(3, 4, kind="complete", shape=(3, 1)),
    "inexact oracle": PieceDual.random(4, 3, looseness=1e-5),
}
# Share of the climb from d(0) to the optimum that may be left after 60 rounds.
LEFT = {"sg": 0.35, "btm": 1e-4, "qnda": 1e-3, "qnda-epigraph": 1e-3, "proximal": 1e-4}


def named(method, problem):
    return dual_named(method, topology=problem.topology)


@pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS)
@pytest.mark.parametrize("method", METHODS)
def test_every_rule_climbs_to_the_optimum_of_every_problem(method, problem):
    bounds, _ = climb(named(method, problem), problem, rounds=60)
    slack = problem.looseness * len(problem.costs)
    assert bounds[-1] <= problem.optimum + 1e-9
    assert problem.optimum - bounds[-1] - slack <= LEFT[method] * (problem.optimum - bounds[0])


@pytest.mark.parametrize("method", METHODS)
def test_an_optimal_start_is_not_left_for_a_worse_end(method):
    """All nodes want the same point: λ = 0 is optimal, the residual is zero and the rule must stay calm."""
    problem = PieceDual.random(0, 3)
    same = dataclasses.replace(problem, costs=problem.costs[:1].repeat(3, 0), points=problem.points[:1].repeat(3, 0))
    bounds, state = climb(named(method, same), same, rounds=3)
    assert bounds[0] == pytest.approx(same.optimum)
    np.testing.assert_allclose(state.lam, 0.0, atol=1e-12)


@pytest.mark.parametrize("method", METHODS)
def test_a_lone_node_has_nothing_to_agree_on(method):
    problem = PieceDual.random(0, 1)
    bounds, state = climb(named(method, problem), problem, rounds=3)
    assert state.lam.shape == (0, 2, 2)
    assert bounds[-1] == problem.costs.min()


@pytest.mark.parametrize("method", METHODS)
def test_relabelled_clusters_and_reordered_nodes_give_relabelled_multipliers(method):
    problem = PieceDual.random(5, 4, shape=(3, 2))
    labels = [2, 0, 1]
    # On a line read from its other end, edge e becomes edge E − 1 − e and changes its sign.
    mirrored = dataclasses.replace(problem, costs=problem.costs[::-1], points=problem.points[::-1][:, :, labels])
    rule = named(method, problem)
    one, other = rule.init(problem.start), rule.init(mirrored.start)
    for _ in range(6):
        one = rule.update(one, problem.evaluate(one.lam))
        other = rule.update(other, mirrored.evaluate(other.lam))
        np.testing.assert_allclose(other.lam, -one.lam[::-1][:, labels], atol=1e-5)


@pytest.mark.parametrize("method", METHODS)
def test_updating_leaves_the_old_state_untouched(method):
    problem = PROBLEMS["line of three"]
    rule = named(method, problem)
    state = rule.update(rule.init(problem.start), problem.evaluate(problem.start))
    before = copy.deepcopy(state)
    at = problem.evaluate(state.lam)
    first, second = rule.update(state, at), rule.update(state, at)
    np.testing.assert_array_equal(first.lam, second.lam)
    for field in dataclasses.fields(state):
        np.testing.assert_array_equal(getattr(state, field.name), getattr(before, field.name))


def test_an_unknown_method_names_the_choices():
    with pytest.raises(InvalidInput, match=r"'newton'.*sg, btm, qnda, qnda-epigraph, proximal"):
        dual_named("newton")


def test_an_unknown_setting_names_the_known_ones():
    with pytest.raises(InvalidInput, match=r"'btm'.*\['omega'\].*alpha, age"):
        dual_named("btm", omega=1.0)


@pytest.mark.parametrize("method", METHODS)
def test_rules_carry_their_name(method):
    assert named(method, PROBLEMS["two nodes"]).name == method
