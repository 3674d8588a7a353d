"""Claims of sites that do not report groups of few rows: looser than what the rows say, and true."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from consentroid.certificate.document import Certificate
from consentroid.core.errors import CertificateInvalid
from consentroid.core.problem import NodeData
from consentroid.fitting import run
from consentroid.site.guard import Guard
from consentroid.site.worker import SiteWorker
from consentroid.transport.inprocess import InProcessTransport
from consentroid.verify import verify

ROWS = {name: np.random.default_rng(i).normal(4 * i, 1.0, size=(25, 2)) for i, name in enumerate("abc")}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Certificate, dict[str, Path]]:
    folder = tmp_path_factory.mktemp("prices")
    files = {name: folder / f"{name}.npz" for name in ROWS}
    workers = [SiteWorker(NodeData.checked(name, ROWS[name]), (), files[name], Guard(5)) for name in ROWS]
    return run(InProcessTransport(workers), 3, gap=0.2).certificate, files


@pytest.mark.parametrize("sites", ["a", "b", "c", "abc"])
def test_guarded_claims_hold(sites: str, guarded: tuple[Certificate, dict[str, Path]]) -> None:
    certificate, files = guarded
    report = verify(certificate, {name: ROWS[name] for name in sites}, {name: files[name] for name in sites})
    assert [site.checked for site in report.sites] == [name in sites for name in ROWS]


def test_in_rows_that_are_not_told_must_be_paid_for_in_the_cuts(guarded: tuple[Certificate, dict[str, Path]]) -> None:
    """The same claims with cuts as if the rows had been told: the pair says more than the rows do."""
    certificate, files = guarded
    cell = next(
        cell for leaf in certificate.leaves for cell in leaf.cells if cell.proof is not None and 1 in cell.proof.kind
    )
    assert cell.proof is not None
    assert cell.proof.claims is not None
    claims = cell.proof.claims.copy()
    width = len(certificate.features) + 2
    cuts = claims[:, 0, 2 * width :]
    cuts -= 1e-3 * np.abs(cuts)
    forged_cell = replace(cell, proof=replace(cell.proof, claims=claims))
    leaves = tuple(
        replace(leaf, cells=tuple(forged_cell if one is cell else one for one in leaf.cells))
        for leaf in certificate.leaves
    )
    with pytest.raises(CertificateInvalid, match="its rows say less"):
        verify(replace(certificate, leaves=leaves), {"a": ROWS["a"]}, {"a": files["a"]})
