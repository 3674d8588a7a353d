"""`fit --resume`: what an earlier run proved is never lost, and never believed of other rows."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from consentroid.certificate.document import fingerprint_of
from consentroid.cli.resuming import EarlierRun, earlier_run, joined
from consentroid.core.errors import InvalidInput, NodeFailed
from consentroid.core.result import FitResult, StopReason
from consentroid.data.preprocessing import Prepared, prepare
from consentroid.fitting import fit
from consentroid.report.files import Details, write_run
from consentroid.verify import verify

K = 3


def prepared_rows(shift: float = 0.0) -> Prepared:
    rng = np.random.default_rng(3)
    rows = {name: rng.normal(size=(30, 2)) + 3.0 * rng.integers(0, 3, (30, 1)) for name in ("a", "b")}
    rows["b"][7, 0] += shift
    return prepare(rows)


def run_in(folder: Path, prepared: Prepared, **options: Any) -> FitResult:
    result = fit(prepared.rows, K, features=prepared.names, folder=folder, **options)
    write_run(folder, result, Details(prepared.recipe.as_dict()))
    return result


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Prepared, FitResult]:
    folder, prepared = tmp_path_factory.mktemp("first"), prepared_rows()
    return folder, prepared, run_in(folder, prepared, gap=0.05)


def resumed(folder: Path, prepared: Prepared) -> EarlierRun:
    earlier = earlier_run(folder, prepared, None, K)
    assert earlier is not None
    return earlier


def test_an_empty_folder_holds_no_run(tmp_path: Path) -> None:
    assert earlier_run(tmp_path, prepared_rows(), None, K) is None


def test_centroids_prices_and_bound_are_taken(first: tuple[Path, Prepared, FitResult]) -> None:
    folder, prepared, before = first
    earlier = resumed(folder, prepared)
    np.testing.assert_allclose(earlier.centroids, before.centroids, rtol=1e-12, atol=1e-12)
    assert earlier.lower <= before.lower_bound
    assert earlier.lower == pytest.approx(before.lower_bound, rel=1e-9)
    assert {name: len(prices) for name, prices in earlier.first_prices.items()} == {"a": 30, "b": 30}
    options: dict[str, Any] = {"init": earlier.centroids, "first_prices": earlier.first_prices}
    again = fit(prepared.rows, K, gap=1e-6, **options)
    fresh = fit(prepared.rows, K, gap=1e-6)
    assert again.certified
    assert again.lower_bound == pytest.approx(fresh.lower_bound, rel=2e-6)


@pytest.mark.usefixtures("pairs_at_once")
def test_a_proof_by_pairs_is_kept(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    prepared = prepare({"a": rng.normal(size=(40, 10)) + 2.0 * rng.normal(size=(3, 10))[np.arange(40) % 3]})
    before = run_in(tmp_path, prepared, gap=1e-3)
    assert before.bound_from == "pair prices"
    earlier = resumed(tmp_path, prepared)
    assert earlier.first_prices == {}
    assert earlier.lower == pytest.approx(before.lower_bound, rel=1e-9)
    weaker = replace(before, lower_bound=0.5 * before.lower_bound, certificate=None, bound_from="spectrum")
    result, kept = joined(earlier, weaker)
    assert kept
    assert result.bound_from == "pair prices"
    assert result.lower_bound == earlier.lower
    assert verify(result.certificate, prepared.rows, {"a": tmp_path / "prices-a.npz"}).verified


def test_prices_of_nonsense_never_prove_too_much() -> None:
    """Whatever a site begins with, also prices that are negative, what is proven is true."""
    prepared = prepared_rows()
    optimum = fit(prepared.rows, K, gap=1e-8).upper_bound
    rng = np.random.default_rng(0)
    for factor in (0.0, 1e-6, 1.0, 100.0):
        nonsense = {name: factor * rng.normal(size=len(rows)) for name, rows in prepared.rows.items()}
        result = fit(prepared.rows, K, gap=1e-4, first_prices=nonsense, regions=False, time_limit=1.0)
        assert result.lower_bound <= optimum


def test_other_rows_clusters_or_scaling_are_refused(first: tuple[Path, Prepared, FitResult]) -> None:
    folder, prepared, _ = first
    with pytest.raises(InvalidInput, match=r"its clusters were 3, now 4; leave --resume out"):
        earlier_run(folder, prepared, None, 4)
    with pytest.raises(InvalidInput, match=r"its scaling were"):
        earlier_run(folder, prepared_rows(shift=1e-6), None, K)
    moved = {name: rows.copy() for name, rows in prepared.rows.items()}
    moved["a"][[0, 1]] = moved["a"][[1, 0]]  # the same rows in another order: the prices are not theirs
    with pytest.raises(InvalidInput, match=r"its proof fails on these rows"):
        earlier_run(folder, replace(prepared, rows=moved), None, K)
    fewer = {name: rows[:-1] for name, rows in prepared.rows.items()}
    with pytest.raises(InvalidInput, match=r"its rows were .*, now"):
        earlier_run(folder, replace(prepared, rows=fewer), None, K)


def test_the_better_proof_stays(first: tuple[Path, Prepared, FitResult], tmp_path: Path) -> None:
    folder, prepared, before = first
    earlier = resumed(folder, prepared)
    weak = fit(prepared.rows, K, gap=0.05, features=prepared.names, folder=tmp_path)
    weak = replace(weak, lower_bound=0.5 * before.lower_bound, stop_reason=StopReason.TIME_LIMIT)
    result, kept = joined(earlier, weak)
    assert kept
    assert result.lower_bound == earlier.lower
    assert result.certified
    assert result.stop_reason is StopReason.GAP
    report = verify(result.certificate, prepared.rows, {name: folder / f"prices-{name}.npz" for name in prepared.rows})
    assert report.verified
    strong = fit(prepared.rows, K, gap=1e-6)
    result, kept = joined(earlier, strong)
    assert not kept
    assert result.certificate is strong.certificate
    with pytest.raises(NodeFailed, match="proven before, exceeds the cost"):
        joined(replace(earlier, lower=2.0 * before.upper_bound), weak)


def test_a_forged_result_proves_nothing(first: tuple[Path, Prepared, FitResult], tmp_path: Path) -> None:
    """The certificate is re-checked, so a bound that somebody wrote into the files is refused."""
    folder, prepared, _ = first
    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    document = json.loads((tmp_path / "certificate.json").read_text())
    document["lower"] = document["upper"]
    document["gap"] = 0.0
    for fingerprint in (document["fingerprint"], fingerprint_of(document)):
        (tmp_path / "certificate.json").write_text(json.dumps({**document, "fingerprint": fingerprint}))
        with pytest.raises(InvalidInput, match=r"cannot resume from .* its proof fails on these rows"):
            earlier_run(tmp_path, prepared, None, K)
