"""The verifier's own search, cover and exclusion tests, against enumeration in rational numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from consentroid.core.errors import CertificateInvalid
from consentroid.core.symmetry import Symmetry
from consentroid.legacy.verify.arithmetic import check_excluded
from consentroid.legacy.verify.cover import find_hole
from consentroid.legacy.verify.document import Leaf
from consentroid.legacy.verify.node_bounds import Claim, NodeBounds, Refuted
from consentroid.paper.node.base import NodeProblem
from oracle import optimum


def node_problem(seed: int) -> NodeProblem:
    rng = np.random.default_rng(seed)
    n_clusters, n_features = [(2, 1), (3, 1), (2, 2)][rng.integers(3)]
    n_rows = int(rng.integers(1, 4))
    points = np.round(rng.normal(size=(n_rows, n_features)), int(rng.integers(0, 4)))
    lower = rng.uniform(-1.5, 0.5, size=(n_clusters, n_features))
    boxes = np.stack([lower, lower + rng.choice([0.0, 0.3, 2.0], size=lower.shape)])
    price = rng.normal(size=lower.shape) * rng.choice([0.0, 1.0, 5.0])
    rule = Symmetry("order", rng.normal(size=lower.shape)) if rng.random() < 0.7 else Symmetry()
    return NodeProblem(points, rng.choice([1.0, 2.0, 0.5], size=n_rows), price, boxes, rule)


def outcome(problem: NodeProblem, claimed: float) -> Any:
    node = NodeBounds(problem.points, problem.weights, problem.n_clusters, problem.symmetry.references)
    (found,) = node.check([Claim(0, problem.boxes, problem.price, claimed)])
    return found


@given(seed=st.integers(0, 10**6))
def test_search_confirms_the_optimum_and_refutes_more(seed: int) -> None:
    problem = node_problem(seed)
    least = optimum(problem)
    if least is None:
        assert isinstance(outcome(problem, 1e6), Claim)  # nothing obeys the rule: any bound is true
        return
    assert isinstance(outcome(problem, float(np.nextafter(float(least), -np.inf))), Claim)
    more = float(least) + 1e-5 * (1.0 + abs(float(least)))
    refuted = outcome(problem, more)
    assert isinstance(refuted, Refuted)
    assert float(least) - 1e-9 <= refuted.attained < more
    assert problem.symmetry.satisfied(refuted.centroids, 1e-12)
    assert np.all((problem.boxes[0] <= refuted.centroids) & (refuted.centroids <= problem.boxes[1]))


def test_search_stays_exact_far_from_zero() -> None:
    problem = node_problem(3)
    far = 2.0**30
    moved = NodeProblem(
        problem.points + far, problem.weights, problem.price, problem.boxes + far, problem.symmetry
    )
    least = optimum(moved)
    assert least is not None
    assert isinstance(outcome(moved, float(np.nextafter(float(least), -np.inf))), Claim)
    assert isinstance(outcome(moved, float(least) + 1e-4), Refuted)


# ---------------------------------------------------------------------- cover


def guillotine(rng: np.random.Generator, domain: np.ndarray, n_cuts: int) -> list[np.ndarray]:
    parts = [domain]
    for _ in range(n_cuts):
        box = parts.pop(int(rng.integers(len(parts))))
        c = int(rng.integers(box.shape[1]))
        if box[0, c] == box[1, c]:
            parts.append(box)
            continue
        left, right = box.copy(), box.copy()
        left[1, c] = right[0, c] = rng.uniform(*box[:, c])
        parts += [left, right]
    return parts


@given(seed=st.integers(0, 10**6), n_cuts=st.integers(0, 60))
def test_cover_of_cuts_is_complete_and_no_leaf_is_superfluous(seed: int, n_cuts: int) -> None:
    rng = np.random.default_rng(seed)
    domain = np.array([[-1.0, 0.0, 5.0], [1.0, 3.0, 5.0]])  # the last coordinate has no width
    leaves = np.array(guillotine(rng, domain, n_cuts))
    assert find_hole(domain, leaves) is None
    missing = int(rng.integers(len(leaves)))
    hole = find_hole(domain, np.delete(leaves, missing, axis=0))
    assert hole is not None
    assert np.all((leaves[missing, 0] <= hole[0]) & (hole[1] <= leaves[missing, 1]))


def test_cover_without_a_through_cut() -> None:
    """A pinwheel: no face divides it without crossing a leaf."""
    leaves = np.array(
        [[[0, 0], [2, 1]], [[2, 0], [3, 2]], [[1, 2], [3, 3]], [[0, 1], [1, 3]], [[1, 1], [2, 2]]], dtype=float
    )
    domain = np.array([[0.0, 0.0], [3.0, 3.0]])
    assert find_hole(domain, leaves) is None
    np.testing.assert_array_equal(find_hole(domain, leaves[:-1]), leaves[-1])


def test_leaves_that_only_touch_do_not_cover() -> None:
    domain = np.array([[0.0, 0.0], [1.0, 1.0]])
    assert find_hole(domain, np.array([[[0.0, 0.0], [0.5, 1.0]], [[1.0, 0.0], [1.0, 1.0]]])) is not None


# ---------------------------------------------------------------------- exclusion


def test_exclusion_by_one_pair_is_exact() -> None:
    references = np.array([[0.0], [1.0]])
    apart = Leaf(np.array([[[1.0], [0.0]], [[2.0], [np.nextafter(1.0, 0.0)]]]), None, None, np.inf)
    check_excluded(apart, 0, references)
    touching = Leaf(np.array([[[1.0], [0.0]], [[2.0], [1.0]]]), None, None, np.inf)
    with pytest.raises(CertificateInvalid, match="leaf 4: not excluded"):
        check_excluded(touching, 4, references)
    with pytest.raises(CertificateInvalid, match="the rule is 'none'"):
        check_excluded(apart, 0, None)


def test_exclusion_that_needs_several_pairs() -> None:
    """Each pair alone can be obeyed in the boxes, all three together cannot."""
    rng = np.random.default_rng(0)
    found = 0
    for _ in range(1500):
        references = rng.normal(size=(3, 2))
        centre = rng.normal(size=(3, 2))
        boxes = np.stack([centre - rng.uniform(0, 0.7, (3, 2)), centre + rng.uniform(0, 0.7, (3, 2))])
        normals = references[[0, 0, 1]] - references[[1, 2, 2]]
        differences = [boxes[:, [0, 0, 1]], boxes[:, [1, 2, 2]]]
        best = np.maximum(
            normals * (differences[0][1] - differences[1][0]), normals * (differences[0][0] - differences[1][1])
        ).sum(axis=1)
        if best.min() < 0:
            continue
        try:
            check_excluded(Leaf(boxes, None, None, np.inf), 0, references)
        except CertificateInvalid:
            continue
        found += 1
        sample = rng.uniform(boxes[0], boxes[1], size=(2000, 3, 2))
        slack = np.einsum("pd,spd->sp", normals, sample[:, [0, 0, 1]] - sample[:, [1, 2, 2]])
        assert not np.any(np.all(slack >= 0, axis=1))
    assert found > 0
