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

import hashlib
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgpack
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from ..certificate.signatures import PADDING, Checker, Root
from ..core.errors import InvalidInput, NodeRefused

PURPOSE = b"consentroid request 1"
REQUEST = "request"  # kinds of content: a message of the protocol,
HELLO, PEERS = "hello", "peers"  # two steps that agree on masks,
FEATURES, TRANSFORM = "features", "transform"  # two steps that bring the rows of all sites to one scale
VERIFY = "verify"  # a certificate, to be checked and signed
KINDS = (REQUEST, HELLO, PEERS, FEATURES, TRANSFORM, VERIFY)
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
    def check_site(self) -> Checker:
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
