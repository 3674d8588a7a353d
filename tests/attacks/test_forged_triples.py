"""Any triples of rows and any fees give a true bound, and what are no triples or no fees refutes."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from consentroid.certificate.document import Certificate, price_digest
from consentroid.core.errors import CertificateInvalid
from consentroid.verify import verify
from consentroid.verify.stored_prices import clumps_of
from reference_prover import without_claims
from small_problems import Small, random_problem, tight_problem

Files = dict[str, dict[str, np.ndarray]]


def stating_nothing(certificate: Certificate) -> Certificate:
    """The same boxes; what they prove is for the checker to say."""
    bare = without_claims(certificate)
    leaves = tuple(
        replace(leaf, total=0.0, bound=0.0, cells=tuple(replace(cell, target=0.0) for cell in leaf.cells))
        for leaf in bare.leaves
    )
    return replace(bare, leaves=leaves, lower=0.0, gap=1.0)


def with_triples(small: Small, tables: Files) -> tuple[Certificate, Files]:
    prices = {name: {"prices": array, **tables.get(name, {})} for name, array in small.prices.items()}
    digests = {name: price_digest(t["prices"], t.get("triples"), t.get("fees")) for name, t in prices.items()}
    return replace(stating_nothing(small.certificate), price_files=digests), prices


def some_triples(rng: np.random.Generator, small: Small) -> Files:
    tables = {}
    for name, prices in small.prices.items():
        n = prices.shape[1]
        if n >= 3:
            triples = rng.permutation(n)[: 3 * (n // 3)].reshape(-1, 3)
            if rng.random() < 0.5:  # that share rows
                few = rng.permutation(n)[:6]
                triples = np.array([rng.permutation(few)[:3] for _ in range(rng.integers(1, 5))])
            share = rng.choice([0.0, 1e-6, 1e-3, 0.03, 0.3], (len(prices), len(triples)))
            tables[name] = {"triples": triples, "fees": share * (prices.sum(axis=1) / n)[:, None]}
    return tables


@pytest.mark.parametrize("block", range(4))
def test_never_above_the_optimum_with_any_fees(block: int) -> None:
    rng, seen = np.random.default_rng(block), 0
    for seed in range(12 * block, 12 * block + 12):
        small = random_problem(seed) if seed % 2 else tight_problem(seed, branches=seed % 3, cuts=False)
        for _ in range(4):
            certificate, prices = with_triples(small, some_triples(rng, small))
            try:
                report = verify(certificate, small.rows, prices, small.weights)
            except CertificateInvalid:  # a cut that rested on rows which a fee may now keep out
                continue
            assert report.verified
            assert report.lower_bound is not None
            assert Fraction(report.lower_bound) <= small.optimum, seed
            seen += any("fees" in table and table["fees"].any() for table in prices.values())
    assert seen > 12


def test_small_fees_cost_little_of_a_tight_bound() -> None:
    """So that the test above could see a fee that is counted twice."""
    small = tight_problem(3, cuts=False)
    triples = np.arange(3)[None]
    certificate, prices = with_triples(small, {"a": {"triples": triples, "fees": np.full((1, 1), 1e-3)}})
    report = verify(certificate, small.rows, prices, small.weights)
    assert report.lower_bound is not None
    assert float(small.optimum) * (1 - 1e-2) <= report.lower_bound <= small.optimum


def bad_tables() -> list[Any]:
    three = np.array([[0, 1, 2]])
    fee = np.full((1, 1), 0.01)
    cases = [({"triples": three, "fees": np.full((1, 1), bad)}, "fee") for bad in (-0.01, np.nan, np.inf, 1e301)]
    cases += [({"triples": np.array([rows]), "fees": fee}, "twice") for rows in ([0, 0, 1], [1, 1, 1])]
    cases += [({"triples": np.array([rows]), "fees": fee}, "not there") for rows in ([0, 1, 99], [-1, 0, 1])]
    often = np.tile(three, (65, 1))
    cases.append(({"triples": often, "fees": np.full((1, 65), 1e-5)}, "more than 64 triples with a fee hang together"))
    cases.append(({"triples": three * 1.0, "fees": fee}, "of the shape"))
    cases.append(({"triples": np.array([[0, 1]]), "fees": fee}, "of the shape"))
    cases.append(({"triples": three, "fees": np.full((2, 1), 0.01)}, "of the shape"))
    cases.append(({"triples": three, "fees": np.full((1, 1), 1e9)}, "exceed its prices"))
    return cases


@pytest.mark.parametrize(("table", "match"), bad_tables())
def test_what_are_no_triples_refutes(table: dict[str, np.ndarray], match: str) -> None:
    small = tight_problem(3, cuts=False)  # nine rows, five of them here
    certificate, prices = with_triples(small, {"a": table})
    with pytest.raises(CertificateInvalid, match=match):
        verify(certificate, small.rows, prices, small.weights)


def test_clumps_that_grow_too_large_refute() -> None:
    chain = np.array([[i, i + 1, i + 2] for i in range(0, 40, 2)])
    assert [len(rows) for rows in clumps_of(chain[:19])] == [39]
    with pytest.raises(CertificateInvalid, match="more than 40 rows of triples with a fee hang together"):
        clumps_of(chain)
    assert clumps_of(np.array([[5, 1, 2], [7, 8, 9], [3, 2, 6]])) == {(1, 2, 3, 5, 6): [0, 2], (7, 8, 9): [1]}


def test_files_with_other_triples_are_not_the_ones_named(tmp_path: Path) -> None:
    small = tight_problem(3, cuts=False)
    table = {"triples": np.array([[0, 1, 2]]), "fees": np.full((1, 1), 0.01)}
    certificate, prices = with_triples(small, {"a": table})
    files = {name: tmp_path / f"{name}.npz" for name in prices}

    def write(**tables: np.ndarray) -> None:
        np.savez(files["a"], **tables)  # type: ignore[arg-type]

    np.savez(files["b"], **prices["b"])  # type: ignore[arg-type]
    write(**prices["a"])
    assert verify(certificate, small.rows, files, small.weights).verified
    own = prices["a"]["prices"]
    for tables in (
        {"prices": own},
        {"prices": own, "triples": np.array([[0, 1, 3]]), "fees": table["fees"]},
        {"prices": own, "triples": table["triples"], "fees": 2.0 * table["fees"]},
        {"prices": own, "triples": table["triples"]},
        {"prices": own, "triples": table["triples"] * 1.0, "fees": table["fees"]},
        {"prices": own, "triples": np.zeros((4000, 3), np.int64), "fees": np.zeros((1, 4000))},
    ):
        write(**tables)
        report = verify(certificate, small.rows, files, small.weights)
        assert not report.verified
        assert "a" in report.unchecked
