"""Runs in which one triple of rows spares a whole tree of cells, and what their certificates say."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from consentroid.fitting import fit
from consentroid.rowprices import bundle
from consentroid.verify import verify

CASES = [(143, 1), (143, 3), (1057, 2), (1065, 3)]  # seed, sites


def half_integral(seed: int, n_sites: int) -> tuple[dict[str, np.ndarray], int]:
    """Rows on which the best prices mix clusters by halves."""
    rng = np.random.default_rng(seed)
    n, k = int(rng.integers(20, 50)), int(rng.integers(5, 12))
    grid = int(rng.integers(4, 9))
    rng.integers(0, grid, size=(n, 2))
    x = rng.normal(size=(n, 2))
    return {f"s{i}": x[i::n_sites] for i in range(n_sites)}, k


@pytest.mark.parametrize(("seed", "n_sites"), CASES)
def test_a_triple_in_place_of_a_tree(seed: int, n_sites: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows, k = half_integral(seed, n_sites)
    with_fees = fit(rows, k, gap=1e-6, folder=tmp_path, regions=False)
    assert with_fees.certified
    assert with_fees.cells == 0
    files = {name: tmp_path / f"prices-{name}.npz" for name in rows}
    stored = [dict(np.load(file)) for file in files.values()]
    assert sum(len(one["triples"]) for one in stored if "triples" in one) > 0
    assert with_fees.certificate is not None
    report = verify(with_fees.certificate, rows, files)
    assert report.verified
    assert report.gap <= 1.001e-6
    monkeypatch.setattr(bundle, "NEW_TRIPLES", 0)
    without = fit(rows, k, gap=1e-6, regions=False)
    assert without.certified
    assert without.cells > 4
    assert without.upper_bound == pytest.approx(with_fees.upper_bound, rel=1e-6)  # two proofs of one optimum
    assert with_fees.lower_bound <= without.upper_bound


def test_a_site_checks_its_own_fees(tmp_path: Path) -> None:
    rows, k = half_integral(1057, 2)
    result = fit(rows, k, gap=1e-6, folder=tmp_path, regions=False)
    certificate = result.certificate
    assert certificate is not None
    file = tmp_path / "prices-s1.npz"
    stored = dict(np.load(file))
    assert "fees" in stored
    whole = verify(certificate, rows, {name: tmp_path / f"prices-{name}.npz" for name in rows})
    part = verify(certificate, {"s1": rows["s1"]}, {"s1": file})
    assert part.conditional_bound == pytest.approx(whole.lower_bound, rel=1e-9)
    assert part.unchecked == ("s0",)
    twice = verify(certificate, {"s1": rows["s1"]}, {"s1": {**stored, "fees": 2.0 * stored["fees"]}})
    assert "s1" in twice.unchecked  # other fees are another file


def test_two_runs_find_the_same_triples(tmp_path: Path) -> None:
    rows, k = half_integral(143, 3)
    found = []
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        result = fit(rows, k, gap=1e-6, folder=tmp_path / name, regions=False)
        stored = [np.load(tmp_path / name / f"prices-{site}.npz") for site in rows]
        found.append((result.lower_bound, [{key: one[key].tolist() for key in one} for one in stored]))
    assert found[0] == found[1]
