"""Runs in which one triple of rows spares a whole tree of cells, and what their certificates say."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from consentroid.fitting import fit
from consentroid.rowprices import bundle
from consentroid.rowprices.columns import Columns
from consentroid.verify import verify
from row_problems import half_integral

CASES = [(134, ("s0",)), (134, ("s0", "s1", "s2")), (237, ("s0", "s1")), (392, ("s0", "s1", "s2"))]


@pytest.mark.parametrize(("seed", "names"), CASES)
def test_a_triple_in_place_of_a_tree(
    seed: int, names: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, k = half_integral(seed, names)
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
    rows, k = half_integral(99, ("s0", "s1"))
    result = fit(rows, k, gap=1e-6, folder=tmp_path, regions=False)
    certificate = result.certificate
    assert certificate is not None
    files = {name: tmp_path / f"prices-{name}.npz" for name in rows}
    (name,) = [name for name, file in files.items() if "fees" in np.load(file)]
    stored = dict(np.load(files[name]))
    whole = verify(certificate, rows, files)
    part = verify(certificate, {name: rows[name]}, {name: files[name]})
    assert part.conditional_bound == pytest.approx(whole.lower_bound, rel=1e-9)
    assert set(part.unchecked) == set(rows) - {name}
    twice = verify(certificate, {name: rows[name]}, {name: {**stored, "fees": 2.0 * stored["fees"]}})
    assert name in twice.unchecked  # other fees are another file


def test_columns_that_are_not_used_make_room_for_a_search_for_triples(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sites tell a number for each pair of columns, so these are not to be too many."""
    rows, k = half_integral(134, ("s0", "s1", "s2"))
    asked = list[int]()
    find = Columns.find_triples

    def counted(self: Columns, z: np.ndarray, most: int) -> int:
        asked.append(len(z))
        return find(self, z, most)

    monkeypatch.setattr(bundle, "MOST_FOR_TRIPLES", 40)
    monkeypatch.setattr(Columns, "find_triples", counted)
    result = fit(rows, k, gap=1e-6, regions=False)
    assert asked
    assert max(asked) == 40
    assert result.certified


def test_two_runs_find_the_same_triples(tmp_path: Path) -> None:
    rows, k = half_integral(134, ("s0", "s1", "s2"))
    found = []
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        result = fit(rows, k, gap=1e-6, folder=tmp_path / name, regions=False)
        stored = [np.load(tmp_path / name / f"prices-{site}.npz") for site in rows]
        found.append((result.lower_bound, [{key: one[key].tolist() for key in one} for one in stored]))
    assert found[0] == found[1]
