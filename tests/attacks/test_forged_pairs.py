"""Prices on pairs that are none, and certificates that state more than they prove."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from consentroid.certificate.document import Certificate, PairsProof, pairs_digest
from consentroid.core.errors import CertificateInvalid, InvalidInput
from consentroid.fitting import fit
from consentroid.protocol.messages import ImprovePairs
from consentroid.rowprices import attempts, engine
from consentroid.site.guard import Guard
from consentroid.site.pairs.site import SitePairs
from consentroid.verify import verify
from consentroid.verify.pairs import NAMES, checked, pairs_bound
from consentroid.verify.rows import _cost
from reference_prover import exact_optimum

Arrays = dict[str, np.ndarray]


class Run:
    """Rows with many features at one site, proven by prices on pairs; all that the checker needs."""

    def __init__(self, folder: Path) -> None:
        rng = np.random.default_rng(0)
        x = rng.normal(size=(40, 10)) + 2.0 * rng.normal(size=(3, 10))[np.arange(40) % 3]
        self.rows = {"a": x}
        result = fit(self.rows, 3, gap=1e-3, folder=folder, regions=False)
        self.result, self.certificate = result, result.certificate
        with np.load(folder / "prices-a.npz") as stored:
            self.arrays: Arrays = {name: stored[name] for name in stored}

    def check(self, certificate: Certificate, arrays: Arrays, rows: Any = None) -> Any:
        return verify(certificate, rows or self.rows, {"a": arrays})

    def naming(self, arrays: Arrays, **changes: Any) -> Certificate:
        """The certificate with the digest of other prices."""
        digest = pairs_digest([arrays[f"pair_{name}"] for name in NAMES])
        return replace(self.certificate, price_files={"a": digest}, **changes)

    def stating(self, arrays: Arrays, lower: float) -> Certificate:
        upper = self.certificate.upper
        proof = PairsProof(lower, np.array([lower]))
        return self.naming(arrays, pairs=proof, lower=lower, gap=(upper - lower) / upper)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    with pytest.MonkeyPatch.context() as patch:
        for room in (engine, attempts):
            patch.setattr(room, "seconds_needed", lambda session: 0.0)
        return Run(tmp_path_factory.mktemp("pairs"))


def test_an_honest_run_is_verified(run: Run) -> None:
    assert run.result.bound_from == "pair prices"
    assert run.result.certified
    report = run.check(run.certificate, run.arrays)
    assert report.verified
    assert report.lower_bound >= run.certificate.lower
    assert report.gap <= 1e-3


def test_more_than_is_proven_is_refuted(run: Run) -> None:
    more = run.certificate.lower * (1.0 + 1e-6)
    with pytest.raises(CertificateInvalid, match="is stated"):
        run.check(run.stating(run.arrays, more), run.arrays)
    bare = replace(run.stating(run.arrays, more), pairs=PairsProof(run.certificate.lower, None))
    with pytest.raises(CertificateInvalid, match="is stated"):
        run.check(bare, run.arrays)


def changed(name: str, change: Callable[[np.ndarray], Any]) -> Callable[[Arrays], Arrays]:
    def make(arrays: Arrays) -> Arrays:
        array = arrays[f"pair_{name}"].copy()
        out = change(array)
        return {**arrays, f"pair_{name}": array if out is None else out}

    return make


def put(place: Any, value: Any) -> Callable[[np.ndarray], None]:
    def change(array: np.ndarray) -> None:
        array[place] = value

    return change


@pytest.mark.parametrize(
    "forge",
    [
        changed("pairs", put(3, -1.0)),
        changed("pairs", put(3, np.nan)),
        changed("pairs", put(3, np.inf)),
        changed("prices", put(0, -1e-9)),
        changed("prices", put(0, np.nan)),
        changed("prices", put(0, 1e200)),
        changed("triangles", put((0, 1), 40)),
        changed("triangles", put((0, 1), -1)),
        changed("triangles", lambda t: put((0, 1), t[0, 0])(t)),
        changed("order", put(0, 1)),
        changed("numbers", put((0, 0), 1e-9)),
        changed("numbers", put((0, 0), np.nan)),
        changed("numbers", put((0, 1), -1.0)),
        changed("numbers", put((0, 2), 3.0)),
        changed("sizes", put((0, 0), 39)),
        changed("sizes", put((0, 0), 41)),
        changed("sizes", put((0, 1), -1)),
        changed("sizes", lambda sizes: np.concatenate([sizes, [[0, 0]]], dtype=np.int32)),
        changed("sizes", lambda sizes: np.array([[20, sizes[0, 1]], [20, 0]], np.int32)),
        changed("sizes", lambda sizes: np.array([[-(2**31) + 40, sizes[0, 1]], [2**31 - 1, 0], [1, 0]], np.int32)),
        changed("vectors", put((0, 0), np.nan)),
        changed("beside", put(0, np.inf)),
        changed("origin", put((0, 0), np.nan)),
    ],
)
def test_what_are_no_prices_refutes(run: Run, forge: Callable[[Arrays], Arrays]) -> None:
    arrays = forge(run.arrays)
    with pytest.raises(CertificateInvalid, match="no such prices"):
        run.check(run.naming(arrays), arrays)


@pytest.mark.parametrize("name", NAMES)
def test_arrays_of_other_shapes_and_kinds_are_not_taken(run: Run, name: str) -> None:
    array = run.arrays[f"pair_{name}"]
    for other in (array[:-1], array.astype(">f8"), array[None], np.concatenate([array, array])):
        arrays = {**run.arrays, f"pair_{name}": other}
        with pytest.raises((InvalidInput, CertificateInvalid)):
            run.check(run.naming(arrays), arrays)


def test_other_prices_than_the_named_ones_are_not_used(run: Run) -> None:
    arrays = {**run.arrays, "pair_prices": run.arrays["pair_prices"] * 0.5}
    report = run.check(run.certificate, arrays)
    assert not report.verified
    assert "not the one" in report.sites[0].reason
    assert not verify(run.certificate, run.rows, {}).verified


def test_any_prices_state_no_more_than_they_prove(run: Run) -> None:
    """Random changes of everything at once: what the checker states never exceeds the cost, or it refuses."""
    rng, seen = np.random.default_rng(1), 0
    upper, lower = run.certificate.upper, run.certificate.lower
    for trial in range(60):
        arrays = {name: array.copy() for name, array in run.arrays.items()}
        by = 10.0 ** rng.integers(-12, 1)
        for name in ("prices", "vectors", "beside"):
            arrays[f"pair_{name}"] *= np.maximum(1.0 + by * rng.normal(size=arrays[f"pair_{name}"].shape), 0.0)
        if trial % 2:
            arrays["pair_pairs"] = rng.permutation(arrays["pair_pairs"])
        arrays["pair_numbers"][0, 0] *= 1.0 + by * rng.normal()
        try:
            report = run.check(run.stating(arrays, lower * (1.0 - 10.0 ** rng.integers(-7, 0))), arrays)
        except CertificateInvalid:
            continue
        assert report.lower_bound <= upper
        seen += report.lower_bound > 0.9 * upper
    assert seen > 5


def test_rows_moved_or_swapped_are_other_rows(run: Run) -> None:
    x = run.rows["a"]
    for rows in (x[::-1], x * 0.9, np.roll(x, 1, axis=0)):
        with pytest.raises(CertificateInvalid):
            run.check(run.certificate, run.arrays, {"a": rows})


def test_pairs_and_leaves_exclude_each_other(run: Run) -> None:
    plain = fit({"a": [[0.0], [1.0], [9.0]]}, 2).certificate.to_json()
    paired = run.certificate.to_json()
    for document in ({**paired, "pairs": None}, {**plain, "pairs": paired["pairs"]}, {**paired, "pairs": {}}):
        with pytest.raises(CertificateInvalid):
            Certificate.from_json(document)


def test_a_site_without_prices_on_pairs_proves_nothing(run: Run) -> None:
    none = replace(run.certificate, price_files={"a": pairs_digest([])})
    with pytest.raises(CertificateInvalid, match="is stated"):
        verify(none, run.rows, {})
    nothing = replace(none, pairs=PairsProof(0.0, np.zeros(1)), lower=0.0, gap=1.0)
    assert verify(nothing, run.rows, {}).lower_bound == 0.0


def bare(n: int, theta: float, scale: float) -> Arrays:
    """A file of no prices at all, for K = 1."""
    arrays = {
        "sizes": np.array([[n, 0]], np.int32),
        "order": np.arange(n, dtype=np.int32),
        "pairs": np.zeros(n * (n - 1) // 2, np.float16),
        "triangles": np.zeros((0, 3), np.int32),
        "prices": np.zeros(0),
        "vectors": np.zeros((n, 0)),
        "beside": np.zeros(n),
        "origin": np.zeros((1, 1)),
        "numbers": np.array([[theta, 1.0, scale]]),
    }
    return {f"pair_{name}": array for name, array in arrays.items()}


UNDERFLOWS = [
    ([1e-162, -1e-162, 1e-162], [1e200] * 3, 3e-162, -1e9, 2.0**538),  # of a cost over scale², before weights
    ([0.0, 0.0, 1e149], [1.0, 1.0, 5e-324], 1e-12, -1e99, 2.0**100),  # of a weight beside the mean
    ([0.0, 0.0, 1e120], [1e10, 1e10, 5e-314], 1e-30, -1e99, 2.0**100),
]


@pytest.mark.parametrize(("x", "w", "centroid", "theta", "scale"), UNDERFLOWS)
def test_what_underflows_proves_nothing_false(
    x: list[float], w: list[float], centroid: float, theta: float, scale: float
) -> None:
    rows, weights, arrays = np.array(x)[:, None], np.array(w), bare(3, theta, scale)
    _, cost = _cost(rows, weights, np.array([[centroid]]))
    ends = np.stack([rows.min(axis=0), rows.max(axis=0)])
    certificate = Certificate(
        n_clusters=1, sites=("a",), features=("f",), domain=ends, origin=np.zeros(1), basis=np.eye(1), scale=1.0,
        root=ends, shift=0.25, centroids=np.array([[centroid]]), site_costs=None, scatter_errors=None,
        total_scatter_error=0.0, leaves=(), price_files={"a": pairs_digest([arrays[f"pair_{n}"] for n in NAMES])},
        lower=0.0, upper=cost, gap=1.0, pairs=PairsProof(0.0, None),
    )  # fmt: skip
    report = verify(certificate, {"a": rows}, {"a": arrays}, {"a": weights}, require_all=True)
    assert report.lower_bound is not None
    assert Fraction(report.lower_bound) <= exact_optimum(rows, weights, 1)


@pytest.fixture(scope="module")
def dealt() -> tuple[np.ndarray, Arrays, float]:
    """Rows, and a site's file of three anticlusters of them."""
    rng = np.random.default_rng(4)
    x = rng.normal(size=(30, 4)) + 3.0 * rng.normal(size=(2, 4))[np.arange(30) % 2]
    folder = Path(tempfile.mkdtemp())
    site = SitePairs(x, np.ones(30), None, Guard())
    told = site.improve(ImprovePairs(2, 90, True, x[:2], 10), folder / "file.npz")
    with np.load(folder / "file.npz") as stored:
        return x, {name.removeprefix("pair_"): stored[name] for name in stored}, told.bound


def test_anticlusters_state_what_they_prove(dealt: tuple[np.ndarray, Arrays, float]) -> None:
    x, arrays, told = dealt
    assert arrays["sizes"].shape == (3, 2)
    proven = pairs_bound(x, np.ones(30), checked(arrays, "a"), 2)
    assert 0.0 < told <= proven <= _best_of_two(x)


def test_a_row_in_two_anticlusters_refutes(dealt: tuple[np.ndarray, Arrays, float]) -> None:
    """Far rows in every part, near ones in none, would prove more than the optimum."""
    arrays = dealt[1]
    twice = arrays["order"].copy()
    twice[12] = twice[2]
    for other in (twice, np.minimum(arrays["order"], 28), arrays["order"] - 1):
        with pytest.raises(CertificateInvalid, match="no such prices"):
            checked({**arrays, "order": other.astype(np.int32)}, "a")
    for missing in ("origin", "numbers"):
        with pytest.raises(CertificateInvalid, match="no such prices"):
            checked({**arrays, missing: arrays[missing][:2]}, "a")


def test_rows_that_change_their_anticluster_prove_nothing_false(dealt: tuple[np.ndarray, Arrays, float]) -> None:
    x, arrays, _ = dealt
    rng, best = np.random.default_rng(6), _best_of_two(x)
    for _ in range(30):
        other = {**arrays, "order": rng.permutation(arrays["order"])}
        assert pairs_bound(x, np.ones(30), checked(other, "a"), 2) <= best


def _best_of_two(x: np.ndarray) -> float:
    """The cost of a good clustering into two, by Lloyd from every pair of some rows."""
    best = np.inf
    for i in range(0, 30, 3):
        for j in range(i + 1, 30, 3):
            label = ((x - x[i]) ** 2).sum(1) > ((x - x[j]) ** 2).sum(1)
            for _ in range(20):
                if label.all() or not label.any():
                    break
                low, high = x[~label].mean(0), x[label].mean(0)
                label = ((x - low) ** 2).sum(1) > ((x - high) ** 2).sum(1)
            best = min(best, sum(((x[of] - x[of].mean(0)) ** 2).sum() for of in (label, ~label) if of.any()))
    return best


def test_honest_rows_that_nearly_underflow_prove_nothing_false() -> None:
    x = (0.8 * 2.0**-537 * np.array([0.0, 1.0, 0.5, 40.0, 41.0, 40.2]))[:, None]
    w = np.full(6, 1e200)
    told = SitePairs(x, w, None, Guard()).improve(ImprovePairs(2, 100), None)
    assert Fraction(told.bound) <= exact_optimum(x, w, 2)
