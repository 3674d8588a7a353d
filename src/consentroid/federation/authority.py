"""The federation's root key, kept by whoever provisions: signs certificates, renews and revokes them.

`authority/` from `federation init` holds `rootCA.key`, `rootCA.pem`, every certificate that was issued (`issued/`)
and the list of revoked ones. It belongs on no machine of the federation. A request (CSR) brings a public key and a
name, nothing else: subject, role and host names are those under which the name was issued before, so that no request
can ask for more than its sender had. Who sent it, a signature cannot tell: both sides compare the key's fingerprint.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from ..certificate.signatures import REVOKED_FILE, ROOT_FILE, common_name, read_revoked
from ..core.errors import InvalidInput
from .keys import LEAST_BITS, PEM, read_certificate, write_private

KEY_FILE, ISSUED = "rootCA.key", "issued"
DAYS = 360


@dataclass(frozen=True)
class Authority:
    folder: Path

    @classmethod
    def found(cls, folder: Path, root: bytes, key: bytes, issued: Sequence[Path]) -> Authority:
        """From what the provisioning made: PEM of root and key, certificates of all participants."""
        (folder / ISSUED).mkdir(parents=True, mode=0o700)
        made = cls(folder)
        write_private(folder / KEY_FILE, key)
        (folder / ROOT_FILE).write_bytes(root)
        for path in issued:
            made._file(x509.load_pem_x509_certificate(path.read_bytes()))
        made._list(())
        return made

    @property
    def root(self) -> x509.Certificate:
        return read_certificate(self.folder / ROOT_FILE)

    def issue(self, request: x509.CertificateSigningRequest, days: int = DAYS) -> x509.Certificate:
        """A certificate for the key of a request, under the name, role and hosts of the sender's earlier one."""
        name = common_name(request.subject)
        key = request.public_key()
        if not request.is_signature_valid:
            raise InvalidInput("the request is not signed with its own key; make it again")
        if not isinstance(key, rsa.RSAPublicKey) or key.key_size < LEAST_BITS:
            raise InvalidInput(f"the request needs an RSA key of at least {LEAST_BITS} bits, as the engine uses them")
        earlier = self.issued_to(name)
        if any(one.public_key() == key for one in earlier if one.serial_number in self.revoked):
            raise InvalidInput(f"the key of this request was revoked for '{name}'; make a new one")
        now, root = datetime.datetime.now(datetime.UTC), self.root
        end = min(now + datetime.timedelta(days=days), root.not_valid_after_utc)
        hosts = earlier[-1].extensions.get_extension_for_class(x509.SubjectAlternativeName)
        made = (
            x509.CertificateBuilder()
            .subject_name(earlier[-1].subject)
            .issuer_name(root.subject)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(minutes=5))  # clocks differ
            .not_valid_after(end)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
            .add_extension(hosts.value, critical=False)
            .sign(self._key, hashes.SHA256())
        )
        self._file(made)
        return made

    def issued_to(self, name: str) -> list[x509.Certificate]:
        """All certificates of a participant, the oldest first."""
        every = [read_certificate(path) for path in sorted((self.folder / ISSUED).glob("*.crt"))]
        own = [one for one in every if common_name(one.subject) == name]
        if not own:
            known = ", ".join(sorted({common_name(one.subject) for one in every}))
            raise InvalidInput(f"no certificate was issued to '{name}'; this federation has {known}")
        return own

    @property
    def revoked(self) -> frozenset[int]:
        return read_revoked(self.folder / REVOKED_FILE, self.root)

    def revoke(self, certificates: Sequence[x509.Certificate]) -> Path:
        """Add to the list, which the root signs anew; every kit needs the new file."""
        self._list([*self.revoked, *(one.serial_number for one in certificates)])
        return self.folder / REVOKED_FILE

    @property
    def _key(self) -> rsa.RSAPrivateKey:
        try:
            key = serialization.load_pem_private_key((self.folder / KEY_FILE).read_bytes(), None)
        except (OSError, ValueError, TypeError) as error:
            raise InvalidInput(
                f"{self.folder} holds no root key ({type(error).__name__}); `consentroid federation init DIR` writes "
                "DIR/authority"
            ) from None
        if not isinstance(key, rsa.RSAPrivateKey):
            raise InvalidInput(f"{self.folder} holds no RSA key")
        return key

    def _list(self, serials: Sequence[int]) -> None:
        now = datetime.datetime.now(datetime.UTC)
        listed = x509.CertificateRevocationListBuilder().issuer_name(self.root.subject).last_update(now)
        listed = listed.next_update(self.root.not_valid_after_utc)
        for serial in sorted(set(serials)):
            entry = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(now).build()
            listed = listed.add_revoked_certificate(entry)
        (self.folder / REVOKED_FILE).write_bytes(listed.sign(self._key, hashes.SHA256()).public_bytes(PEM))

    def _file(self, certificate: x509.Certificate) -> None:
        number = len(list((self.folder / ISSUED).glob("*.crt")))
        place = self.folder / ISSUED / f"{number:06d}-{certificate.serial_number:x}.crt"
        place.write_bytes(certificate.public_bytes(PEM))
