"""Keys and certificates as kits hold them, made without the engine: a root, a server, sites, and strangers."""

from __future__ import annotations

import datetime
import functools
import json
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa

SERVER = "coordinator.example"


@functools.cache
def private_key(owner: str) -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def certificate(name: str, issuer: str, days: tuple[int, int] = (-1, 30)) -> x509.Certificate:
    """Issued by `issuer`'s key to `name`'s key; `days` from now: valid from, valid to."""
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)]))
        .issuer_name(x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, issuer)]))
        .public_key(private_key(name).public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + datetime.timedelta(days=days[0]))
        .not_valid_after(now + datetime.timedelta(days=days[1]))
        .sign(private_key(issuer), hashes.SHA256())
    )


def revoked(name: str, root: str = "root", of: x509.Certificate | None = None) -> bytes:
    """A list that `root` signs as `name`, with one certificate on it; PEM."""
    now = datetime.datetime.now(datetime.UTC)
    listed = (
        x509.CertificateRevocationListBuilder()
        .issuer_name(x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)]))
        .last_update(now)
        .next_update(now + datetime.timedelta(days=1))
    )
    if of is not None:
        entry = x509.RevokedCertificateBuilder().serial_number(of.serial_number).revocation_date(now).build()
        listed = listed.add_revoked_certificate(entry)
    return listed.sign(private_key(root), hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def startup(folder: Path, name: str, root: str = "root", days: tuple[int, int] = (-1, 30)) -> Path:
    """The `startup` folder of a kit: `name` is `SERVER` or a site."""
    folder.mkdir(parents=True, exist_ok=True)
    stem = "server" if name == SERVER else "client"
    pem = serialization.Encoding.PEM
    secret = private_key(name).private_bytes(
        pem, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )
    (folder / f"{stem}.key").write_bytes(secret)
    (folder / f"{stem}.crt").write_bytes(certificate(name, root, days).public_bytes(pem))
    (folder / "rootCA.pem").write_bytes(certificate(root, root).public_bytes(pem))
    if name != SERVER:
        (folder / "fed_client.json").write_text(json.dumps({"servers": [{"identity": SERVER}]}))
    return folder
