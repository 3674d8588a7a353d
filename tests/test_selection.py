"""The choice of K knows the band in which the truth lies."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

from consentroid.core.errors import InvalidInput
from consentroid.selection import Selection, select_k


def test_select_k_knows_the_band(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    centres = np.array([[0.0, 0.0], [8.0, 0.0], [0.0, 8.0]])
    rows = {name: centres[np.arange(12) % 3] + rng.normal(size=(12, 2)) for name in ("a", "b")}
    selection = select_k(rows, range(1, 5), seed=0)
    assert [choice.n_clusters for choice in selection.choices] == [1, 2, 3, 4]
    for choice in selection.choices:
        assert choice.lower <= choice.upper
        assert choice.certified
    assert all(a.upper >= b.upper and a.lower >= b.lower for a, b in itertools.pairwise(selection.choices))
    assert {selection.best(index).n_clusters for index in ("silhouette", "davies_bouldin", "calinski_harabasz")} == {3}
    assert selection.plot(tmp_path / "k.png").read_bytes()[:4] == b"\x89PNG"
    with pytest.raises(InvalidInput, match="unknown index 'elbow'"):
        selection.best("elbow")
    with pytest.raises(InvalidInput, match="at least two clusters"):
        Selection(selection.choices[:1]).best()
    with pytest.raises(InvalidInput, match="at least one number of clusters"):
        select_k(rows, [])
