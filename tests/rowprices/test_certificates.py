"""The engine's certificates pass the independent checker; bent and resealed ones are never believed."""

from __future__ import annotations

import copy
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from consentroid.certificate.document import CellProof, Certificate, LeafProof, fingerprint_of
from consentroid.core.errors import CertificateInvalid, InvalidInput
from consentroid.protocol.messages import Evaluate, PriceQuery
from consentroid.rowprices.cells import frontier
from consentroid.rowprices.proof import certify_tree
from consentroid.verify import verify
from oracle import clustering_optimum
from priced_nodes import Prices
from row_problems import KINDS, Solved, solved

SEEDS = range(8 * len(KINDS))
pytestmark = pytest.mark.xdist_group("solved")  # with `test_truth.py`, whose problems these are


@pytest.mark.parametrize("block", range(8))
def test_every_certificate_passes(block: int) -> None:
    for seed in range(block * len(KINDS), (block + 1) * len(KINDS)):
        one = solved(seed)
        certificate, problem, result = one.result.certificate, one.problem, one.result
        if certificate is None:
            continue
        if result.bound_from == "row prices":
            assert certificate.lower == result.lower_bound, seed
        assert certificate.lower <= result.lower_bound, seed
        assert certificate.upper == result.upper_bound, seed
        report = verify(certificate, problem.rows, one.prices, problem.weights)
        assert report.verified, seed
        assert report.lower_bound is not None
        assert report.upper_bound is not None
        assert Fraction(report.lower_bound) <= problem.optimum <= Fraction(report.upper_bound), seed
        assert report.lower_bound >= certificate.lower - 2e-9 * result.upper_bound, seed
        if len(problem.rows) == 1:
            continue
        for name, rows in problem.rows.items():
            part = verify(certificate, {name: rows}, one.prices, {name: problem.weights[name]})
            assert not part.verified
            assert part.lower_bound is None
            assert part.conditional_bound is not None
            assert Fraction(part.conditional_bound) <= problem.optimum, seed


@pytest.mark.parametrize("seed", range(12))
def test_certificates_with_cells_pass_and_are_true(seed: int) -> None:
    """Branches made by hand, twice: cells with faces, counts of 0, cells without any row."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(7, 1 + seed % 2)) if seed % 3 else rng.integers(0, 4, size=(7, 2)) * 1.0
    k = min(2 + seed % 2, len(np.unique(x, axis=0)))
    rows = {"a": x[:3], "b": x[3:]}
    prices = Prices(rows, k)
    root, parent = prices.root, prices.priced(prices.root, None)
    root.bound = -1.0  # not even a trivial bound: only the branches count
    for depth, node in enumerate((root, None)):
        node = node or max(root.children, key=lambda child: min(cell.count for cell in child.cells))
        cell = int(np.argmax([one.count for one in node.cells]))
        axis = int(rng.integers(x.shape[1]))
        low, high = node.cells[cell].lower[axis], node.cells[cell].upper[axis]
        for child in node.branch(cell, axis, float(low + rng.uniform(0.2, 0.8) * (high - low))):
            child.bound = -1.0 + 0.1 * depth
            prices.priced(child, parent)
    leaves = frontier(root)
    assert len(leaves) > 2
    session, engine = prices.session, prices.engine
    replies = session.totals.ask_each(PriceQuery(0, evaluate=Evaluate(session.centroids[None])))
    session.site_costs = np.array([reply.evaluated.costs[0] for reply in replies])
    certificate = certify_tree(session, root, engine.root_cell, list(rows), [f"f{d}" for d in range(x.shape[1])])
    optimum = clustering_optimum(x, np.ones(len(x)), k)
    assert Fraction(certificate.lower) <= optimum <= Fraction(certificate.upper)
    assert certificate.lower >= float(optimum) * (1 - 1e-2) - 1e-5 * certificate.upper  # branching only helps
    kept = prices.kept([leaf.slot for leaf in leaves])
    report = verify(certificate, rows, kept)
    assert report.verified
    assert report.lower_bound is not None
    assert Fraction(report.lower_bound) <= optimum
    for name in rows:
        assert not verify(certificate, {name: rows[name]}, kept).verified


# ---------------------------------------------------------------- forgeries


def raise_lower(certificate: Certificate, rng: np.random.Generator) -> Certificate:
    """One per cent more, everywhere where it is stated."""
    lower = min(certificate.lower * 1.01 + 1e-3 * certificate.upper, certificate.upper)
    lift = (lower - certificate.lower) * certificate.scale**2
    leaves = tuple(replace(leaf, bound=leaf.bound + lift, total=leaf.total + lift) for leaf in certificate.leaves)
    if rng.random() < 0.5:

        def lifted(cell: CellProof) -> CellProof:
            return replace(cell, target=min(cell.target + lift, 0.0))

        leaves = tuple(with_cells(leaf, lifted) for leaf in leaves)
    gap = (certificate.upper - lower) / certificate.upper if certificate.upper else 0.0
    return replace(certificate, lower=lower, gap=gap, leaves=leaves)


def with_cells(leaf: LeafProof, change) -> LeafProof:
    return replace(leaf, cells=tuple(change(cell) for cell in leaf.cells))


def with_trees(certificate: Certificate, change) -> Certificate:
    def cell_changed(cell: CellProof) -> CellProof:
        return cell if cell.proof is None else replace(cell, proof=change(cell.proof))

    return replace(certificate, leaves=tuple(with_cells(leaf, cell_changed) for leaf in certificate.leaves))


def shift_threshold(certificate: Certificate, rng: np.random.Generator) -> Certificate:
    """Cuts remove more than they may."""
    size = float((certificate.root[1] - certificate.root[0]).max())

    def shifted(tree):
        cuts = np.flatnonzero(np.isin(tree.kind, (1, 2)))
        value = tree.value.copy()
        if len(cuts):
            i = cuts[rng.integers(len(cuts))]
            value[i] += size * rng.choice([1e-3, 0.05, 0.5]) * (1.0 if tree.side[i] else -1.0)
        return replace(tree, value=value)

    return with_trees(certificate, shifted)


def drop_leaf(certificate: Certificate, rng: np.random.Generator) -> Certificate:
    """A split whose upper half is forgotten, or a leaf of the tree of cells."""
    if len(certificate.leaves) > 1:
        leaves = list(certificate.leaves)
        del leaves[rng.integers(len(leaves))]
        return replace(certificate, leaves=tuple(leaves))

    def without(tree):
        kept = np.ones(len(tree.kind), dtype=bool)
        ends = np.flatnonzero(tree.kind >= 3)
        kept[ends[rng.integers(len(ends))]] = False
        parts = (tree.kind[kept], tree.axis[kept], tree.side[kept], tree.value[kept], tree.mu[kept])
        return replace(tree, kind=parts[0], axis=parts[1], side=parts[2], value=parts[3], mu=parts[4])

    return with_trees(certificate, without)


def swap_counts(certificate: Certificate, rng: np.random.Generator) -> Certificate:
    """Fewer centroids than there are, or in another cell."""

    def changed(leaf: LeafProof) -> LeafProof:
        counts = [cell.count for cell in leaf.cells]
        counts = counts[1:] + counts[:1] if len(set(counts)) > 1 else [max(count - 1, 0) for count in counts]
        cells = [replace(cell, count=count) for cell, count in zip(leaf.cells, counts, strict=True)]
        return replace(leaf, cells=tuple(cells))

    return replace(certificate, leaves=tuple(changed(leaf) for leaf in certificate.leaves))


def make_up_closings(certificate: Certificate, rng: np.random.Generator) -> Certificate:
    """A record of one kind passed off as another."""

    def changed(tree):
        kind = tree.kind.copy()
        kind[rng.integers(len(kind))] = rng.integers(0, 6)
        return replace(tree, kind=kind)

    return with_trees(certificate, changed)


FORGERS = (shift_threshold, drop_leaf, swap_counts, make_up_closings)


def believed(one: Solved, forged: Certificate) -> bool:
    """Whether the checker states more than the optimum, or accepts a certificate that does."""
    try:
        document: dict[str, Any] = copy.deepcopy(forged.to_json())
        document["fingerprint"] = fingerprint_of(document)
        report = verify(document, one.problem.rows, one.prices, one.problem.weights)
    except (CertificateInvalid, InvalidInput, ValueError):
        return False
    stated = report.lower_bound if report.lower_bound is not None else 0.0
    accepted = report.verified and Fraction(forged.lower) > one.problem.optimum * (1 + Fraction(1, 10**8))
    return Fraction(stated) > one.problem.optimum or accepted


def test_forged_certificates_are_never_believed() -> None:
    rng = np.random.default_rng(1)
    forged = refused = 0
    for seed in SEEDS:
        one = solved(seed)
        certificate = one.result.certificate
        if certificate is None or one.result.lower_bound == 0.0:
            continue
        for forge in (None, *FORGERS):
            bent = certificate if forge is None else forge(certificate, rng)
            forged += 1
            assert not believed(one, raise_lower(bent, rng)), (seed, forge)
            if forge is not None:  # the same proof without a higher claim: may hold, must be true
                assert not believed(one, bent), (seed, forge)
            refused += 1
    assert forged == refused
    assert forged > 200
