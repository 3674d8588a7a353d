"""Verification without pooling: all sites check and sign what is true, and sign nothing else."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgpack
import numpy as np
import pytest

pytest.importorskip("nvflare")

from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.shareable import Shareable, make_reply

from consentroid.certificate.document import Certificate
from consentroid.certificate.statements import Statements
from consentroid.core.errors import NodeFailed
from consentroid.core.problem import NodeData, Problem
from consentroid.federation.desk import serve
from consentroid.federation.protocol import ASK, Limits
from consentroid.federation.signing import REQUEST, VERIFY
from consentroid.protocol import codec
from consentroid.protocol.messages import Claim, ClaimSums
from consentroid.rowprices.attempts import Attempts
from consentroid.rowprices.engine import Engine
from consentroid.site.guard import Guard
from consentroid.site.policy import Policy
from consentroid.site.worker import SiteWorker
from consentroid.verify import verify
from verified_run import KeepingWire, judged, problem_of
from wire import NODES, OPEN, RUN, SECURE, Wire

GUARDED = Policy(most_questions=10**9)
Masked = tuple[KeepingWire, Certificate, Statements]
Finished = tuple[KeepingWire, Certificate]


# ------------------------------------------------------------------ what is true is verified


def test_a_masked_run_is_verified_by_its_sites(masked: Masked) -> None:
    line, certificate, statements = masked
    assert certificate.sites == NODES
    assert certificate.site_costs is None
    assert all(leaf.totals is None for leaf in certificate.leaves)
    report = judged(certificate, statements)
    assert report.verified
    assert report.lower_bound == pytest.approx(certificate.lower, rel=1e-9)
    pooled = np.concatenate([data.points for data in line.problem.nodes])
    labels = ((pooled[:, None] - certificate.centroids) ** 2).sum(axis=2).min(axis=1)
    assert report.lower_bound <= report.upper_bound
    assert report.upper_bound == pytest.approx(labels.sum(), rel=1e-12)


def test_sites_prove_what_pooled_rows_prove(masked: Masked) -> None:
    """The same checker with all rows at hand: the sites' claims are rounded, and never say more."""
    line, certificate, statements = masked
    rows = {data.name: data.points for data in line.problem.nodes}
    prices = {name: line.kept(name) / f"{RUN}.npz" for name in rows}
    pooled = verify(certificate, rows, prices)
    assert pooled.verified
    report = judged(certificate, statements)
    assert report.lower_bound is not None
    assert pooled.lower_bound is not None
    assert report.lower_bound <= pooled.lower_bound * (1 + 1e-12)


@pytest.mark.parametrize(
    ("secure", "policy"), [(False, OPEN), (True, GUARDED), (False, replace(GUARDED, masks="never"))]
)
def test_other_kinds_of_runs(secure: bool, policy: Policy, tmp_path: Path) -> None:
    """Open sums, and sites that hide small groups."""
    line = KeepingWire(problem_of(), tmp_path, policy, {})
    certificate = line.fit(secure, gap=0.3 if policy.least_rows > 1 else 1e-3)
    report = judged(certificate, line.verify(certificate))
    assert report.verified
    assert report.lower_bound == pytest.approx(certificate.lower, rel=1e-9)


@pytest.mark.usefixtures("pairs_at_once")
@pytest.mark.parametrize(("secure", "policy"), [(False, OPEN), (True, SECURE), (True, GUARDED)])
def test_a_proof_by_prices_on_pairs(
    secure: bool, policy: Policy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bounds of sites add up under masks, and each site checks its own."""
    monkeypatch.setattr(Attempts, "_climb", lambda self, first: None)
    # no search, which would prove more than sites by themselves
    monkeypatch.setattr(Engine, "_limit_search", lambda self, node: setattr(self.session, "leave_at", 0.0))
    line = KeepingWire(problem_of(), tmp_path, policy, {})
    certificate = line.fit(secure, gap=1e-6)
    assert certificate.pairs is not None
    assert certificate.leaves == ()
    assert (certificate.pairs.bounds is None) == secure
    report = judged(certificate, line.verify(certificate))
    assert report.verified
    assert report.lower_bound == pytest.approx(certificate.lower, rel=1e-9 if policy.least_rows == 1 else 2.0**-11)
    rows = {data.name: data.points for data in line.problem.nodes}
    pooled = verify(certificate, rows, {name: line.kept(name) / f"{RUN}.npz" for name in rows})
    assert pooled.verified
    assert report.lower_bound <= pooled.lower_bound * (1 + 1e-12)


def test_a_federation_of_one_site(tmp_path: Path) -> None:
    line = KeepingWire(problem_of(sites=("north",)), tmp_path, OPEN, {})
    certificate = line.fit(secure=False)
    statements = line.verify(certificate)
    assert statements.subject.masks == ""
    assert judged(certificate, statements).verified


@pytest.mark.parametrize("secure", [True, False])
def test_rows_are_scaled_as_in_the_run_and_the_sites_sign_how(secure: bool, tmp_path: Path) -> None:
    line = KeepingWire(problem_of(), tmp_path, SECURE if secure else OPEN, {})
    certificate = line.fit(secure, scale="standard")
    statements = line.verify(certificate)
    assert statements.subject.scaling == json.loads((tmp_path / "recipe.json").read_text())
    assert judged(certificate, statements).lower_bound == pytest.approx(certificate.lower, rel=1e-9)


def test_a_run_that_was_resumed_while_it_was_certified(tmp_path: Path) -> None:
    """Prices were kept in the first job, claims are made in the second: the site stands by both."""
    line = KeepingWire(problem_of(), tmp_path / "kept", SECURE, {})
    line.fit(secure=True)  # compiles what is needed
    line.next_job()

    def silent(line: Wire, name: str, request: Shareable) -> Shareable:
        asked = msgpack.unpackb(request["data"]) if request["call"] == ASK else {"kind": ""}
        if asked["kind"] == REQUEST and getattr(codec.decode_request(asked["content"]), "claim", None) is not None:
            return make_reply(ReturnCode.TIMEOUT)
        return serve(line.desks[name], request)

    (tmp_path / "journal").mkdir()
    line.fault = silent
    with pytest.raises(NodeFailed, match="no sign of life"):
        line.fit(secure=True, journal=tmp_path / "journal", limits=Limits(call=1.0, silence=1.0, slack=30.0))
    line.fault = None
    line.next_job()
    certificate = line.fit(secure=True, journal=tmp_path / "journal")
    assert judged(certificate, line.verify(certificate)).verified


def test_a_lost_reply_is_collected_again(finished: tuple[KeepingWire, Certificate]) -> None:
    """The statement is made once, under masks that serve once."""
    line, certificate = finished
    lost: list[str] = []

    def losing(line: Wire, name: str, request: Shareable) -> Shareable:
        reply = serve(line.desks[name], request)
        if request["call"] == ASK and msgpack.unpackb(request["data"])["kind"] == VERIFY and len(lost) < 2:
            lost.append(request["id"])
            return make_reply(ReturnCode.TIMEOUT)
        return reply

    line.fault = losing
    assert judged(certificate, line.verify(certificate)).verified
    assert len(lost) == 2
    assert len(set(lost)) == 1


def test_shares_look_random_and_tell_nothing_of_one_site(masked: Masked) -> None:
    words = np.concatenate([one.words for one in masked[2].of_sites])
    assert len(words) > 500
    for bit in range(64):
        share = float(np.mean(words >> np.uint64(bit) & np.uint64(1)))
        assert abs(share - 0.5) < 5 * 0.5 / np.sqrt(len(words)), bit


def test_a_verification_tells_nothing_that_the_run_did_not_tell(tmp_path: Path) -> None:
    """The totals of the shares are those of the claims as they were made: loose where groups are small."""
    line = KeepingWire(problem_of(), tmp_path, GUARDED, {})
    certificate = line.fit(secure=True, gap=0.3)
    statements = line.verify(certificate)
    report = judged(certificate, statements)
    guarded = report.lower_bound
    assert report.upper_bound == pytest.approx(certificate.upper, rel=1e-12), "rounded up as in the run"
    rows = {data.name: data.points for data in line.problem.nodes}
    pooled = verify(certificate, rows, {name: line.kept(name) / f"{RUN}.npz" for name in rows}).lower_bound
    assert guarded is not None
    assert pooled is not None
    assert guarded <= pooled
    assert guarded == pytest.approx(certificate.lower, rel=1e-9), "the run's own numbers, not the rows' exact ones"


# ------------------------------------------------------------------ what a site refuses to sign


def refusal(line: KeepingWire, certificate: Certificate) -> NodeFailed:
    with pytest.raises(NodeFailed) as caught:
        line.verify(certificate)
    return caught.value


def test_a_site_with_other_rows_signs_nothing(finished: Finished) -> None:
    line, certificate = finished
    nodes = [
        data if data.name != "south" else NodeData(data.name, data.points + [[1e-12, 0.0]], data.weights)  # noqa: RUF005
        for data in line.problem.nodes
    ]
    line.problem = Problem.checked({d.name: d.points for d in nodes}, 3, line.problem.domain)
    refused = refusal(line, certificate)
    assert refused.node == "south"
    assert "rows are not those of the run" in refused.reason
    assert "north, west found their own numbers to hold" in refused.reason


@pytest.mark.parametrize("suffix", [".npz", ".claims"])
def test_a_site_without_prices_or_claims_signs_nothing(suffix: str, finished: Finished) -> None:
    line, certificate = finished
    (line.kept("west") / f"{RUN}{suffix}").unlink()
    refused = refusal(line, certificate)
    assert refused.node == "west"
    assert "keeps no prices" in refused.reason or "does not hold" in refused.reason


def test_torn_claims_sign_nothing(finished: Finished) -> None:
    line, certificate = finished
    path = line.kept("west") / f"{RUN}.claims"
    path.write_bytes(path.read_bytes()[:-200])
    assert refusal(line, certificate).node == "west"


def _branch(certificate: Certificate, change: Callable[[np.ndarray], np.ndarray], field: str) -> Certificate:
    leaf = certificate.leaves[0]
    cell = leaf.cells[0]
    assert cell.proof is not None
    proof = replace(cell.proof, **{field: change(getattr(cell.proof, field).copy())})
    cells = (replace(cell, proof=proof), *leaf.cells[1:])
    return replace(certificate, leaves=(replace(leaf, cells=cells), *certificate.leaves[1:]))


FISHING: dict[str, Callable[[Certificate], Certificate]] = {
    "boxes that were not asked about": lambda one: _branch(one, lambda value: value + 1e-3, "value"),
    "cuts that were not asked about": lambda one: _branch(one, lambda mu: mu * 1.01, "mu"),
    "other coordinates": lambda one: replace(one, origin=one.origin + 0.25),
    "another shift": lambda one: replace(one, shift=one.shift / 2),
    "another price file": lambda one: replace(one, price_files=one.price_files | {"north": "0" * 64}),
    "another domain": lambda one: replace(one, domain=np.stack([one.domain[0] * 0, one.domain[1]])),
    "more clusters": lambda one: replace(one, n_clusters=51, centroids=np.repeat(one.centroids, 17, axis=0)),
}


@pytest.mark.parametrize("bait", FISHING)
def test_a_certificate_that_fishes_gets_no_answer(bait: str, finished: Finished) -> None:
    """Made up to have sites compute what the run did not ask, or compare their rows with something."""
    line, certificate = finished
    refused = refusal(line, FISHING[bait](certificate))
    rows = np.concatenate([data.points for data in line.problem.nodes])
    assert not any(f"{x:.6g}" in refused.reason for x in rows.ravel()), "a refusal tells no value"


class Boaster(SiteWorker):
    """Claims more than its rows say, in the run."""

    def __init__(self, data: NodeData, features: tuple[str, ...], prices: Path, guard: Guard) -> None:
        super().__init__(data, features, prices, guard)
        honest_claim = self._prices.claim

        def claim(request: Claim) -> ClaimSums:
            sums = honest_claim(request)
            sums.minorants[:, -1] += 1e-6 * np.abs(sums.minorants[:, -1])
            return sums

        self._prices.claim = claim  # type: ignore[method-assign]


@pytest.mark.parametrize("secure", [True, False])
def test_a_claim_above_the_rows_own_number_is_not_signed(secure: bool, tmp_path: Path) -> None:
    workers = {"south": lambda data, prices, guard: Boaster(data, ("x", "y"), prices, guard)}
    line = KeepingWire(problem_of(), tmp_path, SECURE if secure else OPEN, workers)
    refused = refusal(line, line.fit(secure))
    assert refused.node == "south"
    assert "does not hold on this site's rows" in refused.reason


def test_claims_in_the_certificate_that_a_site_did_not_make(tmp_path: Path) -> None:
    """An open run: even a lower claim is not the site's, and would answer a question by its refusal or not."""
    line = KeepingWire(problem_of(), tmp_path, OPEN, {})
    certificate = line.fit(secure=False)
    for factor in (1e-6, -1e-6):
        forged = _branch(certificate, lambda claims, factor=factor: claims - factor * np.abs(claims), "claims")
        assert "does not hold" in refusal(line, forged).reason


def test_without_masks_there_is_no_statement(finished: Finished) -> None:
    from consentroid.protocol.messages import Failure

    line, certificate = finished
    line.next_job()
    transport = line.transport()
    text = json.dumps(certificate.to_json()).encode()
    try:
        for answer in transport.ask(VERIFY, [text] * 3):
            assert not isinstance(answer, Failure)
            assert b"no masks have been agreed on" in answer
    finally:
        transport.close()
