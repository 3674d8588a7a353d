"""Masked sums: equal to the exact sums up to the stated rounding and on the safe side; garbage is found out."""

from __future__ import annotations

import hashlib
from copy import copy
from dataclasses import fields, replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("cryptography")

from consentroid.core.errors import MalformedMessage, NodeRefused
from consentroid.core.search import MULTIPLES, N_THRESHOLDS
from consentroid.protocol.messages import (
    BoxSums,
    Claim,
    ClaimSums,
    ColumnSums,
    Coordinates,
    Evaluated,
    Examine,
    Located,
    MomentSums,
    PairBound,
    Priced,
    PriceQuery,
    PriceReply,
    PricesKept,
    Trimmed,
    TripleSums,
)
from consentroid.site.fixed_point import (
    BITS,
    DOWN,
    FIELDS,
    LOW,
    NEAREST,
    PARTS,
    QUADRATIC,
    UP,
    FeatureSums,
    Scales,
    exponent,
    from_limbs,
    to_limbs,
)
from consentroid.site.masks import Hello, MaskedReply, SiteMasks, Unmasking

DIGEST = hashlib.sha256(b"a question").digest()
NAMES = ("berlin", "lyon", "turin", "vilnius")
D, B, T = 2, 3, 4


def sign(statement: bytes) -> bytes:
    return hashlib.sha256(statement).digest()


def check(certificate: bytes, name: str, statement: bytes, signature: bytes) -> None:
    if certificate != name.encode() or signature != sign(statement):
        raise NodeRefused("not signed")


def met(n_sites: int, weight: float = 100.0, largest: float = 10.0) -> tuple[list[SiteMasks], list[Hello]]:
    sites = [SiteMasks("job", name, sign, name.encode(), check) for name in NAMES[:n_sites]]
    hellos = [site.hello(weight, largest) for site in sites]
    for site in sites:
        site.meet(hellos, n_sites)
    return sites, hellos


def query(round: int = 3) -> PriceQuery:
    rng = np.random.default_rng(0)
    lower = rng.normal(size=(B, D))
    upper = lower + rng.uniform(0, 2, (B, D))
    keys = np.zeros(B, np.int64)
    held = np.zeros((B, D), bool)
    cut = np.zeros(T, np.int64)
    return PriceQuery(
        round,
        1,
        coordinates=Coordinates(np.zeros(D), np.eye(D), 1.0),
        examine=Examine(0, lower, upper, held, np.ones(B), keys, keys),
        claim=Claim(0, lower, upper, held, cut, cut, cut, np.zeros(T), np.zeros(T)),
    )


SHAPES: dict[type, dict[str, tuple[int, ...]]] = {
    MomentSums: {"weight": (), "sums": (D,), "products": (D, D)},
    Located: {"scatter_error": ()},
    Priced: {"total": (), "column_prices": (5,)},
    ColumnSums: {"costs": (2,), "sizes": (2,), "overlaps": (2, 5), "prices": (2,), "centre_prices": (2,)},
    TripleSums: {"found": (), "overlaps": (5, 5)},
    Trimmed: {"values": (4,), "weights": (4,), "offsets": (4, D)},
    BoxSums: {
        "minorants": (B, D + 2), "insides": (B, D + 2), "undecided": (B,), "worth": (B,),
        "cuts": (B, D, 2, N_THRESHOLDS, len(MULTIPLES)), "scores": (B, D),
    },
    ClaimSums: {"minorants": (B, D + 2), "insides": (B, D + 2), "cuts": (T,)},
    Evaluated: {"costs": (2,), "counts": (2, 3), "offsets": (2, 3, D), "spreads": (2, 3)},
    PricesKept: {"totals": (2,)},
    PairBound: {"bound": ()},
}  # fmt: skip


def reply_of(site: str, rng: np.random.Generator, spread: float) -> PriceReply:
    """Numbers of many magnitudes, with either sign."""

    def numbers(shape: tuple[int, ...]) -> Any:
        made = rng.normal(size=shape) * 10.0 ** rng.uniform(-spread, 3, shape) * (rng.random(shape) < 0.9)
        return float(made) if shape == () else made

    parts = {}
    for part, kind in PARTS.items():
        values = {name: numbers(shape) for name, shape in SHAPES[kind].items()}
        if kind is Located:
            values["scatter_error"] *= 2.0**-60
        if kind is PricesKept:
            values["digest"] = "0" * 64
        parts[part] = kind(**values)
    return PriceReply(3, site, 1, **parts)


def masked(sites: list[SiteMasks], replies: list[PriceReply], number: int = 7) -> list[MaskedReply]:
    made = [site.mask(query(), reply, number, DIGEST) for site, reply in zip(sites, replies, strict=True)]
    over_the_wire = [MaskedReply.unpacked(one.packed()) for one in made]
    assert all(one is not None for one in over_the_wire)
    return over_the_wire  # type: ignore[return-value]


def exact(arrays: list[Any]) -> list[Fraction]:
    return [sum(map(Fraction, column), Fraction(0)) for column in zip(*(np.ravel(a).tolist() for a in arrays))]


@given(st.integers(0, 10**6), st.integers(2, 4), st.sampled_from([0.0, 6.0, 40.0]))
def test_the_total_is_the_exact_sum_within_the_stated_rounding_and_on_the_safe_side(
    seed: int, n_sites: int, spread: float
) -> None:
    rng = np.random.default_rng(seed)
    sites, hellos = met(n_sites)
    replies = [reply_of(name, rng, spread) for name in NAMES[:n_sites]]
    total = Unmasking(hellos).total(query(), masked(sites, replies), 7, DIGEST)
    weight, width = 100.0 * 4, query().examine.upper - query().examine.lower  # type: ignore[union-attr]
    for part, kind in PARTS.items():
        for name, rule in FIELDS[kind].items():
            sums = [getattr(getattr(reply, part), name) for reply in replies]
            told = np.ravel(getattr(getattr(total, part), name)).tolist()
            if rule == QUADRATIC:
                continue
            power, _, rounding = rule
            for said, true, terms in zip(told, exact(sums), zip(*(np.ravel(a).tolist() for a in sums)), strict=True):
                room = Fraction(weight * 40.0**power * 2.0**-85) + Fraction(2.0**-50) * sum(
                    abs(Fraction(term)) for term in terms
                )
                assert abs(Fraction(said) - true) <= room, (part, name)
                if rounding == UP:
                    assert Fraction(said) >= true, (part, name)
                if rounding == DOWN:
                    assert Fraction(said) <= true, (part, name)
        if "minorants" in FIELDS[kind]:
            for name in ("minorants", "insides"):
                parts = [getattr(getattr(reply, part), name) for reply in replies]
                for b in range(B):
                    said = getattr(getattr(total, part), name)[b]
                    sums = exact([one[b] for one in parts])
                    for _ in range(5):
                        delta = [Fraction(x) for x in (rng.uniform(-0.5, 0.5, D) * width[b]).tolist()]
                        assert value(list(map(Fraction, said.tolist())), delta) <= value(sums, delta)


def value(quadratic: list[Fraction], delta: list[Fraction]) -> Fraction:
    """θ = 0; a smaller coefficient of W and V only helps."""
    weight, *offset, constant = quadratic
    return constant + sum((weight * d * d - 2 * v * d for d, v in zip(delta, offset, strict=True)), Fraction(0))


def test_open_numbers_do_not_show_in_what_a_site_sends() -> None:
    """The same reply under fresh keys: no word is the same, and none is the site's own."""
    reply = reply_of("berlin", np.random.default_rng(1), 3.0)
    seen = []
    for _ in range(2):
        site = met(3)[0][0]
        twin = copy(site)  # under the same keys: a number serves once
        seen.append(site.mask(query(), reply, 7, DIGEST).words)
        again = site.mask(query(), reply, 8, DIGEST).words
        other = twin.mask(query(), reply, 7, hashlib.sha256(b"another").digest()).words
        assert not np.any(seen[-1] == again)
        assert not np.any(seen[-1] == other)
    assert not np.any(seen[0] == seen[1])
    high = seen[0] >> np.uint64(32)
    assert 0.4 < np.mean(high < 2**31) < 0.6


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 63), st.integers(0, 2))
def test_one_flipped_bit_is_found_out(seed: int, place: int, bit: int, which: int) -> None:
    sites, hellos = met(3)
    replies = masked(sites, [reply_of(name, np.random.default_rng(seed), 3.0) for name in NAMES[:3]])
    words = replies[which].words.copy()
    words[place % len(words)] ^= np.uint64(1) << np.uint64(bit)
    replies[which] = replace(replies[which], words=words)
    with pytest.raises(MalformedMessage, match="do not add up"):
        Unmasking(hellos).total(query(), replies, 7, DIGEST)


def three() -> tuple[list[SiteMasks], list[Hello], list[PriceReply]]:
    sites, hellos = met(3)
    return sites, hellos, [reply_of(name, np.random.default_rng(5), 3.0) for name in NAMES[:3]]


def test_a_missing_or_doubled_reply_is_found_out() -> None:
    sites, hellos, replies = three()
    made = masked(sites, replies)
    for wrong in (made[:2], [*made[:2], made[1]], [*made, made[0]]):
        with pytest.raises(MalformedMessage, match="missing or comes twice"):
            Unmasking(hellos).total(query(), wrong, 7, DIGEST)
    swapped = [made[0], made[1], replace(made[1], site="turin")]
    with pytest.raises(MalformedMessage, match="do not add up"):
        Unmasking(hellos).total(query(), swapped, 7, DIGEST)


def test_sites_that_were_asked_different_things_give_garbage_together() -> None:
    """A coordinator that asks one site the question and the others something harmless, under one number."""
    sites, hellos, replies = three()
    other = hashlib.sha256(b"something harmless").digest()
    made = [site.mask(query(), reply, 7, d) for site, reply, d in zip(sites, replies, (DIGEST, other, other))]
    for digest in (DIGEST, other):
        with pytest.raises(MalformedMessage, match="do not add up"):
            Unmasking(hellos).total(query(), made, 7, digest)


def test_a_reply_of_another_number_or_under_other_keys_is_found_out() -> None:
    sites, hellos, replies = three()
    good = masked(sites[:2], replies[:2])
    late = [*good, *masked(sites[2:], replies[2:], number=6)]
    with pytest.raises(MalformedMessage, match="do not add up"):
        Unmasking(hellos).total(query(), late, 7, DIGEST)
    others, _ = met(3)
    foreign = [*good, *masked(others[2:], replies[2:])]
    with pytest.raises(MalformedMessage, match="do not add up"):
        Unmasking(hellos).total(query(), foreign, 7, DIGEST)


def test_replies_of_another_round_or_form_are_found_out() -> None:
    sites, hellos, replies = three()
    twin = copy(sites[2])
    made = masked(sites, replies)
    with pytest.raises(MalformedMessage, match="another round"):
        Unmasking(hellos).total(query(4), made, 7, DIGEST)
    short = twin.mask(query(), replace(replies[2], boxes=None), 7, DIGEST)
    with pytest.raises(MalformedMessage, match="other sums"):
        Unmasking(hellos).total(query(), [*made[:2], short], 7, DIGEST)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda h: [replace(h[0], key=bytes(32)), *h[1:]], "not signed|own"),
        (lambda h: [h[0], replace(h[1], key=h[2].key), h[2]], "one key"),
        (lambda h: [h[0], replace(h[1], weight=h[1].weight + 1), h[2]], "not signed"),
        (lambda h: [h[0], replace(h[1], length=h[1].length + 1), h[2]], "not signed"),
        (lambda h: [h[0], replace(h[1], certificate=b"turin"), h[2]], "not signed"),
        (lambda h: [h[0], replace(h[1], signature=b""), h[2]], "not signed"),
        (lambda h: [h[0], replace(h[1], job="an earlier job"), h[2]], "another job"),
        (lambda h: h[:2], "all sites"),
        (lambda h: [h[0], h[2], h[1]], "in order"),
        (lambda h: [h[0], h[1], h[1]], "each once"),
        (lambda h: h[1:], "own"),
        (lambda h: [], "own"),
    ],
)
def test_keys_that_are_not_those_of_all_sites_are_refused(change: Any, reason: str) -> None:
    sites = [SiteMasks("job", name, sign, name.encode(), check) for name in NAMES[:3]]
    hellos = [site.hello(1.0, 1.0) for site in sites]
    with pytest.raises(NodeRefused, match=reason):
        sites[0].meet(change(hellos), 3)
    assert not sites[0].ready
    with pytest.raises(NodeRefused, match="no masks"):
        sites[0].mask(query(), reply_of("berlin", np.random.default_rng(0), 1.0), 1, DIGEST)


def test_a_number_that_could_wrap_is_refused() -> None:
    sites, _ = met(3, weight=1.0, largest=1.0)
    reply = reply_of("berlin", np.random.default_rng(0), 1.0)
    large = replace(reply, priced=Priced(1e30, np.zeros(5)))
    with pytest.raises(NodeRefused, match=r"'priced.total' exceeds"):
        sites[0].mask(query(), large, 7, DIGEST)


def test_the_largest_numbers_do_not_wrap() -> None:
    """Every site at the very limit: the sums stay below 2^62 in both limbs."""
    for n_sites in (2, 3, 4, 1000, 4096):
        most = np.nextafter(2.0 ** (BITS - exponent(n_sites)), 0.0)
        limbs = to_limbs(np.array([most, -most]), 0, NEAREST, n_sites)
        for row, sign_ in zip(limbs.tolist(), (1, -1), strict=True):
            total = [n_sites * limb for limb in row]
            assert all(abs(limb) < 2**62 for limb in total)
            assert sign_ * (total[0] * 2**LOW + total[1]) == n_sites * int(most)


@given(st.lists(st.floats(-1e30, 1e30), min_size=1, max_size=20), st.integers(-80, 30), st.sampled_from([DOWN, 0, UP]))
def test_one_number_there_and_back(values: list[float], quantum: int, rounding: int) -> None:
    try:
        limbs = to_limbs(np.array(values), quantum, rounding, 2)
    except NodeRefused:
        assert max(map(abs, values)) >= 2.0 ** (BITS - 1 + quantum)
        return
    back, error = from_limbs(limbs, quantum, 2)
    for number, (high, low), near, doubt in zip(values, limbs.tolist(), back.tolist(), error.tolist(), strict=True):
        held = (high * 2**LOW + low) * Fraction(2) ** quantum
        assert abs(held - Fraction(number)) <= Fraction(2) ** quantum
        assert rounding * (held - Fraction(number)) >= 0
        assert abs(Fraction(near) - held) <= Fraction(doubt)


def test_the_smallest_numbers_are_rounded_outward_too() -> None:
    tiny = np.array([5e-324, -5e-324, 0.0])
    assert to_limbs(tiny, 60, UP, 2).tolist() == [[0, 1], [0, 0], [0, 0]]
    assert to_limbs(tiny, 60, DOWN, 2).tolist() == [[0, 0], [0, -1], [0, 0]]


def test_a_wide_domain_costs_next_to_nothing() -> None:
    """Rows of scale one in a domain of ± a million: what masks round away is far below what doubles do."""
    scales = Scales(3, exponent(300.0), exponent(1e6)).with_coordinates(Coordinates(np.zeros(2), np.eye(2), 1.0))
    assert 2.0 ** scales.quantum(2, "y") < 1e-12


@given(st.binary(max_size=100))
def test_no_bytes_crash_the_coordinator(data: bytes) -> None:
    try:
        assert MaskedReply.unpacked(data) is None
    except MalformedMessage:
        return


def test_every_field_of_a_reply_has_a_rule() -> None:
    assert {one.name for one in fields(PriceReply)} - {"round", "node", "step", "seconds"} == set(PARTS)
    for kind, rules in FIELDS.items():
        assert {one.name for one in fields(kind)} - {"digest"} == set(rules)


def test_sums_for_preparation_are_masked_too() -> None:
    sites, hellos = met(3)
    rng = np.random.default_rng(2)
    sums = [FeatureSums(3.5, rng.uniform(0, 9, 4), rng.normal(size=4), rng.uniform(0, 9, 4)) for _ in sites]
    made = [s.mask_parts({"features": one}, 0, 0, 5, DIGEST) for s, one in zip(sites, sums, strict=True)]
    total = Unmasking(hellos).features(made, 5, DIGEST)
    for name in ("total", "weights", "sums", "squares"):
        assert getattr(total, name) == pytest.approx(sum(getattr(one, name) for one in sums), rel=1e-14)
    with pytest.raises(MalformedMessage):
        Unmasking(hellos).total(PriceQuery(0), made, 5, DIGEST)


def test_what_a_proof_rests_on_is_rounded_to_its_safe_side() -> None:
    up = {(kind.__name__, name) for kind, rules in FIELDS.items() for name, rule in rules.items() if rule[2:] == (UP,)}
    down = {(kind.__name__, n) for kind, rules in FIELDS.items() for n, rule in rules.items() if rule[2:] == (DOWN,)}
    assert up == {
        ("Located", "scatter_error"), ("BoxSums", "worth"), ("BoxSums", "cuts"), ("ClaimSums", "cuts"),
        ("Evaluated", "costs"),
    }  # fmt: skip
    assert down == {("Priced", "total"), ("PricesKept", "totals"), ("PairBound", "bound")}
