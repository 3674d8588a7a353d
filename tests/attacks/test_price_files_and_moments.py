"""Price files made to break their reader; squares that underflow, overflow or were rounded to integers."""

from __future__ import annotations

import tracemalloc
import zipfile
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from consentroid.certification import certify
from consentroid.core.errors import ConsentroidError
from consentroid.core.problem import Domain
from consentroid.fitting import fit
from consentroid.protocol.messages import MomentSums
from consentroid.report.wording import verdict
from consentroid.rowprices.coordinates import spectral_bound
from consentroid.site.fixed_point import Scales, decode_parts, encode, exponent
from consentroid.verify import verify
from small_problems import Small, tight_problem


@pytest.fixture(scope="module")
def small() -> Small:
    return tight_problem(1)


def price_file(path: Path, shape: str, body: bytes = b"") -> Path:
    header = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}}}".encode()
    header += b" " * (63 - (10 + len(header)) % 64) + b"\n"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("prices.npy", b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + body)
    return path


@pytest.mark.parametrize(
    ("shape", "size"), [("(-2, -3)", 48), (f"(0, {10**30})", 0), ("(0, -5)", 0), ("(True, 6)", 48), ("(-1, 0)", 0)]
)
def test_shapes_that_no_array_has(small: Small, tmp_path: Path, shape: str, size: int) -> None:
    """Each of them once ended in a traceback, with the exit code of a refutation."""
    path = price_file(tmp_path / "prices.npz", shape, bytes(size))
    report = verify(small.certificate, small.rows, {**small.prices, "a": path}, small.weights)
    assert not report.verified
    assert "no table of numbers" in report.sites[0].reason


def test_the_number_of_a_price_vector_does_not_let_a_large_file_in(small: Small, tmp_path: Path) -> None:
    leaves = tuple(replace(leaf, prices=2**31 - 1) for leaf in small.certificate.leaves)
    forged = replace(small.certificate, leaves=leaves)
    path = price_file(tmp_path / "prices.npz", "(1, 1)", bytes(64 << 20))
    tracemalloc.start()
    try:
        report = verify(forged, small.rows, {**small.prices, "a": path}, small.weights)
    except ConsentroidError:
        pass
    else:
        assert not report.verified
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 8 << 20


@pytest.mark.parametrize("weight", [1.0, 1e-160, 1e-200, 1e-300, 5e-324])
def test_tiny_weights_prove_nothing_false(weight: float) -> None:
    """Squares of weighted sums underflowed: 93 times the optimum was 'Proven optimal'."""
    rows, init = np.array([[0.0, 0.0], [0.0, 1.0], [0.0, 10.0], [0.0, 11.0]]), [[0.0, 5.0], [0.0, 5.4]]
    result = fit(
        {"a": rows}, 2, weights={"a": np.full(4, weight)}, domain=Domain([0.0, 0.0], [2000.0, 11.0]), init=init,
        time_limit=1e-6,
    )  # fmt: skip
    assert Fraction(result.lower_bound) <= Fraction(weight)
    assert not result.certified
    assert "optimal" not in verdict(result)


def test_moments_rounded_to_integers_prove_nothing_false() -> None:
    """Under masks, sums are multiples of a quantum that grows with the domain stated; it may exceed the scatter."""
    rng = np.random.default_rng(0)
    raised = 0
    for n_sites in (1, 2, 5):
        for power in range(30, 62):
            x = rng.normal(size=(12 * n_sites, 3))
            scales = Scales(n_sites, exponent(12.0) + exponent(n_sites), power)
            limbs = 0
            for part in np.split(x, n_sites):
                layout, own = encode({"moments": MomentSums(12.0, part.sum(axis=0), part.T @ part)}, scales)
                limbs = limbs + own
            moments = decode_parts(np.asarray(limbs), layout, scales)["moments"]
            centred = x - x.mean(axis=0)
            true = np.linalg.eigvalsh(centred.T @ centred)
            for k in (1, 2, 3):
                bound = spectral_bound(moments, k, len(x), n_sites, 2.0**power)
                assert bound <= true[: 4 - k].sum() * (1.0 + 1e-12)
                raised += bound > 0.5 * true[: 4 - k].sum()
    assert raised > 50  # and where the quantum is small it still says something


@pytest.mark.parametrize("size", [1e140, 1e153])
def test_overflowing_moments_are_an_error_in_words(size: float) -> None:
    rows = np.random.default_rng(1).normal(size=(6, 3)) * size
    with pytest.raises(ConsentroidError, match="overflow"):
        fit({"a": rows}, 2, weights={"a": np.full(6, 1e300)}, time_limit=2.0)


def test_centroids_off_their_rows_by_less_than_squares_can_tell_cost_something() -> None:
    """The cost underflowed to 0, which counted as optimal."""
    rows = np.array([[0.0], [1.0]])
    near = certify([[1e-170], [1.0]], rows, time_limit=2.0)
    assert near.cost > 0.0
    assert not near.certified
    assert certify([[0.0], [1.0]], rows, time_limit=2.0).cost == 0.0
