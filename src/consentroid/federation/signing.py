"""Who asks is proven: every request is signed end to end by the coordinator, and a site answers nothing else.

The engine relays messages between the sites of a job, so a connection says nothing about who asks. The coordinator
runs inside the server's process and signs with the server's own key; its certificate was issued by the root that every
kit holds, and every site's kit names the server (`identity` in `fed_client.json`). What is signed:

    run, job, site, number of sites, number of the request, kind, SHA-256 of the content        (RSA-PSS, SHA-256)

so a request is good for one site, in one job, once. The job's identifier is the engine's own and new for each job:
what was recorded in an earlier job is refused. `number` grows from request to request; the same bytes once more get
the answer that is kept (a lost reply), anything else with an old number is refused.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgpack
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from ..core.errors import InvalidInput, NodeRefused

PURPOSE = b"consentroid request 1"
PADDING = padding.PSS(mgf=padding.MGF1(hashes.SHA256()), salt_length=padding.PSS.DIGEST_LENGTH)
REQUEST = "request"  # kinds of content: a message of the protocol,
HELLO, PEERS = "hello", "peers"  # two steps that agree on masks,
FEATURES, TRANSFORM = "features", "transform"  # two steps that bring the rows of all sites to one scale
KINDS = (REQUEST, HELLO, PEERS, FEATURES, TRANSFORM)
LONGEST_NAME = 200
RUN = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")  # names files at the sites


@dataclass(frozen=True)
class Question:
    """A request with its envelope, as a site may trust it."""

    run: str
    job: str
    site: str
    n_sites: int
    number: int
    kind: str
    content: bytes

    @property
    def digest(self) -> bytes:
        return hashlib.sha256(self.content).digest()

    def statement(self) -> bytes:
        """What the signature is made over."""
        told = [self.run, self.job, self.site, self.n_sites, self.number, self.kind, self.digest]
        return PURPOSE + bytes(msgpack.packb(told))


class Signer:
    """A private key with its certificate."""

    def __init__(self, key: Path, certificate: Path) -> None:
        try:
            loaded = serialization.load_pem_private_key(key.read_bytes(), None)
            self._certificate = x509.load_pem_x509_certificate(certificate.read_bytes())
        except (OSError, ValueError, TypeError) as error:
            raise InvalidInput(f"the kit has no key that can sign ({type(error).__name__})") from None
        if not isinstance(loaded, rsa.RSAPrivateKey):
            raise InvalidInput("the kit's key is not an RSA key, as the engine makes them")
        self._key = loaded

    @classmethod
    def of_server(cls, startup: Path) -> Signer:
        return cls(startup / "server.key", startup / "server.crt")

    @classmethod
    def of_site(cls, startup: Path) -> Signer:
        return cls(startup / "client.key", startup / "client.crt")

    @property
    def certificate(self) -> bytes:
        return self._certificate.public_bytes(serialization.Encoding.DER)

    def sign(self, statement: bytes) -> bytes:
        return self._key.sign(statement, PADDING, hashes.SHA256())

    def seal(self, question: Question) -> bytes:
        """The request as it travels."""
        envelope = {
            "run": question.run,
            "job": question.job,
            "site": question.site,
            "n_sites": question.n_sites,
            "number": question.number,
            "kind": question.kind,
            "content": question.content,
            "certificate": self.certificate,
            "signature": self.sign(question.statement()),
        }
        return bytes(msgpack.packb(envelope))


class Root:
    """The federation's root certificate: says whether a signature is that of a named participant."""

    def __init__(self, certificate: x509.Certificate) -> None:
        self._root = certificate
        self._known: dict[bytes, x509.Certificate] = {}

    @classmethod
    def read(cls, startup: Path) -> Root:
        try:
            return cls(x509.load_pem_x509_certificate((startup / "rootCA.pem").read_bytes()))
        except (OSError, ValueError) as error:
            raise InvalidInput(f"the kit has no root certificate ({type(error).__name__})") from None

    def check(self, certificate: bytes, name: str, statement: bytes, signature: bytes) -> None:
        """Raises `NodeRefused` unless the root certified `name` and that key signed the statement."""
        holder = self._known.get(certificate)
        if holder is None:
            holder = self._certified(certificate)
            if len(self._known) < 1_000:
                self._known[certificate] = holder
        if [part.value for part in holder.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)] != [name]:
            raise NodeRefused(f"the request is not signed by '{name}'")
        now = datetime.datetime.now(datetime.UTC)
        if not holder.not_valid_before_utc <= now <= holder.not_valid_after_utc:
            raise NodeRefused(f"the certificate of '{name}' is not valid today; renew it")
        key = holder.public_key()
        if not isinstance(key, rsa.RSAPublicKey):
            raise NodeRefused("the request is signed with an unknown kind of key")
        try:
            key.verify(signature, statement, PADDING, hashes.SHA256())
        except InvalidSignature:
            raise NodeRefused("the signature does not fit the request") from None

    def check_site(self, coordinator: str) -> Callable[[bytes, str, bytes, bytes], None]:
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


class Gate:
    """Opens envelopes at one site in one job; lets through what the coordinator asks, and each request once."""

    def __init__(self, root: Root, coordinator: str, site: str, job: str) -> None:
        self._root = root
        self._coordinator = coordinator
        self._site, self._job = site, job
        self._run: str | None = None
        self._last = 0

    @classmethod
    def of_site(cls, startup: Path, site: str, job: str) -> Gate:
        try:
            identity = json.loads((startup / "fed_client.json").read_text())["servers"][0]["identity"]
        except (OSError, ValueError, KeyError, IndexError, TypeError):
            raise InvalidInput("the kit does not name the server, so nobody may ask") from None
        return cls(Root.read(startup), str(identity), site, job)

    @property
    def check_site(self) -> Callable[[bytes, str, bytes, bytes], None]:
        """Checks signatures of other sites of the federation."""
        return self._root.check_site(self._coordinator)

    def open(self, data: bytes) -> Question:
        """The question; `NodeRefused` says why it is not one."""
        question, certificate, signature = _unsealed(data)
        self._root.check(certificate, self._coordinator, question.statement(), signature)
        if question.site != self._site:
            raise NodeRefused("the request was made for another site")
        if question.job != self._job or self._run not in (None, question.run):
            raise NodeRefused("the request belongs to another run")
        if question.number <= self._last:
            raise NodeRefused("the request was made before and is not answered again")
        self._run, self._last = question.run, question.number
        return question


def _unsealed(data: bytes) -> tuple[Question, bytes, bytes]:
    try:
        envelope = msgpack.unpackb(data, raw=False, strict_map_key=True, max_ext_len=0, max_map_len=16)
    except (ValueError, TypeError, OverflowError, RecursionError, msgpack.UnpackException):
        raise NodeRefused("the request has no envelope") from None
    wanted: dict[str, Any] = {
        "run": str,
        "job": str,
        "site": str,
        "n_sites": int,
        "number": int,
        "kind": str,
        "content": bytes,
        "certificate": bytes,
        "signature": bytes,
    }
    good = isinstance(envelope, dict) and set(envelope) == set(wanted)
    if not good or any(type(envelope[name]) is not kind for name, kind in wanted.items()):
        raise NodeRefused("the request has no envelope")
    if envelope["kind"] not in KINDS or any(len(envelope[name]) > LONGEST_NAME for name in ("run", "job", "site")):
        raise NodeRefused("the request has no envelope")
    if not RUN.fullmatch(envelope["run"]):
        raise NodeRefused("the request has no envelope")
    certificate, signature = envelope.pop("certificate"), envelope.pop("signature")
    return Question(**envelope), certificate, signature


def identifier_of(sealed: bytes) -> str:
    """Under which an answer is collected: only who holds the signed request can name it."""
    return hashlib.sha256(sealed).hexdigest()
