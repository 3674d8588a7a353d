"""Where a node is branched, and what its own mixture is worth."""

import numpy as np
import pytest

from consentroid.fitting import fit
from consentroid.rowprices.cells import Cell, Node, between_centroids, in_the_middle, most_fractional


def node(*cells: tuple[list[float], list[float], int]) -> Node:
    return Node(tuple(Cell(np.array(lower), np.array(upper), count) for lower, upper, count in cells), 0, 0.0)


ROOT = Cell(np.array([0.0, 0.0]), np.array([8.0, 2.0]), 3)


def test_the_most_fractional_threshold_is_chosen() -> None:
    whole = node(([0.0, 0.0], [8.0, 2.0], 3))
    points = np.array([[1.0, 1.0], [2.0, 1.5], [6.0, 0.5], [7.0, 0.4]])
    choice = most_fractional(whole, points, np.zeros(4, np.int64), np.array([0.5, 1.0, 0.5, 1.0]))
    assert choice is not None
    assert choice[:2] == (0, 0)
    assert 2.0 < choice[2] < 6.0  # 1.5 below, and the widest gap
    assert most_fractional(whole, points, np.zeros(4, np.int64), np.array([1.0, 1.0, 0.0, 1.0])) is None


def test_where_nothing_else_tells_a_place_the_widest_cell_that_counts_is_halved() -> None:
    parts = node(([0.0, 0.0], [4.0, 2.0], 0), ([4.0, 0.0], [8.0, 1.0], 1), ([4.0, 1.0], [8.0, 2.0], 2))
    assert between_centroids(parts, np.array([[5.0, 0.5], [6.0, 1.5], [6.0, 1.5]])) is None
    assert in_the_middle(parts, ROOT) == (1, 0, 6.0)  # half as wide as the root; the first of two
    narrow = node(([3.0, 1.0], [3.0 + 1e-9, 1.0], 3))
    assert in_the_middle(narrow, ROOT) is None


@pytest.mark.parametrize(("seed", "shape", "n_clusters", "digits"), [(1923, (22, 3), 5, 1), (2185, (41, 3), 4, 17)])
def test_a_mixture_that_cells_have_made_a_clustering_is_one(
    seed: int, shape: tuple[int, int], n_clusters: int, digits: int
) -> None:
    """The tree of cells found a clustering that no dive into the mixture of all columns came to, and ended without it:
    0.18 and 0.14 % were left."""
    rng = np.random.default_rng(seed)
    for low, high in ((8, 45), (1, 4), (2, 6)):  # the size was drawn, too
        rng.integers(low, high)
    x = np.round(rng.normal(size=shape), digits)
    result = fit({"a": x[::2], "b": x[1::2]}, n_clusters, gap=1e-4, time_limit=60.0)
    assert result.certified
    assert result.cells < 200
