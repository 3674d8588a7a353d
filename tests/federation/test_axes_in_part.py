"""Certificates that rest on moments, too: sites tell and sign their share of them, masked or in the open."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("nvflare")

from consentroid.core.errors import CertificateInvalid, NodeFailed
from consentroid.core.problem import Domain, Problem
from consentroid.rowprices import engine, session
from consentroid.site.policy import Policy
from consentroid.verify import verify
from verified_run import KeepingWire, judged, problem_of
from wire import OPEN, RUN, SECURE


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch, without_pairs: None) -> None:
    """The search of all axes is given up as soon as it begins."""
    monkeypatch.setattr(engine, "SEARCH_UNTIL", 0.0)
    monkeypatch.setattr(engine, "SEARCH_FOR", -1.0)
    monkeypatch.setattr(session, "NEARLY", -1.0)
    monkeypatch.setattr(session, "PART", -1.0)


@pytest.mark.parametrize(
    ("secure", "policy", "gap"),
    [(True, SECURE, 1e-3), (False, OPEN, 1e-3), (True, Policy(most_questions=10**9), 0.3)],
)
def test_sites_verify_what_rests_on_their_moments(secure: bool, policy: Policy, gap: float, tmp_path: Path) -> None:
    line = KeepingWire(problem_of(), tmp_path, policy, {})
    certificate = line.fit(secure, n_clusters=2, gap=gap)
    assert certificate.rest is not None
    assert (certificate.rest.moments is None) == secure
    report = judged(certificate, line.verify(certificate))
    assert report.verified
    assert report.lower_bound == pytest.approx(certificate.lower, rel=1e-8)
    rows = {data.name: data.points for data in line.problem.nodes}
    prices = {name: line.kept(name) / f"{RUN}.npz" for name in rows}
    pooled = verify(certificate, rows, prices)
    assert pooled.verified
    assert report.lower_bound is not None
    assert pooled.lower_bound is not None
    assert report.lower_bound <= pooled.lower_bound * (1 + 1e-9)


def test_rows_far_from_the_origin(tmp_path: Path) -> None:
    """What a weight can be off by is not charged to squares of the whole domain."""
    near = problem_of()
    rows = {node.name: node.points + 1e4 for node in near.nodes}
    line = KeepingWire(
        Problem.checked(rows, 3, domain=Domain(np.full(2, 9e3), np.full(2, 1.1e4))), tmp_path, SECURE, {}
    )
    certificate = line.fit(secure=True, n_clusters=2, gap=1e-3)
    assert certificate.rest is not None
    assert judged(certificate, line.verify(certificate)).verified


def test_more_than_the_moments_bear_is_not_verified(tmp_path: Path) -> None:
    line = KeepingWire(problem_of(), tmp_path, SECURE, {})
    certificate = line.fit(secure=True, n_clusters=2, gap=1e-3)
    rest = certificate.rest
    assert rest is not None
    forged = replace(certificate, rest=replace(rest, bound=rest.bound + 1e-6 * certificate.upper))
    with pytest.raises((CertificateInvalid, NodeFailed)):
        judged(forged, line.verify(forged))
    moments = np.zeros((3, 7))  # claims that no site made
    claimed = replace(certificate, rest=replace(rest, moments=moments))
    with pytest.raises((CertificateInvalid, NodeFailed)):
        judged(claimed, line.verify(claimed))
