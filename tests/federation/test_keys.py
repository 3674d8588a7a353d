"""Keys that sites make themselves, renewal and revocation: with the kits and commands that people use."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("nvflare")

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from typer.testing import CliRunner

from consentroid.certificate.signatures import Root, common_name
from consentroid.cli.main import app
from consentroid.core.errors import InvalidInput, NodeRefused
from consentroid.federation.authority import Authority
from consentroid.federation.controls import Missing, check_site
from consentroid.federation.keys import install_revoked, read_certificate, read_request, request_for
from consentroid.federation.kit import Kits
from consentroid.federation.signing import REQUEST, Gate, Question, Signer
from consentroid.federation.site import check_submitters

QUESTION = Question("run-1", "job-1", "north", 3, 1, REQUEST, b"what?")


def call(*arguments: object) -> str:
    called = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if called.exception is not None and not isinstance(called.exception, SystemExit):
        raise called.exception
    assert called.exit_code == 0, called.output
    return called.output


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Kits, Path]:
    """North makes its own key, south is given one."""
    folder = tmp_path_factory.mktemp("federation")
    call("node", "keys", folder / "own", "--name", "north")
    request = folder / "own" / "north.csr"
    told = call("federation", "init", folder / "kits", "--nodes", "north,south", "--request", request)
    assert "key of 'north'" in told
    return Kits(folder / "kits"), folder / "own"


@pytest.fixture
def kits(made: tuple[Kits, Path], tmp_path: Path) -> Kits:
    shutil.copytree(made[0].root, tmp_path / "kits")
    shutil.copytree(made[1], tmp_path / "own")
    return Kits(tmp_path / "kits")


def with_own_key(kits: Kits) -> Path:
    call("node", "certify", kits.node("north"), "--key", kits.root.parent / "own" / "client.key")
    return kits.node("north")


def der(path: Path) -> bytes:
    return read_certificate(path).public_bytes(serialization.Encoding.DER)


# ------------------------------------------------------------------ a key that a site makes itself


def test_the_key_of_a_request_is_nowhere_but_at_the_site(kits: Kits) -> None:
    own = (kits.root.parent / "own" / "client.key").read_bytes()
    assert (kits.root.parent / "own" / "client.key").stat().st_mode & 0o077 == 0
    assert not (kits.node("north") / "startup" / "client.key").exists()
    for path in kits.root.rglob("*"):
        assert not path.is_file() or own not in path.read_bytes()


def test_a_kit_serves_once_its_own_key_is_in_it(kits: Kits) -> None:
    with pytest.raises(Missing, match="put it in with"):
        check_site(kits.node("north"))
    kit = with_own_key(kits)
    check_site(kit)
    signer = Signer.of_site(kit / "startup")
    Root.read(kits.admin / "startup").check(signer.certificate, "north", b"said", signer.sign(b"said"))


def test_the_key_that_provisioning_made_for_it_is_revoked(kits: Kits) -> None:
    first, second = Authority(kits.authority).issued_to("north")
    root = Root.read(kits.server / "startup")
    with pytest.raises(NodeRefused, match="revoked"):
        root.holder(first.public_bytes(serialization.Encoding.DER))
    root.holder(second.public_bytes(serialization.Encoding.DER))


def test_a_key_that_is_not_the_certificates_is_refused(kits: Kits) -> None:
    with pytest.raises(InvalidInput, match="another key"):
        call("node", "certify", kits.node("north"), "--key", kits.node("south") / "startup" / "client.key")
    kit = with_own_key(kits)
    shutil.copy(kits.node("south") / "startup" / "client.key", kit / "startup" / "client.key")
    with pytest.raises(Missing, match="not that of the certificate"):
        check_site(kit)


def test_fingerprints_are_shown_on_both_sides(kits: Kits, tmp_path: Path) -> None:
    there = call("node", "keys", kits.node("south"))
    here = call("federation", "sign", kits.authority, kits.node("south") / "south.csr", "--out", tmp_path / "s.crt")
    (shown,) = {word for word in there.replace(":", " ").split() if len(word) == 64}
    assert shown in here
    with pytest.raises(InvalidInput, match="may be the key of a request"):
        call("node", "keys", kits.node("south"))


# ------------------------------------------------------------------ renewal


@pytest.mark.parametrize("which", ["south", "server", "admin"])
def test_a_certificate_is_renewed_under_a_new_key(which: str, kits: Kits, tmp_path: Path) -> None:
    kit = kits.node("south") if which == "south" else kits.root / which
    stem = "server" if which == "server" else "client"
    before = read_certificate(kit / "startup" / f"{stem}.crt")
    name = common_name(before.subject)
    call("node", "keys", kit)
    call("federation", "sign", kits.authority, kit / f"{name}.csr", "--out", tmp_path / "new.crt", "--replace")
    call("node", "certify", kit, "--certificate", tmp_path / "new.crt", "--revoked", kits.authority / "revoked.pem")
    after = read_certificate(kit / "startup" / f"{stem}.crt")
    assert after.subject == before.subject, "role and name stay"
    assert after.public_key() != before.public_key()
    hosts = x509.SubjectAlternativeName
    assert (
        after.extensions.get_extension_for_class(hosts).value == before.extensions.get_extension_for_class(hosts).value
    )
    assert (kit / "startup" / f"{stem}.key").stat().st_mode & 0o077 == 0
    signer = Signer(kit / "startup" / f"{stem}.key", kit / "startup" / f"{stem}.crt")
    root = Root.read(kit / "startup")
    root.check(signer.certificate, name, b"said", signer.sign(b"said"))
    with pytest.raises(NodeRefused, match="revoked"):
        root.holder(before.public_bytes(serialization.Encoding.DER))


def test_a_request_asks_for_no_more_than_its_sender_had(kits: Kits) -> None:
    """Subject and hosts in a request are not looked at: a site cannot become an administrator or the server."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    greedy = x509.Name(
        [
            x509.NameAttribute(x509.NameOID.COMMON_NAME, "south"),
            x509.NameAttribute(x509.NameOID.UNSTRUCTURED_NAME, "project_admin"),
        ]
    )
    request = (
        x509.CertificateSigningRequestBuilder()
        .subject_name(greedy)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    made = Authority(kits.authority).issue(request)
    earlier = read_certificate(kits.node("south") / "startup" / "client.crt")
    assert made.subject == earlier.subject
    assert {one.oid for one in made.extensions} == {one.oid for one in earlier.extensions}


def test_requests_that_are_not_signed(kits: Kits) -> None:
    authority = Authority(kits.authority)
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    with pytest.raises(InvalidInput, match="no certificate was issued to 'east'"):
        authority.issue(x509.load_pem_x509_csr(request_for("east", key)))
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "south")])
    weak = x509.CertificateSigningRequestBuilder().subject_name(subject)
    with pytest.raises(InvalidInput, match="RSA key"):
        authority.issue(weak.sign(ec.generate_private_key(ec.SECP256R1()), hashes.SHA256()))
    text = bytearray(x509.load_pem_x509_csr(request_for("south", key)).public_bytes(serialization.Encoding.DER))
    text[-20] ^= 1
    with pytest.raises(InvalidInput, match="its own key"):
        authority.issue(x509.load_der_x509_csr(bytes(text)))
    call("node", "keys", kits.node("south"))
    lost = kits.node("south") / "south.csr"
    authority.issue(read_request(lost))
    call("federation", "revoke", kits.authority, "south")
    with pytest.raises(InvalidInput, match="was revoked"):
        authority.issue(read_request(lost))


def test_a_foreign_certificate_is_not_put_in(kits: Kits, tmp_path: Path) -> None:
    from keys import startup

    foreign = startup(tmp_path / "foreign", "south", root="another root") / "client.crt"
    with pytest.raises(InvalidInput, match="not issued by the root"):
        call("node", "certify", kits.node("south"), "--certificate", foreign)
    with pytest.raises(InvalidInput, match="not of this kit"):
        call("node", "certify", kits.node("south"), "--certificate", kits.node("north") / "startup" / "client.crt")
    with pytest.raises(InvalidInput, match="nothing to put in"):
        call("node", "certify", kits.node("south"))


# ------------------------------------------------------------------ revocation


def test_a_revoked_coordinator_is_answered_no_more(kits: Kits) -> None:
    """From the moment at which the site has the list; until then the engine and the site know nothing of it."""
    kit = with_own_key(kits)
    server = Signer.of_server(kits.server / "startup")
    sealed = server.seal(QUESTION)
    Gate.of_site(kit / "startup", "north", "job-1").open(sealed)
    call("federation", "revoke", kits.authority, "localhost")
    call("node", "certify", kit, "--revoked", kits.authority / "revoked.pem")
    with pytest.raises(NodeRefused, match="'localhost' is revoked"):
        Gate.of_site(kit / "startup", "north", "job-1").open(server.seal(replace(QUESTION, number=2)))


def test_a_revoked_site_signs_nothing_for_others(kits: Kits) -> None:
    kit = with_own_key(kits)
    south = Signer.of_site(kits.node("south") / "startup")
    check = Gate.of_site(kit / "startup", "north", "job-1").check_site
    check(south.certificate, "south", b"said", south.sign(b"said"))
    call("federation", "revoke", kits.authority, "south")
    call("node", "certify", kit, "--revoked", kits.authority / "revoked.pem")
    check = Gate.of_site(kit / "startup", "north", "job-1").check_site
    with pytest.raises(NodeRefused, match="'south' is revoked"):
        check(south.certificate, "south", b"said", south.sign(b"said"))
    call("node", "certify", kits.node("south"), "--revoked", kits.authority / "revoked.pem")
    with pytest.raises(Missing, match="is revoked"):
        check_site(kits.node("south"))


def test_a_revoked_administrator_submits_no_jobs(kits: Kits, tmp_path: Path) -> None:
    """The engine checks the signature of a job and knows no list; the site looks at who signed it."""
    kit = with_own_key(kits)
    job = tmp_path / "job" / "config"
    job.mkdir(parents=True)
    shutil.copy(kits.admin / "startup" / "client.crt", job / ".__nvfl_submitter.crt")
    check_submitters(Root.read(kit / "startup"), tmp_path / "job")
    call("federation", "revoke", kits.authority, "admin@consentroid.org")
    call("node", "certify", kit, "--revoked", kits.authority / "revoked.pem")
    with pytest.raises(InvalidInput, match="is revoked"):
        check_submitters(Root.read(kit / "startup"), tmp_path / "job")


def test_a_list_that_is_forged_older_or_torn_is_refused(kits: Kits, made: tuple[Kits, Path], tmp_path: Path) -> None:
    kit = kits.node("south")
    older = tmp_path / "older.pem"
    shutil.copy(kits.authority / "revoked.pem", older)
    call("federation", "revoke", kits.authority, "north")
    install_revoked(kit, kits.authority / "revoked.pem")
    with pytest.raises(InvalidInput, match="fewer"):
        install_revoked(kit, older)
    call("federation", "init", tmp_path / "others", "--nodes", "north")
    with pytest.raises(InvalidInput, match="not signed by the root"):
        install_revoked(kit, tmp_path / "others" / "authority" / "revoked.pem")
    (kit / "startup" / "revoked.pem").write_bytes(b"-----BEGIN X509 CRL-----\n")
    with pytest.raises(InvalidInput, match="cannot be read"):
        Root.read(kit / "startup")
    with pytest.raises(Missing):
        check_site(kit)


def test_the_root_key_is_in_no_kit(kits: Kits) -> None:
    secret = (kits.authority / "rootCA.key").read_bytes()
    assert (kits.authority / "rootCA.key").stat().st_mode & 0o077 == 0
    for kit in (kits.server, kits.admin, kits.node("north"), kits.node("south")):
        assert not any(path.is_file() and secret in path.read_bytes() for path in kit.rglob("*"))
    (kits.authority / "rootCA.key").unlink()
    with pytest.raises(InvalidInput, match="no root key"):
        call("federation", "revoke", kits.authority, "north")
