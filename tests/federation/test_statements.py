"""Statements of sites: what is forged, mixed or missing is never verified, and anybody can check them offline."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("nvflare")

from click.testing import Result
from cryptography import x509
from typer.testing import CliRunner

from consentroid.certificate.document import Certificate
from consentroid.certificate.signatures import Root
from consentroid.certificate.statements import NotSigned, Statement, Statements
from consentroid.cli.main import app
from consentroid.core.errors import CertificateInvalid, InvalidInput
from consentroid.federation.signing import Signer
from consentroid.federation.verification import write_statements
from keys import SERVER, revoked, startup
from verified_run import ROOT, KeepingWire, judged
from wire import NODES

Masked = tuple[KeepingWire, Certificate, Statements]
Finished = tuple[KeepingWire, Certificate]


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
