"""Masks that cancel in the sum: the coordinator learns what all sites hold together, and nothing of a single one.

Set-up, once a job. Every site makes a fresh X25519 key and signs it with the key of its certificate, together with the
job, its name and two powers of two (its weight, its largest |x|). The coordinator relays all of these to all sites;
each site checks every signature against the root certificate of its own kit. For each pair of sites i < j

    k_ij = HKDF(X25519(i, j), salt = digest of all keys as relayed, info = names)           32 bytes.

Masking. A reply becomes limbs (`fixed_point.py`), and to every word modulo 2^64 site i adds

    + stream_ij for j > i,  − stream_ij for j < i,   stream_ij = ChaCha20(HKDF(k_ij, number and digest of the request)),

so masks cancel in the sum of all replies and only there. A stream depends on the request itself: sites that were asked
different things, under one number, produce garbage together instead of the difference that was fished for. No stream
serves twice: a site answers a number once (`federation/desk.py`), and `SiteMasks` refuses a number that does not grow.

Check. One more word is c = Σ_i r_i v_i mod 2^64 over all words v, with odd r_i that everybody derives from the request.
It is linear, so it holds for the sums, too; a reply that is missing, foreign or changed in a single bit breaks it.

All sites answer every round anyway: a lost site means that the run is resumed, and no protocol for drop-outs is needed.
Against a coordinator that works together with all sites but two, only the sum of those two stays hidden.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgpack
import numpy as np
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from ..core.errors import MalformedMessage, NodeRefused
from ..protocol.messages import PriceQuery, PriceReply
from .fixed_point import (
    MOST_SITES,
    FeatureSums,
    Layout,
    Limbs,
    Scales,
    Words,
    check_layout,
    decode,
    decode_parts,
    encode,
    exponent,
    parts_of,
)

PURPOSE = b"consentroid masks 1"
LARGEST_EXPONENT = 500
Sign = Callable[[bytes], bytes]
CheckSignature = Callable[[bytes, str, bytes, bytes], None]  # certificate, name, statement, signature: raises


@dataclass(frozen=True)
class Hello:
    """A site's key for one job, signed."""

    job: str
    site: str
    key: bytes
    weight: int  # log2 of a bound on the weight of its rows
    length: int  # log2 of a bound on |x|
    certificate: bytes = b""
    signature: bytes = b""

    def statement(self) -> bytes:
        return PURPOSE + bytes(msgpack.packb([self.job, self.site, self.key, self.weight, self.length]))

    def packed(self) -> list[Any]:
        return [self.job, self.site, self.key, self.weight, self.length, self.certificate, self.signature]

    @classmethod
    def unpacked(cls, told: Any) -> Hello:
        kinds = (str, str, bytes, int, int, bytes, bytes)
        if not isinstance(told, list) or len(told) != len(kinds):
            raise MalformedMessage("a key for masks has no known form")
        if any(type(one) is not kind for one, kind in zip(told, kinds, strict=True)) or len(told[2]) != 32:
            raise MalformedMessage("a key for masks has no known form")
        if any(abs(power) > LARGEST_EXPONENT for power in told[3:5]):
            raise MalformedMessage("a key for masks comes with a scale out of range")
        return cls(*told)


def scales_of(hellos: Sequence[Hello]) -> Scales:
    """What all sites and the coordinator derive from the same keys."""
    weight = max(hello.weight for hello in hellos) + exponent(len(hellos))
    return Scales(len(hellos), weight, max(hello.length for hello in hellos))


@dataclass(frozen=True)
class MaskedReply:
    """What a site answers in place of a `PriceReply`."""

    site: str
    round: int
    step: int
    layout: Layout
    words: Words  # two for each number, then the check
    digest: str = ""  # of the site's price file, where it was asked for

    def packed(self) -> bytes:
        layout = [[where, list(shape)] for where, shape in self.layout]
        told = {"masked": 1, "site": self.site, "round": self.round, "step": self.step, "layout": layout}
        return bytes(msgpack.packb(told | {"words": self.words.astype("<u8").tobytes(), "digest": self.digest}))

    @classmethod
    def unpacked(cls, data: bytes) -> MaskedReply | None:
        """None for what is not a masked reply."""
        try:
            told = msgpack.unpackb(data, raw=False, strict_map_key=True, max_ext_len=0, max_map_len=16)
        except (ValueError, TypeError, OverflowError, RecursionError, msgpack.UnpackException):
            raise MalformedMessage("not a msgpack message") from None
        if not isinstance(told, dict) or told.get("masked") != 1:
            return None
        kinds = {"masked": int, "site": str, "round": int, "step": int, "layout": list, "words": bytes, "digest": str}
        if set(told) != set(kinds) or any(type(told[name]) is not kind for name, kind in kinds.items()):
            raise MalformedMessage("a masked reply has no known form")
        layout = check_layout(told["layout"])
        n_words = 1 + 2 * sum(int(np.prod(shape, dtype=object)) for _, shape in layout)
        if len(told["words"]) != 8 * n_words or len(told["digest"]) > 64:
            raise MalformedMessage("a masked reply does not have the size that it announces")
        words = np.frombuffer(told["words"], "<u8").astype(np.uint64)
        return cls(told["site"], told["round"], told["step"], layout, words, told["digest"])


class SiteMasks:
    """One site in one job: `hello`, then `meet`, then `mask` for every reply."""

    def __init__(self, job: str, site: str, sign: Sign, certificate: bytes, check: CheckSignature) -> None:
        self._job, self._site = job, site
        self._sign, self._certificate, self._check = sign, certificate, check
        self._secret: X25519PrivateKey | None = None
        self._own: Hello | None = None
        self._pairs: dict[str, bytes] = {}
        self._scales: Scales | None = None
        self._last_number = 0  # of the requests whose masks were used, under the present key
        self.transcript = b""  # digest of all keys as relayed: equal at two sites if they were told the same

    @property
    def scales(self) -> Scales:
        if self._scales is None:
            raise NodeRefused("no masks have been agreed on")
        return self._scales

    @property
    def ready(self) -> bool:
        return self._scales is not None

    def hello(self, weight: float, largest: float) -> Hello:
        """A new key; whatever was agreed before is forgotten."""
        self._secret, self._scales, self._pairs = X25519PrivateKey.generate(), None, {}
        self._last_number = 0
        key = self._secret.public_key().public_bytes_raw()
        plain = Hello(self._job, self._site, key, exponent(weight), exponent(largest))
        if max(abs(plain.weight), abs(plain.length)) > LARGEST_EXPONENT:
            raise NodeRefused("rows or weights are too large for masked sums")
        self._own = replace(plain, certificate=self._certificate, signature=self._sign(plain.statement()))
        return self._own

    def meet(self, hellos: Sequence[Hello], n_sites: int) -> None:
        """Everybody's keys, as relayed: refused unless all are signed by sites of this federation, for this job."""
        names = [hello.site for hello in hellos]
        if self._secret is None or self._own not in hellos:
            raise NodeRefused("the keys for masks do not include this site's own")
        if not 2 <= len(hellos) <= MOST_SITES or len(hellos) != n_sites or names != sorted(set(names)):
            raise NodeRefused("the keys for masks are not those of all sites, each once, in order")
        if len({hello.key for hello in hellos}) < len(hellos):
            raise NodeRefused("two sites have one key for masks")
        for hello in hellos:
            if hello.job != self._job:
                raise NodeRefused("a key for masks was made for another job")
            self._check(hello.certificate, hello.site, hello.statement(), hello.signature)
        transcript = hashlib.sha256(b"".join(hello.statement() for hello in hellos)).digest()
        self._pairs, self.transcript = {}, transcript
        for other in hellos:
            if other.site != self._site:
                info = PURPOSE + bytes(msgpack.packb(sorted([self._site, other.site])))
                try:
                    shared = self._secret.exchange(X25519PublicKey.from_public_bytes(other.key))
                except ValueError:
                    raise NodeRefused("a key for masks is not a key") from None
                self._pairs[other.site] = _derived(shared, transcript, info)
        self._scales = scales_of(hellos)

    def mask(self, query: PriceQuery, reply: PriceReply, number: int, digest: bytes) -> MaskedReply:
        if self._scales is not None and query.coordinates is not None:
            self._scales = self._scales.with_coordinates(query.coordinates)
        kept = "" if reply.kept is None else reply.kept.digest
        kept = kept if reply.pairs is None else reply.pairs.digest
        return self.mask_parts(parts_of(reply), reply.round, reply.step, number, digest, kept)

    def mask_parts(
        self, parts: Mapping[str, Any], round: int, step: int, number: int, digest: bytes, kept: str = ""
    ) -> MaskedReply:
        layout, limbs = encode(parts, self.scales)
        words = _words(limbs)
        words = self.masked(np.append(words, _check_word(words, number, digest)), number, digest)
        return MaskedReply(self._site, round, step, layout, words, kept)

    def masked(self, words: Words, number: int, digest: bytes) -> Words:
        """All words under the masks of one request; each number serves once."""
        if self._scales is None:
            raise NodeRefused("no masks have been agreed on")
        if number <= self._last_number:  # two contents under one mask would tell their difference
            raise NodeRefused("the masks of this request have been used")
        self._last_number = number
        for other, pair in self._pairs.items():
            stream = _stream(pair, number, digest, len(words))
            words = words + stream if self._site < other else words - stream
        return words


class Unmasking:
    """The coordinator: adds masked replies up, and believes the sum if its check holds."""

    def __init__(self, hellos: Sequence[Hello]) -> None:
        self._sites = [hello.site for hello in hellos]
        self._scales = scales_of(hellos)

    def total(self, query: PriceQuery, replies: Sequence[MaskedReply], number: int, digest: bytes) -> PriceReply:
        """One reply that stands for all sites; `MalformedMessage` if the replies do not add up."""
        limbs = self._added(replies, query.round, query.step, number, digest)
        if query.coordinates is not None:
            self._scales = self._scales.with_coordinates(query.coordinates)
        digest_of_all = together({reply.site: reply.digest for reply in replies})
        return decode(limbs, replies[0].layout, self._scales, query, digest_of_all)

    def features(self, replies: Sequence[MaskedReply], number: int, digest: bytes) -> FeatureSums:
        """Sums for preparation."""
        limbs = self._added(replies, 0, 0, number, digest)
        made = decode_parts(limbs, replies[0].layout, self._scales)
        if set(made) != {"features"}:
            raise MalformedMessage("the masked sums answer another question")
        sums: FeatureSums = made["features"]
        return sums

    def _added(self, replies: Sequence[MaskedReply], round: int, step: int, number: int, digest: bytes) -> Limbs:
        if sorted(reply.site for reply in replies) != sorted(self._sites):
            raise MalformedMessage("a masked reply is missing or comes twice")
        first = replies[0]
        words = np.zeros_like(first.words)
        for reply in replies:
            if (reply.round, reply.step) != (round, step):
                raise MalformedMessage(f"site '{reply.site}' answered another round")
            if reply.layout != first.layout:
                raise MalformedMessage(f"site '{reply.site}' answered with other sums than site '{first.site}'")
            words += reply.words
        if words[-1] != _check_word(words[:-1], number, digest):
            raise MalformedMessage("the masked sums do not add up: a reply was changed, or made under other masks")
        return words[:-1].view(np.int64).reshape(-1, 2)


def together(digests: Mapping[str, str]) -> str:
    """One digest for the price files of all sites."""
    lines = sorted(f"{site}:{digest}" for site, digest in digests.items())
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _words(limbs: Limbs) -> Words:
    return np.ascontiguousarray(limbs).view(np.uint64).ravel()


def _check_word(words: Words, number: int, digest: bytes) -> np.uint64:
    """Σ r_i v_i mod 2^64, r_i odd: changing one bit of one word changes it for certain."""
    odd = _stream(hashlib.sha256(PURPOSE + b" check").digest(), number, digest, len(words)) | np.uint64(1)
    return np.uint64(np.sum(odd * words, dtype=np.uint64))


def _stream(key: bytes, number: int, digest: bytes, n_words: int) -> Words:
    """`n_words` of ChaCha20 under a key of its own for this request."""
    once = _derived(key, digest, number.to_bytes(8, "big"))
    sealed = Cipher(algorithms.ChaCha20(once, bytes(16)), None).encryptor().update(bytes(8 * n_words))
    return np.frombuffer(sealed, "<u8").astype(np.uint64)


def _derived(secret: bytes, salt: bytes, info: bytes) -> bytes:
    return HKDF(hashes.SHA256(), 32, salt, info).derive(secret)
