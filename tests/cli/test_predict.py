"""Labels from a result: nearest in the units that were clustered, certain only if no region could change them."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from consentroid.cli.predict import as_csv, labels_of
from consentroid.core.errors import InvalidInput

CENTROIDS = [[0.0, 0.0], [10.0, 0.0], [0.0, 4.0]]


def document(half: float | None = None, factor: tuple[float, float] = (1.0, 1.0)) -> dict[str, Any]:
    centres = np.array(CENTROIDS)
    regions = None if half is None else {"lower": centres - half, "upper": centres + half, "tolerance": 0.0}
    scaling = {"scale": "standard", "offset": [0.0, 0.0], "factor": list(factor), "fill": None}
    return {"centroids": CENTROIDS, "regions": regions, "scaling": scaling}


def test_distances_are_those_that_were_clustered() -> None:
    row = np.array([[6.0, 3.0]])
    assert labels_of(document(), row).cluster.tolist() == [1]
    stretched = labels_of(document(factor=(100.0, 1.0)), row)
    assert stretched.cluster.tolist() == [2]
    assert stretched.distance[0] == pytest.approx(np.hypot(0.06, 1.0))
    assert stretched.certain is None
    with pytest.raises(InvalidInput, match="the rows have 1 features, the run used 2"):
        labels_of(document(), np.zeros((1, 1)))


@given(st.floats(-5, 15), st.floats(-5, 9), st.floats(0.01, 2.0), st.integers(0, 1000))
def test_a_certain_label_holds_wherever_the_centroids_lie(x: float, y: float, half: float, seed: int) -> None:
    factor = (3.0, 0.5)
    found = labels_of(document(half, factor), np.array([[x, y]]))
    assert found.certain is not None
    if found.certain[0]:
        rng = np.random.default_rng(seed)
        corners = [np.array(signs).reshape(3, 2) for signs in itertools.product((-1, 1), repeat=6)]
        for shift in [*corners, *rng.uniform(-1, 1, size=(50, 3, 2))]:
            centres = (np.array(CENTROIDS) + half * shift) / factor
            squared = ((np.array([x, y]) / factor - centres) ** 2).sum(axis=1)
            assert squared.argmin() == found.cluster[0]


def test_a_row_between_two_regions_is_not_certain() -> None:
    found = labels_of(document(0.5), np.array([[5.2, 0.0], [1.0, 0.0]]))
    assert found.certain is not None
    assert found.certain.tolist() == [False, True]
    assert as_csv({"a": found}).splitlines() == [
        "site,row,cluster,distance,certain", "a,1,1,4.8,false", "a,2,0,1.0,true",
    ]  # fmt: skip
