"""Signatures of a federation's participants, checked against its root certificate: for requests, keys and statements.

A signature counts if the root issued the signer's certificate, under the name that is due, valid today and not
revoked. Which certificates are revoked stands in a list that the root signed (`revoked.pem`, an X.509 CRL, beside
`rootCA.pem`); a list that cannot be read, or that another root signed, admits nobody.
"""

from __future__ import annotations

import datetime
import hashlib
from collections.abc import Callable
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from ..core.errors import InvalidInput, NodeRefused

ROOT_FILE, REVOKED_FILE = "rootCA.pem", "revoked.pem"
PADDING = padding.PSS(mgf=padding.MGF1(hashes.SHA256()), salt_length=padding.PSS.DIGEST_LENGTH)
KNOWN = 1_000  # certificates whose issuer was checked already
Checker = Callable[[bytes, str, bytes, bytes], None]  # certificate, name, statement, signature: raises `NodeRefused`


class Root:
    """The federation's root certificate: says whether a signature is that of a named participant."""

    def __init__(self, certificate: x509.Certificate, revoked: frozenset[int] = frozenset()) -> None:
        self._root = certificate
        self._revoked = revoked  # serial numbers
        self._known: dict[bytes, x509.Certificate] = {}

    @classmethod
    def read(cls, folder: Path) -> Root:
        """From a kit's `startup`: the root, and its list of revoked certificates if there is one."""
        return cls.of_files(folder / ROOT_FILE, folder / REVOKED_FILE)

    @classmethod
    def of_files(cls, root: Path, revoked: Path | None = None) -> Root:
        try:
            certificate = x509.load_pem_x509_certificate(root.read_bytes())
        except (OSError, ValueError) as error:
            raise InvalidInput(f"there is no root certificate in {root.name} ({type(error).__name__})") from None
        listed = revoked is not None and revoked.exists()
        return cls(certificate, read_revoked(revoked, certificate) if revoked is not None and listed else frozenset())

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the root certificate, as `openssl x509 -fingerprint -sha256` has it, without colons."""
        return hashlib.sha256(self._root.public_bytes(serialization.Encoding.DER)).hexdigest()

    def check(self, certificate: bytes, name: str, statement: bytes, signature: bytes) -> None:
        """Raises `NodeRefused` unless the root certified `name` and that key signed the statement."""
        holder = self.holder(certificate)
        if common_name(holder.subject) != name:
            raise NodeRefused(f"the request is not signed by '{name}'")
        key = holder.public_key()
        if not isinstance(key, rsa.RSAPublicKey):
            raise NodeRefused("the request is signed with an unknown kind of key")
        try:
            key.verify(signature, statement, PADDING, hashes.SHA256())
        except InvalidSignature:
            raise NodeRefused("the signature does not fit the request") from None

    def holder(self, certificate: bytes) -> x509.Certificate:
        """The certificate (DER), if the root issued it, and it is valid today and not revoked; `NodeRefused` if not."""
        holder = self._known.get(certificate)
        if holder is None:
            holder = self._certified(certificate)
            if len(self._known) < KNOWN:
                self._known[certificate] = holder
        name = common_name(holder.subject)
        now = datetime.datetime.now(datetime.UTC)
        for whose, one in ((f"certificate of '{name}'", holder), ("root certificate", self._root)):
            if not one.not_valid_before_utc <= now <= one.not_valid_after_utc:
                raise NodeRefused(f"the {whose} is not valid today; renew it")
        if holder.serial_number in self._revoked:
            raise NodeRefused(f"the certificate of '{name}' is revoked")
        return holder

    def check_site(self, coordinator: str) -> Checker:
        """Like `check`, for sites: neither the coordinator nor an administrator can pass for one."""

        def check(certificate: bytes, name: str, statement: bytes, signature: bytes) -> None:
            self.check(certificate, name, statement, signature)
            subject = self._certified(certificate).subject
            if name == coordinator or subject.get_attributes_for_oid(x509.NameOID.UNSTRUCTURED_NAME):
                raise NodeRefused(f"'{name}' is not a site")

        return check

    def _certified(self, certificate: bytes) -> x509.Certificate:
        try:
            holder = x509.load_der_x509_certificate(certificate)
            holder.verify_directly_issued_by(self._root)
        except (InvalidSignature, ValueError, TypeError):
            raise NodeRefused("the request carries no certificate of this federation") from None
        return holder


def common_name(subject: x509.Name) -> str:
    """The one name of a participant; empty where there is none, or several."""
    names = [part.value for part in subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)]
    return str(names[0]) if len(names) == 1 else ""


def read_revoked(path: Path, root: x509.Certificate) -> frozenset[int]:
    """Serial numbers of revoked certificates."""
    try:
        listed = x509.load_pem_x509_crl(path.read_bytes())
        signed = listed.issuer == root.subject and listed.is_signature_valid(root.public_key())  # type: ignore[arg-type]
    except (OSError, ValueError, TypeError) as error:
        raise InvalidInput(f"the list of revoked certificates cannot be read ({type(error).__name__})") from None
    if not signed:
        raise InvalidInput("the list of revoked certificates is not signed by the root; take the federation's own")
    return frozenset(entry.serial_number for entry in listed)
