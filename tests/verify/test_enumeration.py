"""What the checker states as proven is never above the optimum, strictly: against all partitions, in fractions."""

from __future__ import annotations

from fractions import Fraction

import pytest

from consentroid.verify import verify
from draws import draws
from reference_prover import without_claims
from small_problems import random_problem, tight_problem


@pytest.mark.parametrize("block", range(draws(6)))
def test_never_above_the_optimum(block: int) -> None:
    kinds: set[int] = set()
    for seed in range(24 * block, 24 * block + 24):
        small = random_problem(seed)
        report = verify(small.certificate, small.rows, small.prices, small.weights)
        assert report.verified, seed
        assert report.lower_bound is not None
        assert report.upper_bound is not None
        assert Fraction(report.lower_bound) <= small.optimum <= Fraction(report.upper_bound), seed
        proofs = [cell.proof for leaf in small.certificate.leaves for cell in leaf.cells if cell.proof is not None]
        kinds |= {int(kind) for proof in proofs for kind in proof.kind}
    assert kinds == {0, 1, 2, 3, 4, 5}  # every kind of record is met


@pytest.mark.parametrize("seed", range(6))
def test_tight_certificates_stay_tight(seed: int) -> None:
    small = tight_problem(seed, branches=seed % 3)
    report = verify(small.certificate, small.rows, small.prices, small.weights)
    assert report.verified
    assert report.lower_bound is not None
    assert Fraction(report.lower_bound) <= small.optimum
    assert report.lower_bound >= float(small.optimum) * (1 - 1e-3)


def test_one_site_checks_its_claims_and_the_bound_is_conditional() -> None:
    for seed in range(20):
        small = random_problem(seed)
        for name in small.rows:
            report = verify(
                small.certificate, {name: small.rows[name]}, {name: small.prices[name]}, {name: small.weights[name]}
            )
            assert not report.verified
            assert report.lower_bound is None
            assert report.upper_bound is None
            assert report.conditional_bound is not None
            assert Fraction(report.conditional_bound) <= small.optimum
            assert report.unchecked == tuple(other for other in small.rows if other != name)


def test_without_claims_all_rows_are_needed() -> None:
    for seed in range(12):
        small = random_problem(seed)
        certificate = without_claims(small.certificate)
        report = verify(certificate, small.rows, small.prices, small.weights)
        assert report.verified
        assert report.lower_bound is not None
        assert Fraction(report.lower_bound) <= small.optimum
        report = verify(certificate, {"a": small.rows["a"]}, small.prices, {"a": small.weights["a"]})
        assert not report.verified
        assert report.conditional_bound is None
        assert "rows of all" in report.sites[0].reason
