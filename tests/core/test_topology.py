"""Prices sum to exactly zero, and the residual is the adjoint of the prices, for every topology."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from consentroid.core.errors import InvalidInput
from consentroid.core.topology import NAMED, Topology, balanced

kinds = st.sampled_from(sorted(NAMED))
seeds = st.integers(0, 2**32 - 1)


@given(kinds, st.integers(1, 7), seeds, st.integers(-30, 30))
def test_prices_sum_to_exactly_zero(kind, n_nodes, seed, exponent):
    topology = Topology.of(kind, n_nodes)
    lam = np.random.default_rng(seed).normal(size=(topology.n_edges, 3, 2)) * 10.0**exponent
    prices = topology.prices(topology.exact(lam))
    for column in prices.reshape(n_nodes, -1).T:
        assert sum(map(Fraction, column.tolist())) == 0


@given(st.integers(1, 9), seeds, st.integers(-30, 30))
def test_balanced_prices_sum_to_exactly_zero_and_stay_close(n_nodes, seed, exponent):
    raw = np.random.default_rng(seed).normal(size=(n_nodes, 2, 3)) * 10.0**exponent
    prices = balanced(raw)
    for column in prices.reshape(n_nodes, -1).T:
        assert sum(map(Fraction, column.tolist())) == 0
    np.testing.assert_allclose(prices, raw - raw.mean(axis=0), atol=1e-9 * 10.0**exponent)


@given(kinds, st.integers(1, 7), seeds)
def test_residual_is_the_adjoint_of_prices(kind, n_nodes, seed):
    topology, random = Topology.of(kind, n_nodes), np.random.default_rng(seed)
    lam = random.normal(size=(topology.n_edges, 2, 2))
    centroids = random.normal(size=(n_nodes, 2, 2))
    assert np.sum(topology.prices(lam) * centroids) == pytest.approx(np.sum(lam * topology.residual(centroids)))


@given(kinds, st.integers(1, 7), seeds)
def test_every_topology_reaches_every_balanced_price(kind, n_nodes, seed):
    topology = Topology.of(kind, n_nodes)
    prices = balanced(np.random.default_rng(seed).normal(size=(n_nodes, 2, 2)))
    np.testing.assert_allclose(topology.prices(topology.lam_for(prices)), prices, atol=1e-9)


def test_the_line_is_the_papers():
    topology = Topology.of("line", 3)
    assert topology.edges == ((0, 1), (1, 2))
    centroids = np.array([[[1.0]], [[4.0]], [[9.0]]])
    assert topology.residual(centroids).ravel().tolist() == [-3.0, -5.0]


@pytest.mark.parametrize(
    ("kind", "n_nodes", "says"),
    [
        ([(0, 1), (2, 3)], 4, r"not connected: nodes \[2, 3\]"),
        ([(0, 0)], 2, r"edge \(0, 0\)"),
        ([(0, 5)], 3, r"edge \(0, 5\)"),
        ("tree", 3, "unknown topology 'tree'"),
        ([], 2, "not connected"),
    ],
)
def test_bad_topologies_are_named(kind, n_nodes, says):
    with pytest.raises(InvalidInput, match=says):
        Topology.of(kind, n_nodes)
