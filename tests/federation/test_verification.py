"""Verification without pooling: all sites check and sign, and what is forged, mixed or missing is never verified."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgpack
import numpy as np
import pytest

pytest.importorskip("nvflare")

from click.testing import Result
from cryptography import x509
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.shareable import Shareable, make_reply
from typer.testing import CliRunner

from consentroid.certificate.document import Certificate
from consentroid.certificate.signatures import Root
from consentroid.certificate.statements import NotSigned, Statement, Statements
from consentroid.cli.main import app
from consentroid.core.errors import CertificateInvalid, InvalidInput, NodeFailed
from consentroid.core.problem import NodeData, Problem
from consentroid.federation.desk import serve
from consentroid.federation.protocol import ASK, Limits
from consentroid.federation.signing import REQUEST, VERIFY, Signer
from consentroid.federation.verification import write_statements
from consentroid.protocol import codec
from consentroid.protocol.messages import Claim, ClaimSums
from consentroid.site.guard import Guard
from consentroid.site.policy import Policy
from consentroid.site.worker import SiteWorker
from consentroid.verify import verify
from keys import SERVER, revoked, startup
from verified_run import ROOT, KeepingWire, judged, problem_of
from wire import NODES, OPEN, RUN, SECURE, Wire

GUARDED = Policy(most_questions=10**9)


@pytest.fixture(scope="module")
def masked(tmp_path_factory: pytest.TempPathFactory) -> tuple[KeepingWire, Certificate, Statements]:
    line = KeepingWire(problem_of(), tmp_path_factory.mktemp("kept"), SECURE, {})
    certificate = line.fit(secure=True)
    return line, certificate, line.verify(certificate)


Masked = tuple[KeepingWire, Certificate, Statements]


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


# ------------------------------------------------------------------ what is forged is not


def test_a_forged_bound_is_refuted_even_if_all_sites_sign(masked: Masked) -> None:
    """A site knows its own numbers only; the sum of all tells."""
    line, certificate, _ = masked
    lower = 0.5 * (certificate.lower + certificate.upper)
    for forged in (
        replace(certificate, lower=lower, gap=(certificate.upper - lower) / certificate.upper),
        replace(certificate, upper=certificate.upper * 1.01, gap=1 - certificate.lower / certificate.upper / 1.01),
        replace(certificate, leaves=(replace(certificate.leaves[0], total=certificate.leaves[0].total * 1.1),)),
    ):
        with pytest.raises(CertificateInvalid, match="is stated"):
            judged(forged, line.verify(forged))


def swapped(one: Statements) -> Statements:
    first, second, *rest = one.of_sites
    return replace(one, of_sites=(replace(second, site=first.site), replace(first, site=second.site), *rest))


def flipped(change: Callable[[Statement], Statement]) -> Callable[[Statements], Statements]:
    return lambda one: replace(one, of_sites=(*one.of_sites[:2], change(one.of_sites[2])))


def bit(data: bytes, place: int = 20) -> bytes:
    return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]


def _added(statement: Statement) -> Statement:
    words = statement.words.copy()
    words[5] += np.uint64(1)
    return replace(statement, words=words)


FORGERIES: dict[str, Callable[[Statements], Statements]] = {
    "swapped": swapped,
    "in another order": lambda one: replace(one, of_sites=one.of_sites[::-1]),
    "one missing": lambda one: replace(one, of_sites=one.of_sites[:2]),
    "one twice": lambda one: replace(one, of_sites=(*one.of_sites[:2], one.of_sites[1])),
    "none": lambda one: replace(one, of_sites=()),
    "a number": flipped(_added),
    "the time": flipped(lambda s: replace(s, time=s.time + 1)),
    "the signature": flipped(lambda s: replace(s, signature=bit(s.signature))),
    "no signature": flipped(lambda s: replace(s, signature=b"")),
    "the certificate": flipped(lambda s: replace(s, certificate=bit(s.certificate))),
    "shorter": flipped(lambda s: replace(s, words=s.words[:-2])),
    "units": lambda one: replace(one, subject=replace(one.subject, quanta=tuple(q + 1 for q in one.subject.quanta))),
    "scaling": lambda one: replace(one, subject=replace(one.subject, scaling={"scale": "standard"})),
    "masks": lambda one: replace(one, subject=replace(one.subject, masks="0" * 64)),
    "no masks": lambda one: replace(one, subject=replace(one.subject, masks="")),
    "fingerprint": lambda one: replace(one, subject=replace(one.subject, fingerprint="0" * 64)),
    "sites": lambda one: replace(one, subject=replace(one.subject, sites=("north", "south", "east"))),
}


@pytest.mark.parametrize("forgery", FORGERIES)
def test_altered_statements_do_not_count(forgery: str, masked: Masked) -> None:
    _, certificate, statements = masked
    with pytest.raises(NotSigned):
        judged(certificate, FORGERIES[forgery](statements))


def test_statements_do_not_count_for_another_certificate(masked: Masked) -> None:
    _, certificate, statements = masked
    lower = certificate.lower * 0.9  # even a weaker one
    other = replace(certificate, lower=lower, gap=(certificate.upper - lower) / certificate.upper)
    with pytest.raises(NotSigned, match="signed for the certificate"):
        judged(other, statements)


def test_statements_of_two_verifications_do_not_mix(masked: Masked) -> None:
    """A site's statement replayed: its masks do not cancel, and the others signed other keys."""
    line, certificate, statements = masked
    again = line.verify(certificate)
    assert judged(certificate, again).verified
    mixed = replace(again, of_sites=(statements.of_sites[0], *again.of_sites[1:]))
    with pytest.raises(NotSigned, match="signature does not fit"):
        judged(certificate, mixed)


def signed_by(statements: Statements, folder: Path, name: str, **how: object) -> Statements:
    """The last site's statement, signed by somebody else."""
    where = startup(folder / "forger", name, **how)  # type: ignore[arg-type]
    signer = Signer.of_server(where) if name == SERVER else Signer.of_site(where)
    plain = replace(statements.of_sites[2], certificate=signer.certificate)
    forged = replace(plain, signature=signer.sign(plain.signed(statements.subject)))
    return replace(statements, of_sites=(*statements.of_sites[:2], forged))


@pytest.mark.parametrize(
    ("name", "how", "reason"),
    [
        ("south", {}, "not signed by 'west'"),  # another site of the federation
        (SERVER, {}, "not signed by 'west'"),  # the coordinator
        ("west", {"root": "another root"}, "no certificate of this federation"),
        ("west", {"days": (-30, -1)}, "not valid today"),
        ("west", {"days": (1, 30)}, "not valid today"),
    ],
)
def test_others_cannot_sign_for_a_site(
    name: str, how: dict[str, object], reason: str, masked: Masked, tmp_path: Path
) -> None:
    with pytest.raises(NotSigned, match=reason):
        judged(masked[1], signed_by(masked[2], tmp_path, name, **how))


def test_another_root_verifies_nothing(masked: Masked, tmp_path: Path) -> None:
    """Everything forged, with a root of the forger's own: it counts under that root and under no other."""
    other = startup(tmp_path / "kit", "north", root="forger's root") / "rootCA.pem"
    with pytest.raises(NotSigned, match="no certificate of this federation"):
        judged(masked[1], masked[2], other)
    with pytest.raises(InvalidInput, match="no root certificate"):
        judged(masked[1], masked[2], tmp_path / "nowhere.pem")


# ------------------------------------------------------------------ what a site refuses to sign


def refusal(line: KeepingWire, certificate: Certificate) -> NodeFailed:
    with pytest.raises(NodeFailed) as caught:
        line.verify(certificate)
    return caught.value


@pytest.fixture
def finished(masked: Masked, tmp_path: Path) -> tuple[KeepingWire, Certificate]:
    """The same run with files that a test may spoil."""
    line = KeepingWire(masked[0].problem, tmp_path, SECURE, {})
    for name in NODES:
        for path in masked[0].kept(name).iterdir():
            (line.kept(name) / path.name).write_bytes(path.read_bytes())
    return line, masked[1]


Finished = tuple[KeepingWire, Certificate]


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


# ------------------------------------------------------------------ files from elsewhere


@pytest.mark.parametrize(
    "change",
    [
        {"consentroid_statements": 2}, {"fingerprint": "x"}, {"sites": "north"}, {"quanta": [0, 0, 0, 0]},
        {"quanta": [0, 0, 0, 0, 701]}, {"quanta": [0.0] * 5}, {"masks": "y"}, {"scaling": []}, {"statements": {}},
        {"statements": [{}]}, {"more": 1},
        {"statements": [{"site": "a", "time": 1, "words": "*", "certificate": "", "signature": ""}]},
    ],
)  # fmt: skip
def test_files_of_statements_are_read_strictly(change: dict[str, object], masked: Masked) -> None:
    with pytest.raises(NotSigned, match="statements"):
        Statements.from_json(masked[2].to_json() | change)


# ------------------------------------------------------------------ the command, offline


def offline(folder: Path, *options: object) -> Result:
    command = ["verify", str(folder / "certificate.json"), "--root", str(ROOT), *map(str, options)]
    return CliRunner().invoke(app, command)


@pytest.fixture
def written(masked: Masked, tmp_path: Path) -> Path:
    masked[1].write(tmp_path / "certificate.json")
    write_statements(tmp_path / "statements.json", masked[2])
    return tmp_path


def test_the_command_says_who_verified_and_under_which_root(written: Path, masked: Masked) -> None:
    called = offline(written)
    assert called.exit_code == 0, called.output
    assert "Verified by north, south, west: no clustering of their rows into 3 clusters" in called.output
    assert Root.of_files(ROOT).fingerprint in called.output
    told = json.loads(offline(written, "--json").stdout)
    assert told["outcome"] == "verified"
    assert told["verified_by"] == list(NODES)
    assert told["fingerprint"] == masked[1].fingerprint
    assert told["lower_bound"] <= told["upper_bound"]


def test_without_a_root_statements_verify_nothing(written: Path) -> None:
    called = CliRunner().invoke(app, ["verify", str(written / "certificate.json")])
    assert called.exit_code == 4
    assert "Incomplete, not verified" in called.output
    assert "give --root" in called.output


def test_missing_or_foreign_statements_are_incomplete(written: Path, masked: Masked) -> None:
    for change in ("one missing", "a number", "swapped"):
        write_statements(written / "statements.json", FORGERIES[change](masked[2]))
        called = offline(written, "--json")
        assert called.exit_code == 4
        assert json.loads(called.stdout)["outcome"] == "incomplete"
    (written / "statements.json").unlink()
    called = offline(written)
    assert called.exit_code == 4
    assert "Not verified: cannot read" in called.output.replace("\n", " ")


def test_sums_that_prove_less_than_is_stated_refute(masked: Masked, tmp_path: Path) -> None:
    line, certificate, _ = masked
    lower = 0.5 * (certificate.lower + certificate.upper)
    forged = replace(certificate, lower=lower, gap=(certificate.upper - lower) / certificate.upper)
    forged.write(tmp_path / "certificate.json")
    write_statements(tmp_path / "statements.json", line.verify(forged))
    called = offline(tmp_path, "--json")
    assert called.exit_code == 1
    assert json.loads(called.stdout)["outcome"] == "refuted"


def test_a_revoked_site_verifies_nothing(written: Path, masked: Masked) -> None:
    signer = x509.load_der_x509_certificate(masked[2].of_sites[1].certificate)
    (written / "revoked.pem").write_bytes(revoked("root", of=signer))
    called = offline(written, "--revoked", written / "revoked.pem")
    assert called.exit_code == 4
    assert "certificate of 'south' is revoked" in called.output
    (written / "revoked.pem").write_bytes(revoked("root"))
    assert offline(written, "--revoked", written / "revoked.pem").exit_code == 0
    for bad in (revoked("root", root="another root"), revoked("another root"), b"junk"):
        (written / "revoked.pem").write_bytes(bad)
        assert isinstance(offline(written, "--revoked", written / "revoked.pem").exception, InvalidInput)
    assert isinstance(offline(written, "--revoked", written / "nowhere.pem").exception, InvalidInput)


def test_statements_or_rows_not_both(written: Path) -> None:
    assert isinstance(offline(written, "--node", "north=rows.csv").exception, InvalidInput)
