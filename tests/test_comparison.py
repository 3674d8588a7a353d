"""No baseline beats a proven bound."""

from __future__ import annotations

import numpy as np

from consentroid.comparison import compare
from consentroid.evaluation.baselines import BASELINES


def blobs(seed: int, sizes: tuple[int, ...]) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    centres = np.array([[0.0, 0.0], [6.0, 0.0], [0.0, 6.0]])
    return {f"n{i}": centres[rng.integers(3, size=n)] + rng.normal(size=(n, 2)) for i, n in enumerate(sizes)}


def test_no_baseline_beats_the_bound() -> None:
    comparison = compare(blobs(5, (6, 5, 7)), 3, gap=1e-4)
    assert [line.method for line in comparison.lines] == ["consentroid", *BASELINES]
    assert comparison.result.certified
    for line in comparison.lines:
        assert line.cost >= comparison.lower_bound
        assert line.gap >= 0
        assert line.proves == (line.method == "consentroid")
    assert comparison.lines[0].cost <= min(line.cost for line in comparison.lines) * (1 + 1e-4)
    assert set(comparison.as_dict()) == {"lower_bound", "methods"}
