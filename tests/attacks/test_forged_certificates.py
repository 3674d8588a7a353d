"""Each way that was once found to deceive the checker, or could be thought of, on certificates of version 3."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from clocks import Clock
from consentroid.certificate.document import BoxTree, CellProof, Certificate, LeafProof, price_digest
from consentroid.core.errors import CertificateInvalid
from consentroid.verify import checking, verify
from small_problems import Small, tight_problem

LINE = np.array([[0.0], [1.0]])


@pytest.fixture(scope="module")
def small() -> Small:
    return tight_problem(1, branches=2)


def never_above(small: Small, forged: Certificate, prices: dict[str, np.ndarray] | None = None) -> None:
    """Refuted, or not verified, or verified to something true."""
    try:
        report = verify(forged, small.rows, small.prices if prices is None else prices, small.weights)
    except CertificateInvalid:
        return
    if report.verified:
        assert report.lower_bound is not None
        assert Fraction(report.lower_bound) <= small.optimum
        assert report.stated_lower <= float(small.optimum) * (1 + 1e-9)


def refuted(small: Small, forged: Certificate, match: str, prices: dict[str, np.ndarray] | None = None) -> None:
    with pytest.raises(CertificateInvalid, match=match):
        verify(forged, small.rows, small.prices if prices is None else prices, small.weights)


# ---------------------------------------------------------------- coordinates


@pytest.mark.parametrize("factor", [1.001, 2.0, 1e30])
def test_basis_that_stretches(small: Small, factor: float) -> None:
    refuted(small, replace(small.certificate, basis=small.certificate.basis * factor), "not orthogonal")


@pytest.mark.parametrize("factor", [0.0, 1e-300, 1e-9, 0.5, 0.999])
def test_basis_that_shrinks(small: Small, factor: float) -> None:
    never_above(small, replace(small.certificate, basis=small.certificate.basis * factor))
    never_above(small, replace(small.certificate, basis=small.certificate.basis * np.array([factor, 1.0])))


def test_basis_that_is_skew(small: Small) -> None:
    refuted(small, replace(small.certificate, basis=np.array([[1.0, 1.0], [0.0, 1.0]])), "not orthogonal")
    never_above(small, replace(small.certificate, basis=small.certificate.basis * (1 + 1e-7)))
    never_above(small, replace(small.certificate, basis=small.certificate.basis * (1 - 1e-7)))
    never_above(small, replace(small.certificate, basis=np.eye(2)))


@pytest.mark.parametrize("scale", [0.0, -0.5, 3.0, 0.5000001, 2.0**1001, 2.0**-1010, 1e308])
def test_scale_that_is_no_power_of_two(small: Small, scale: float) -> None:
    refuted(small, replace(small.certificate, scale=scale), "coordinates.scale")


@pytest.mark.parametrize("power", [-900, -200, -20, -1, 1, 20, 200, 900])
def test_other_scales(small: Small, power: int) -> None:
    never_above(small, replace(small.certificate, scale=small.certificate.scale * 2.0**power))


@pytest.mark.parametrize("size", [1e16, 1e30, 1e149])
def test_domain_and_root_do_not_matter(small: Small, size: float) -> None:
    """No slack grows with the domain: rows of scale 1 in a domain of 1e30."""
    never_above(small, replace(small.certificate, domain=np.array([[-size] * 2, [size] * 2])))
    never_above(small, replace(small.certificate, origin=np.array([size, -size])))
    wide = np.array([[-size] * 2, [size] * 2])
    refuted(small, replace(small.certificate, root=wide), "is not the cell")


def test_rows_outside_root_or_domain(small: Small) -> None:
    refuted(small, replace(small.certificate, domain=small.certificate.domain * 0.5), "outside the domain")
    refuted(small, replace(small.certificate, root=small.certificate.root * 0.5), "not the cell|outside the root")


@pytest.mark.parametrize("shift", [0.0, 0.1, 0.3, 0.49])
def test_other_shifts(small: Small, shift: float) -> None:
    never_above(small, replace(small.certificate, shift=shift))


@pytest.mark.parametrize("shift", [-0.1, 0.5, 1.0, 1e30])
def test_shifts_that_prove_nothing(small: Small, shift: float) -> None:
    refuted(small, replace(small.certificate, shift=shift), "shift")


# ---------------------------------------------------------------- prices


def with_prices(small: Small, name: str, prices: np.ndarray) -> tuple[Certificate, dict[str, np.ndarray]]:
    digests = {**small.certificate.price_files, name: price_digest(prices)}
    return replace(small.certificate, price_files=digests), {**small.prices, name: prices}


@pytest.mark.parametrize("price", [-1.0, -5e-324, np.nan, np.inf, 1e301])
def test_prices_must_be_prices(small: Small, price: float) -> None:
    bent = small.prices["a"].copy()
    bent[0, 0] = price
    forged, prices = with_prices(small, "a", bent)
    refuted(small, forged, "price is negative or no number", prices)


@pytest.mark.parametrize("price", [0.0, 5e-324, 1e-300, 1e6, 1e150, 1e299])
def test_any_other_price_is_sound(small: Small, price: float) -> None:
    bent = small.prices["a"].copy()
    bent[:, 0] = price
    forged, prices = with_prices(small, "a", bent)
    never_above(small, forged, prices)


def test_prices_of_another_row(small: Small) -> None:
    forged, prices = with_prices(small, "a", small.prices["a"][:, ::-1].copy())
    never_above(small, forged, prices)


def test_price_vector_that_is_not_there(small: Small) -> None:
    leaves = tuple(replace(leaf, prices=leaf.prices + 1000) for leaf in small.certificate.leaves)
    refuted(small, replace(small.certificate, leaves=leaves), "no such row")


# ---------------------------------------------------------------- cells and counts


def test_missing_and_doubled_leaves(small: Small) -> None:
    leaves = small.certificate.leaves
    assert len(leaves) > 2
    for i in range(len(leaves)):
        less = (*leaves[:i], *leaves[i + 1 :])
        refuted(small, replace(small.certificate, leaves=less), "not covered|is missing")
        refuted(small, replace(small.certificate, leaves=(*leaves, leaves[i])), "same path")
        refuted(small, replace(small.certificate, leaves=(*less, leaves[i - 1])), "same path")


def test_leaf_that_ends_early_or_goes_on(small: Small) -> None:
    leaves = small.certificate.leaves
    root = small.certificate.root
    k = small.certificate.n_clusters
    proof = next(cell.proof for leaf in leaves for cell in leaf.cells if cell.proof is not None)
    whole = replace(leaves[0], path=(), cells=(CellProof(root[0], root[1], k, 0.0, proof),))
    refuted(small, replace(small.certificate, leaves=(whole, *leaves)), "parts|continues")
    refuted(small, replace(small.certificate, leaves=(*leaves, whole)), "continues")


def test_counts_that_do_not_add_up(small: Small) -> None:
    leaf = small.certificate.leaves[0]
    i = next(i for i, cell in enumerate(leaf.cells) if cell.count > 0)
    fewer = (*leaf.cells[:i], replace(leaf.cells[i], count=leaf.cells[i].count + 1), *leaf.cells[i + 1 :])
    forged = replace(small.certificate, leaves=(replace(leaf, cells=fewer), *small.certificate.leaves[1:]))
    refuted(small, forged, "count|is not the cell")


@pytest.mark.parametrize("step", [(0, 0, 1e9, 1), (0, 0, -1e9, 1), (0, 5, 0.0, 1), (3, 0, 0.0, 1), (0, 0, 0.0, 99)])
def test_branches_outside(small: Small, step: tuple[int, int, float, int]) -> None:
    leaf = small.certificate.leaves[0]
    forged = replace(leaf, path=(step, *leaf.path[1:]))
    refuted(small, replace(small.certificate, leaves=(forged, *small.certificate.leaves[1:])), "leaf")


# ---------------------------------------------------------------- trees of boxes, on rows 0 and 1 with one centroid


def one_cell(records: list[tuple[int, int, int, float, float]], prices: float = 1.0, **changes: Any) -> Certificate:
    kind, axis, side, value, mu = (list(part) for part in zip(*records))
    integers = [np.array(part, dtype=np.int32) for part in (kind, axis, side)]
    tree = BoxTree(*integers, np.array(value, dtype=float), np.array(mu, dtype=float), None)
    digest = price_digest(np.full((1, 2), prices))
    leaf = LeafProof((), 0, None, 0.0, 0.0, (CellProof(LINE[0], LINE[1], 1, changes.pop("target", 0.0), tree),))
    plain = Certificate(
        1, ("a",), ("x0",), LINE, np.zeros(1), np.eye(1), 1.0, LINE, 31 / 64, np.array([[0.5]]), None, None, 0.0,
        (replace(leaf, bound=-1e9),), {"a": digest}, 0.0, 0.5, 1.0,
    )  # fmt: skip
    return replace(plain, **changes)


def check(certificate: Certificate, prices: float = 1.0, **more: Any) -> Any:
    return verify(certificate, {"a": LINE}, {"a": np.full((1, 2), prices)}, **more)


@pytest.mark.parametrize(
    "records",
    [
        [(0, 0, 0, 0.5, 0.0), (3, 0, 0, 0.0, 0.0)],  # a child is missing
        [(3, 0, 0, 0.0, 0.0), (3, 0, 0, 0.0, 0.0)],  # more than the tree
        [(0, 0, 0, 1.5, 0.0), (3, 0, 0, 0.0, 0.0), (3, 0, 0, 0.0, 0.0)],  # split outside the box
        [(0, 0, 0, 0.5, 0.0), (0, 0, 0, 0.7, 0.0), *[(3, 0, 0, 0.0, 0.0)] * 3],  # outside the child
        [(5, 0, 0, 0.0, 0.0), (3, 0, 0, 0.0, 0.0)],  # a run that did not begin
        [(2, 0, 0, 0.5, 0.0), (3, 0, 0, 0.0, 0.0)],  # a run that does not end
        [(2, 0, 0, 0.5, 0.0)],
        [(2, 0, 0, 0.5, 0.0), (5, 0, 0, 0.0, 0.0)],
        [(2, 0, 0, 0.5, 0.0), (0, 0, 0, 0.5, 0.0), (5, 0, 0, 0.0, 0.0)],
        [(2, 0, 0, 2.0, 0.0), (5, 0, 0, 0.0, 0.0), (3, 0, 0, 0.0, 0.0)],  # cuts outside the box
        [(2, 0, 1, -2.0, 0.0), (5, 0, 0, 0.0, 0.0), (3, 0, 0, 0.0, 0.0)],
        [(1, 0, 0, 2.0, 1.0), (5, 0, 0, 0.0, 0.0), (3, 0, 0, 0.0, 0.0)],
        [(1, 0, 0, 0.2, 0.0), (5, 0, 0, 0.0, 0.0), (3, 0, 0, 0.0, 0.0)],  # a cut that does not hold
        [(4, 0, 0, 0.0, 0.0)],  # the box is not empty
        [(4, 0, 1, 0.0, 0.0)],
        [(2, 0, 0, 0.2, 0.0), (2, 0, 1, 0.8, 0.0), (5, 0, 0, 0.0, 0.0), (0, 0, 0, 0.5, 0.0)],  # crossed: CLOSED is due
        [(7, 0, 0, 0.0, 0.0)],
        [(-1, 0, 0, 0.0, 0.0)],
        [(3, 1, 0, 0.0, 0.0)],
        [(3, 0, 2, 0.0, 0.0)],
        [(4, 0, 0, 0.0, -1.0)],
    ],
)
def test_trees_that_are_none(records: list[tuple[int, int, int, float, float]]) -> None:
    with pytest.raises(CertificateInvalid, match="leaf 0, cell 0"):
        check(one_cell(records))


@pytest.mark.parametrize("mu", [0.0, 5e-324, 1e-300, 1e-3, 1.0, 1e3, 1e149])
@pytest.mark.parametrize("target", [0.0, -1e-9, -0.5, -1.0, -1e6])
@pytest.mark.parametrize("price", [0.0, 0.3, 1.0, 4.0, 1e100])
def test_no_cut_proves_more_than_f(mu: float, target: float, price: float) -> None:
    """Every cut at every threshold: t never rises above the least f, here computed on a grid."""
    grid = np.linspace(0.0, 1.0, 1001)
    f = np.minimum(grid**2 - price, 0.0) + np.minimum((1.0 - grid) ** 2 - price, 0.0)
    for at in (0.0, 0.25, 0.5, 0.75, 1.0):
        for kind in (1, 2):
            for side in (0, 1):
                records = [(kind, 0, side, at, mu), (5, 0, 0, 0.0, 0.0), (3, 0, 0, 0.0, 0.0)]
                try:
                    report = check(one_cell(records, price, target=target), price)
                except CertificateInvalid:
                    continue
                assert report.verified
                assert report.lower_bound <= max(2 * price + f.min(), 0.0) + 1e-9 * price
                assert report.lower_bound <= 0.5


def test_closing_at_an_inner_face_is_refused() -> None:
    """Cells [0, 1/4] and [1/4, 1]: the best centroid of the first lies on its face, where the mean is beyond."""
    one, other = np.array([0.25]), np.array([1.0])
    low, prices = np.array([0.0]), np.full((1, 2), 2.0)

    def tree(kind: int, side: int) -> BoxTree:
        part = [np.array([v], dtype=np.int32) for v in (kind, 0, side)]
        return BoxTree(*part, np.zeros(1), np.array([0.0]), None)

    def leaf(below: int, proof: BoxTree | None, above: BoxTree | None) -> LeafProof:
        cells = (CellProof(low, one, below, 0.0, proof), CellProof(one, other, 1 - below, 0.0, above))
        return LeafProof(((0, 0, 0.25, below),), 0, None, 0.0, -1e9, cells)

    base = one_cell([(3, 0, 0, 0.0, 0.0)])
    closed = tree(3, 0)
    honest = replace(
        base, leaves=(leaf(0, None, closed), leaf(1, closed, None)), price_files={"a": price_digest(prices)}
    )  # fmt: skip
    assert verify(honest, {"a": LINE}, {"a": prices}).verified
    for side in (0, 1):
        forged = replace(honest, leaves=(leaf(0, None, closed), leaf(1, tree(4, side), None)))
        with pytest.raises(CertificateInvalid, match=r"inner face|does not hold"):
            verify(forged, {"a": LINE}, {"a": prices})


# ---------------------------------------------------------------- time and memory


def test_time_limit_holds_in_the_cover(monkeypatch: pytest.MonkeyPatch) -> None:
    """Long paths, as many cells: the old cover check ran on for minutes. A second at every look at the clock: whoever
    looks a thousand times while one leaf is replayed keeps any limit."""
    n = 1500
    steps = tuple((i, 0, 1.0, 0) for i in range(n))
    cells = tuple(CellProof(LINE[0], LINE[1], 0, 0.0, None) for _ in range(n + 1))
    base = one_cell([(3, 0, 0, 0.0, 0.0)])
    leaves = tuple(
        LeafProof((*steps[:-1], (n - 1, 0, 1.0, k)), 0, None, 0.0, 0.0, cells) for k in (0, 1, 0, 1, 0, 1, 0, 1)
    )  # fmt: skip
    with monkeypatch.context() as patched:
        patched.setattr(checking, "time", Clock(1.0))
        report = check(replace(base, leaves=leaves), time_limit=1000.0)
    assert not report.finished
    assert report.seconds == 1002.0  # one look past the limit, and one for the report
    with pytest.raises(CertificateInvalid):
        check(replace(base, leaves=leaves))


def test_long_runs_of_cuts_keep_the_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checking, "time", Clock(1.0))
    records = [*[(2, 0, 0, 1.0, 0.0)] * 200_000, (5, 0, 0, 0.0, 0.0), (3, 0, 0, 0.0, 0.0)]
    report = check(one_cell(records), time_limit=1000.0)
    assert not report.finished
    assert report.seconds == 1002.0
