"""Statements of sites over a certificate: "on our rows, our share of this proof is true", each signed by its site.

`statements.json` lies beside `certificate.json`. Every site signs the certificate's fingerprint, the names of all
sites, how the rows were scaled, and the digest of its share: its part of each sum of the proof, as integers
(`verify/shares.py`), under masks that cancel in the sum of all sites and only there. Whoever has the file can add the
shares, and nobody can read one. All sites sign the same digest of their keys and of the request (`masks`), so that
statements of different verifications do not mix: their masks would not cancel.

Fields: `consentroid_statements` (1), `fingerprint`, `sites`, `scaling` (as in result.json, or null), `quanta` (log2
of the unit of costs, errors, weights, offsets, values), `masks`, and in `statements` for each site `site`, `time`
(seconds since 1970), `words` (64-bit words, little-endian, base64), `certificate` (DER, base64), `signature`
(base64).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core.errors import CertificateInvalid, NodeRefused
from .document import Certificate
from .reading import read_json
from .signatures import Checker

STATEMENTS_FILE = "statements.json"
VERSION = 1
PURPOSE = b"consentroid statement 1"
N_QUANTA, LARGEST_QUANTUM = 5, 700
HEX = set("0123456789abcdef")
Words = NDArray[np.uint64]


class NotSigned(CertificateInvalid):
    """A statement is missing, or does not count: nothing is refuted, and nothing is verified."""


@dataclass(frozen=True)
class Subject:
    """What all sites sign alike."""

    fingerprint: str
    sites: tuple[str, ...]
    scaling: dict[str, Any] | None
    quanta: tuple[int, ...]
    masks: str  # digest of the keys and the request; empty where there is one site

    def as_dict(self) -> dict[str, Any]:
        return {
            "fingerprint": self.fingerprint,
            "sites": list(self.sites),
            "scaling": self.scaling,
            "quanta": list(self.quanta),
            "masks": self.masks,
        }


@dataclass(frozen=True)
class Statement:
    """One site's word."""

    site: str
    time: int
    words: Words  # two for each number of its share
    certificate: bytes  # DER
    signature: bytes = b""

    def signed(self, subject: Subject) -> bytes:
        """What the signature is made over."""
        words = self.words.astype("<u8").tobytes()
        own = {"site": self.site, "time": self.time, "n_words": len(self.words), "words": _sha256(words)}
        text = json.dumps(subject.as_dict() | own, sort_keys=True, separators=(",", ":"), allow_nan=False)
        return PURPOSE + text.encode()

    def as_dict(self) -> dict[str, Any]:
        return {
            "site": self.site,
            "time": self.time,
            "words": _base64(self.words.astype("<u8").tobytes()),
            "certificate": _base64(self.certificate),
            "signature": _base64(self.signature),
        }


@dataclass(frozen=True)
class Statements:
    subject: Subject
    of_sites: tuple[Statement, ...]

    def to_json(self) -> dict[str, Any]:
        statements = [statement.as_dict() for statement in self.of_sites]
        return {"consentroid_statements": VERSION, **self.subject.as_dict(), "statements": statements}

    @classmethod
    def read(cls, path: Path) -> Statements:
        return cls.from_json(read_json(path))

    @classmethod
    def from_json(cls, told: Any) -> Statements:
        """Every field, kind and size, before anything is computed with it; `NotSigned` names what is wrong."""
        names = {"consentroid_statements", "fingerprint", "sites", "scaling", "quanta", "masks", "statements"}
        if not isinstance(told, dict) or set(told) != names or told["consentroid_statements"] != VERSION:
            raise NotSigned(f"statements: not a file of statements of version {VERSION}")
        good = isinstance(told["sites"], list) and all(isinstance(name, str) for name in told["sites"])
        good = good and _is_hex(told["fingerprint"]) and (told["masks"] == "" or _is_hex(told["masks"]))
        good = good and (told["scaling"] is None or isinstance(told["scaling"], dict))
        good = good and isinstance(told["quanta"], list) and len(told["quanta"]) == N_QUANTA
        good = good and all(type(q) is int and abs(q) <= LARGEST_QUANTUM for q in told["quanta"])
        if not good or not isinstance(told["statements"], list):
            raise NotSigned("statements: a field is not of its kind")
        subject = Subject(
            told["fingerprint"], tuple(told["sites"]), told["scaling"], tuple(told["quanta"]), told["masks"]
        )
        return cls(subject, tuple(statement_from(one) for one in told["statements"]))

    def total(self, certificate: Certificate, check: Checker) -> NDArray[np.int64]:
        """The sum of all shares, if every site of the certificate has signed its own; `NotSigned` if not."""
        subject = self.subject
        if subject.fingerprint != certificate.fingerprint:
            raise NotSigned(
                f"statements: signed for the certificate {subject.fingerprint[:16]}…, this one is "
                f"{certificate.fingerprint[:16]}…"
            )
        if subject.sites != certificate.sites:
            raise NotSigned("statements: signed for other sites than the certificate's")
        if (subject.masks == "") != (len(subject.sites) == 1):
            raise NotSigned("statements: masks are due exactly where there are several sites")
        if [statement.site for statement in self.of_sites] != list(certificate.sites):
            raise NotSigned(f"statements: {missing(certificate, self.of_sites)}")
        total: Words = np.zeros_like(self.of_sites[0].words)
        for statement in self.of_sites:
            try:
                check(statement.certificate, statement.site, statement.signed(subject), statement.signature)
            except NodeRefused as refusal:
                raise NotSigned(f"statement of {statement.site}: {refusal}") from None
            if len(statement.words) != len(total):
                raise NotSigned(f"statement of {statement.site}: its share has another size than the others'")
            total = total + statement.words
        return total.view(np.int64).reshape(-1, 2)


def missing(certificate: Certificate, statements: Sequence[Statement]) -> str:
    there = [statement.site for statement in statements]
    absent = [name for name in certificate.sites if name not in there]
    return f"there is none of {', '.join(absent)}" if absent else "not one of each site, in the certificate's order"


def statement_from(told: Any) -> Statement:
    """One statement from elsewhere."""
    kinds = {"site": str, "time": int, "words": str, "certificate": str, "signature": str}
    if not isinstance(told, dict) or set(told) != set(kinds):
        raise NotSigned("statements: a statement has no known form")
    if any(type(told[name]) is not kind for name, kind in kinds.items()):
        raise NotSigned("statements: a statement has no known form")
    words, certificate, signature = (_bytes(told[name]) for name in ("words", "certificate", "signature"))
    if len(words) % 16 or not words:
        raise NotSigned("statements: a share is not a list of numbers")
    return Statement(told["site"], told["time"], np.frombuffer(words, "<u8").astype(np.uint64), certificate, signature)


def _bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise NotSigned("statements: not base64") from None


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _is_hex(text: Any) -> bool:
    return isinstance(text, str) and len(text) == 64 and set(text) <= HEX
