"""Symmetry rules: every relabelled set of centroids obeys `order`; `nearest` implies it and not the other way."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from consentroid.core.errors import InvalidInput
from consentroid.core.symmetry import Symmetry, align, round_to_grid


@st.composite
def pairs(draw: st.DrawFn, max_clusters: int = 6) -> tuple[np.ndarray, np.ndarray]:
    """Centroids and references of one shape, ties and duplicates included."""
    shape = (draw(st.integers(1, max_clusters)), draw(st.integers(1, 3)))
    scale = draw(st.sampled_from([1e-6, 1.0, 1e6]))
    numbers = st.integers(-3, 3).map(float) | st.floats(-10, 10)
    return tuple(scale * draw(hnp.arrays(float, shape, elements=numbers)) for _ in range(2))  # type: ignore[return-value]


def tolerance(centroids: np.ndarray, references: np.ndarray) -> float:
    """Rounding in the assignment's costs and of the references to their grid."""
    return 1e-10 * (np.abs(centroids).max() + np.abs(references).max()) ** 2


@given(pairs())
def test_aligned_centroids_obey_order(pair: tuple[np.ndarray, np.ndarray]) -> None:
    centroids, references = pair
    assert Symmetry("order", references).satisfied(align(centroids, references), tolerance(*pair))


@given(pairs())
def test_aligning_only_relabels_and_repeats_itself(pair: tuple[np.ndarray, np.ndarray]) -> None:
    centroids, references = pair
    aligned = align(centroids, references)
    assert sorted(map(tuple, aligned)) == sorted(map(tuple, centroids))
    shift = ((aligned - references) ** 2).sum()
    assert ((align(aligned, references) - references) ** 2).sum() == pytest.approx(shift, rel=1e-12, abs=0)


@given(pairs(max_clusters=4))
def test_alignment_is_the_nearest_labelling(pair: tuple[np.ndarray, np.ndarray]) -> None:
    centroids, references = pair
    best = min(
        ((centroids[list(labels)] - references) ** 2).sum() for labels in itertools.permutations(range(len(centroids)))
    )
    assert ((align(centroids, references) - references) ** 2).sum() == pytest.approx(best, rel=1e-12)


@given(pairs())
def test_nearest_implies_order(pair: tuple[np.ndarray, np.ndarray]) -> None:
    centroids, references = pair
    if Symmetry("nearest", references).satisfied(centroids):
        assert Symmetry("order", references).satisfied(centroids, tolerance(*pair))


@given(pairs())
def test_references_obey_both_rules_strictly_and_without_tolerance(pair: tuple[np.ndarray, np.ndarray]) -> None:
    references = pair[1]
    order = Symmetry("order", references)
    assert order.references is not None
    assert order.satisfied(order.references)
    assert Symmetry("nearest", references).satisfied(order.references)


@given(pairs())
def test_normals_are_exact_differences_of_one_set(pair: tuple[np.ndarray, np.ndarray]) -> None:
    """The proof of validity adds normals along cycles; on the grid those sums are exactly zero."""
    symmetry = Symmetry("order", pair[1])
    k = len(pair[1])
    normals = symmetry.normals(k)
    for a, b, c in itertools.product(range(k), repeat=3):
        assert np.array_equal(normals[a, b] + normals[b, c], normals[a, c])


@given(pairs())
def test_the_grid_moves_nothing_far(pair: tuple[np.ndarray, np.ndarray]) -> None:
    values = pair[0]
    rounded = round_to_grid(values)
    assert np.all(np.abs(rounded - values) <= np.abs(values).max() * 2.0**-39)
    assert np.array_equal(round_to_grid(rounded), rounded)


def test_nearest_excludes_every_labelling_where_two_references_share_a_centroid() -> None:
    references = np.array([[0.0], [1.0]])
    for centroids in (np.array([[10.0], [20.0]]), np.array([[20.0], [10.0]])):
        assert not Symmetry("nearest", references).satisfied(centroids)
        assert Symmetry("order", references).satisfied(align(centroids, references))


def test_validity_and_normals_by_rule() -> None:
    references = np.array([[0.0, 1.0], [2.0, 2.0]])
    assert [Symmetry(rule, references).valid for rule in ("order", "none", "nearest")] == [True, True, False]
    assert Symmetry("none", references).references is None
    assert not Symmetry().normals(2).any()
    assert Symmetry("order", references).normals(2)[1, 0].tolist() == [2.0, 1.0]
    assert Symmetry().satisfied(references[::-1])


def test_wrong_rules_are_named() -> None:
    with pytest.raises(InvalidInput, match="unknown symmetry rule 'first'"):
        Symmetry("first")  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="'order' needs reference"):
        Symmetry("order")
