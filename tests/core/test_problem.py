"""Bad input is told in one sentence that names the node and the numbers."""

from __future__ import annotations

import numpy as np
import pytest

from consentroid.core.errors import InvalidInput
from consentroid.core.problem import Domain, Problem, clustering_cost

GOOD = {"a": [[0.0, 0.0], [1.0, 0.0]], "b": [[2.0, 2.0]]}


@pytest.mark.parametrize(
    ("rows", "k", "says"),
    [
        ({"a": [[0.0], [float("nan")]]}, 1, ["'a'", "row 2", "nan"]),
        ({"a": [[0.0], [float("inf")]]}, 1, ["'a'", "row 2", "inf"]),
        ({"a": [[0.0]], "b": np.empty((0, 1))}, 1, ["'b'", "no rows"]),
        ({"a": [[0.0, 1.0]], "b": [[0.0]]}, 1, ["'b'", "1 features", "'a'", "2"]),
        (GOOD, 0, ["n_clusters=0", "at least 1"]),
        (GOOD, -3, ["n_clusters=-3"]),
        (GOOD, 4, ["n_clusters=4", "3 distinct rows"]),
        ({"a": [[1.0], [1.0], [1.0]]}, 2, ["n_clusters=2", "1 distinct"]),
        ({"a": [["x"], ["y"]]}, 1, ["'a'", "not numeric"]),
        ({"a": [1.0, 2.0]}, 1, ["'a'", "table"]),
        ({}, 1, ["at least one node"]),
    ],
)
def test_bad_rows_are_named(rows, k, says):
    with pytest.raises(InvalidInput) as error:
        Problem.checked(rows, k)
    for words in says:
        assert words in str(error.value)


def test_rows_outside_a_given_domain_are_named():
    with pytest.raises(InvalidInput, match=r"node 'b': row 1 has 2 in feature 0, outside the domain \[0, 1\]"):
        Problem.checked(GOOD, 2, Domain(np.zeros(2), np.ones(2)))


def test_bad_weights_are_named():
    with pytest.raises(InvalidInput, match=r"'a'.*not negative.*-1"):
        Problem.checked(GOOD, 2, weights={"a": [1.0, -1.0]})
    with pytest.raises(InvalidInput, match="'a': 3 weights for 2 rows"):
        Problem.checked(GOOD, 2, weights={"a": [1.0, 1.0, 1.0]})
    with pytest.raises(InvalidInput, match="all weights are zero"):
        Problem.checked(GOOD, 2, weights={"a": [0.0, 0.0]})


def test_an_empty_domain_is_named():
    with pytest.raises(InvalidInput, match="feature 1 is empty: lower 2 exceeds upper 1"):
        Domain(np.array([0.0, 2.0]), np.array([1.0, 1.0]))


def test_a_node_with_fewer_rows_than_clusters_is_legal():
    problem = Problem.checked(GOOD, 3)
    assert problem.names == ("a", "b")
    assert problem.domain.upper.tolist() == [2.0, 2.0]


def test_cost_by_hand():
    cost = clustering_cost(np.array([[0.0], [1.0], [5.0]]), np.array([1.0, 2.0, 1.0]), np.array([[0.0], [4.0]]))
    assert cost == 0.0 + 2.0 + 1.0
