"""Whole clusterings from fractional ones."""

import numpy as np
import pytest

from consentroid.rowprices.columns import Columns
from consentroid.rowprices.rounding import Known, child, dive, draw, swapped


def planted(seed, n_groups=6, per_group=20, n_wrong=30):
    """Columns: the groups themselves, and random mixtures of rows at a loss; prices that make the groups break even."""
    rng = np.random.default_rng(seed)
    rows = n_groups * per_group
    right = np.kron(np.eye(n_groups), np.ones(per_group)) > 0
    wrong = rng.random((n_wrong, rows)) < 1.0 / n_groups
    members = np.concatenate([wrong[: n_wrong // 2], right, wrong[n_wrong // 2 :]])
    columns = Columns(None, 2)
    columns.idle = np.zeros(len(members), np.int64)
    columns.points = rng.normal(size=(len(members), 2))
    columns.sizes = members.sum(axis=1).astype(float)
    columns.overlaps = members.astype(float) @ members.T
    columns.costs = columns.sizes * np.where(np.isin(np.arange(len(members)) - n_wrong // 2, range(n_groups)), 1.0, 1.2)
    return Known.of(columns, columns.sizes.copy()), np.arange(n_wrong // 2, n_wrong // 2 + n_groups)


@pytest.mark.parametrize("seed", range(5))
def test_a_dive_finds_the_partition_that_the_mixture_hides(seed):
    known, groups = planted(seed)
    rng = np.random.default_rng(seed)
    z = np.full(len(known.sizes), len(groups) / len(known.sizes))
    z[groups] += 0.3
    found = dive(known, np.arange(len(z)), z, len(groups), 0.1, rng)
    assert sorted(found) == sorted(groups)


@pytest.mark.parametrize("n", [1, 2, 7, 30])
def test_as_many_distinct_columns_as_asked_for(n):
    known, _ = planted(1)
    rng, every = np.random.default_rng(0), np.arange(len(known.sizes))
    z = rng.random(len(every))
    for found in (dive(known, every, z, n, 0.1, rng), draw(every, z, n, rng)):
        assert len(set(found.tolist())) == n


def test_a_child_has_each_centroid_from_one_of_its_parents():
    rng = np.random.default_rng(0)
    first = rng.normal(size=(9, 3))
    second = rng.permutation(first + 1e-3 * rng.normal(size=first.shape))
    one = child([(1.0, first), (2.0, second)], rng)
    parents = np.concatenate([first, second])
    assert all((parents == centroid).all(axis=1).any() for centroid in one)
    apart = ((one[:, None] - first[None]) ** 2).sum(axis=2)
    assert sorted(apart.argmin(axis=1)) == list(range(9))  # matched: every place is served once


def test_a_swap_moves_one_centroid_to_a_column():
    rng = np.random.default_rng(0)
    centroids, points = rng.normal(size=(5, 2)), rng.normal(size=(20, 2))
    moved = swapped(centroids, points, rng.random(20), rng)
    changed = (moved != centroids).any(axis=1)
    assert changed.sum() == 1
    assert (points == moved[changed]).all(axis=1).any()
    assert np.array_equal(swapped(centroids, centroids, np.ones(5), rng), centroids)  # nowhere to go
