"""Keys and certificates at a participant: made here, asked for, put into its kit. A private key never leaves it."""

from __future__ import annotations

import datetime
import hashlib
import os
import shutil
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from ..certificate.signatures import REVOKED_FILE, ROOT_FILE, common_name, read_revoked
from ..core.errors import InvalidInput

LEAST_BITS = 2048
PEM = serialization.Encoding.PEM


def new_key(path: Path) -> rsa.RSAPrivateKey:
    """A fresh private key in a file that its owner alone can read."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=LEAST_BITS)
    form = serialization.PrivateFormat.TraditionalOpenSSL  # as the engine writes them
    write_private(path, key.private_bytes(PEM, form, serialization.NoEncryption()))
    return key


def request_for(name: str, key: rsa.RSAPrivateKey) -> bytes:
    """A signing request, PEM: the name and the public key."""
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    made = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(key, hashes.SHA256())
    return made.public_bytes(PEM)


def read_request(path: Path) -> x509.CertificateSigningRequest:
    try:
        return x509.load_pem_x509_csr(path.read_bytes())
    except (OSError, ValueError) as error:
        raise InvalidInput(f"'{path}' is not a signing request ({type(error).__name__})") from None


def read_certificate(path: Path) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(path.read_bytes())
    except (OSError, ValueError) as error:
        raise InvalidInput(f"'{path}' is not a certificate ({type(error).__name__})") from None


def key_fingerprint(of: x509.CertificateSigningRequest | x509.Certificate) -> str:
    """SHA-256 of the public key: what two people compare by telephone."""
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    return hashlib.sha256(of.public_key().public_bytes(serialization.Encoding.DER, form)).hexdigest()


def write_private(path: Path, content: bytes) -> None:
    fresh = path.with_name(f"{path.name}.writing")
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(content)
    os.replace(fresh, path)


def stem_of(kit: Path) -> str:
    """Of a kit's key and certificate: server.key, or client.key at a site and an administrator."""
    if not (kit / "startup").is_dir():
        raise InvalidInput(f"{kit} is not a kit; `consentroid federation init` makes them")
    return "server" if (kit / "startup" / "fed_server.json").exists() else "client"


def install(kit: Path, certificate: Path | None, key: Path | None) -> x509.Certificate:
    """Put a key, a certificate or both into a kit, if they belong together and to the kit."""
    startup, stem = kit / "startup", stem_of(kit)
    before = read_certificate(startup / f"{stem}.crt")
    new = before if certificate is None else read_certificate(certificate)
    try:
        new.verify_directly_issued_by(read_certificate(startup / ROOT_FILE))
    except Exception:  # several kinds, all of them mean no
        raise InvalidInput("the certificate was not issued by the root of this kit's federation") from None
    if new.subject != before.subject:
        raise InvalidInput(f"the certificate is that of '{common_name(new.subject)}', not of this kit")
    if not new.not_valid_before_utc <= datetime.datetime.now(datetime.UTC) <= new.not_valid_after_utc:
        raise InvalidInput("the certificate is not valid today")
    places = [key] if key is not None else [startup / f"{stem}.key.new", startup / f"{stem}.key"]
    found = next((place for place in places if place is not None and _fits(place, new)), None)
    if found is None:
        raise InvalidInput("the certificate was made for another key; give that key with --key")
    write_private(startup / f"{stem}.key", found.read_bytes())
    write_private(startup / f"{stem}.crt", new.public_bytes(PEM))
    (startup / f"{stem}.key.new").unlink(missing_ok=True)
    return new


def install_revoked(kit: Path, revoked: Path) -> int:
    """A new list of revoked certificates; an older one than the kit has is refused. How many it names."""
    startup = kit / "startup"
    stem_of(kit)
    root = read_certificate(startup / ROOT_FILE)
    listed = read_revoked(revoked, root)
    present = startup / REVOKED_FILE
    if present.exists() and not listed >= read_revoked(present, root):
        raise InvalidInput("the list names fewer revoked certificates than the kit knows; take the newest one")
    shutil.copyfile(revoked, present)
    present.chmod(0o600)
    return len(listed)


def _fits(key: Path, certificate: x509.Certificate) -> bool:
    try:
        loaded = serialization.load_pem_private_key(key.read_bytes(), None)
    except (OSError, ValueError, TypeError):
        return False
    return loaded.public_key() == certificate.public_key()
