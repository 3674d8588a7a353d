"""What is better in another clustering, place by place."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from consentroid.rowprices.grafting import Places, graft
from consentroid.rowprices.incumbents import evaluate
from priced_nodes import Prices


def clusterings(seed: int, k: int = 9, moved: int = 5) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    first = rng.normal(size=(k, 2)) * 5.0
    other = first.copy()
    other[rng.permutation(k)[:moved]] += rng.normal(size=(moved, 2))
    return first, rng.permutation(other)


def test_groups_are_those_of_a_single_linkage() -> None:
    first = np.array([[0.0], [1.0], [5.0], [6.5], [20.0], [40.0]])
    other = first[::-1] + np.array([0.0, 0.1, 0.1, 0.1, 0.1, 0.001])[:, None]  # the first and the last stay
    places = Places.between(first, other, 0.01**2)
    groups = {tuple(np.flatnonzero(group).tolist()) for group in places.groups}
    assert groups == {(1,), (2,), (3,), (4,), (2, 3), (1, 2, 3), (1, 2, 3, 4)}
    taken = places.taken(first, places.groups)
    for group, centroids in zip(places.groups, taken):
        np.testing.assert_array_equal(centroids[~group], first[~group])
        np.testing.assert_allclose(centroids[group], first[group] + 0.1)


@pytest.mark.parametrize("seed", range(20))
def test_the_best_choice_of_groups_is_that_of_all_choices(seed: int) -> None:
    places = Places.between(*clusterings(seed), 1e-9)
    saved = np.random.default_rng(seed).normal(size=len(places.groups))
    chosen, best = places.best(saved), 0.0
    for n in range(1, 6):
        for some in combinations(range(len(saved)), n):
            if places.groups[list(some)].sum(axis=0).max() <= 1:
                best = max(best, saved[list(some)].sum())
    parts = [g for g in range(len(saved)) if not np.any(places.groups[g] & ~chosen)]
    reached = max(
        (saved[list(some)].sum() for n in range(6) for some in combinations(parts, n)
         if np.array_equal(places.groups[list(some)].sum(axis=0), chosen.astype(int))), default=0.0,
    )  # fmt: skip
    assert reached == pytest.approx(best)


def test_clusterings_that_hardly_differ_have_no_groups() -> None:
    first, _ = clusterings(0)
    places = Places.between(first, first[::-1] + 1e-6, 1e-9)
    assert len(places.groups) == 0
    np.testing.assert_array_equal(places.matched, first + 1e-6)


def test_each_of_two_is_better_somewhere() -> None:
    """Three squares of four blobs each, far apart; in each clustering another one is clustered badly."""
    rng = np.random.default_rng(0)
    corners = np.array([[0.0, 0.0], [0.0, 4.0], [4.0, 0.0], [4.0, 4.0]])
    blobs = np.concatenate([corners + at for at in ((0.0, 0.0), (100.0, 0.0), (0.0, 100.0))])
    rows = np.repeat(blobs, 20, axis=0) + 0.1 * rng.normal(size=(240, 2))
    means = rows.reshape(12, 20, 2).mean(axis=1)

    def badly(square: int) -> np.ndarray:  # two centroids in one of its blobs, one between two others
        centroids, at = means.copy(), 4 * square
        centroids[at] = means[at : at + 2].mean(axis=0)
        centroids[at + 1] = means[at + 2] + 0.05
        return centroids

    session = Prices({"a": rows[::2], "b": rows[1::2]}, 12).session
    session.centroids, session.upper = None, np.inf
    evaluate(session, badly(0)[None])
    before = session.upper
    graft(session, rng.permutation(badly(1))[None], np.eye(2))
    best = float(((rows - np.repeat(means, 20, axis=0)) ** 2).sum())
    assert session.upper == pytest.approx(best, rel=1e-9)
    assert before > 20.0 * best
