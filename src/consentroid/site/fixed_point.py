"""Sums as integers that can be masked: each number of a `PriceReply` in two limbs modulo 2^64, rounded outward.

A field is a sum of weights times a power p of lengths, in features (x) or coordinates (y). With W ≥ the weight of all
rows, R ≥ every length, N sites (all powers of two, known to everybody) its quantum is

    q = W R^p 2^(HEADROOM + ⌈log2 N⌉ − BITS),

so a site's number is an integer of q below 2^(BITS − ⌈log2 N⌉) unless it exceeds W R^p by 2^HEADROOM; then the site
refuses, it never wraps. An integer v = ±(h 2^LOW + l), 0 ≤ l < 2^LOW, is the pair of signed limbs (±h, ±l):

    |Σ h| < N 2^(BITS − LOW − ⌈log2 N⌉) ≤ 2^62   and   |Σ l| < N 2^LOW ≤ 2^62   for N ≤ 2^12,

so that both sums are recovered exactly from their values modulo 2^64, without carries. 64 bits alone would make the
rounding grow with the domain that an administrator states; two limbs leave 2^(16 + 2 − 112) of W R² with four sites,
and every double above 2^-40 of W R² is represented exactly.

Rounding: totals and constants C of quadratics down, cuts, worth and costs up, the rest to the nearest; what rounding W
and V can cost within a box is taken off C. Adding is exact, and the last step back to doubles is rounded outward again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core.arrays import Array
from ..core.errors import MalformedMessage, NodeRefused
from ..protocol.messages import (
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

HEADROOM, BITS, LOW = 16, 112, 50
ERRORS = 60  # squares of rounding errors are smaller than squares of lengths by this power of two
MOST_SITES = 2**12
EPS = 2.0**-52
Limbs = NDArray[np.int64]
Words = NDArray[np.uint64]


@dataclass(frozen=True)
class FeatureSums:
    """Over the rows where a feature is known: Σ w, Σ w (x − r), Σ w (x − r)² about a reference r; for preparation."""

    total: float  # weight of all rows
    weights: Array  # (D,)
    sums: Array  # (D,)
    squares: Array  # (D,)


DOWN, NEAREST, UP = -1, 0, 1
QUADRATIC = "quadratic"  # (W, V, C) in one array
# field → (power of lengths, x or y or e: squares of rounding errors of y, rounding)
FIELDS: dict[type, dict[str, tuple[int, str, int] | str]] = {
    MomentSums: {"weight": (0, "x", NEAREST), "sums": (1, "x", NEAREST), "products": (2, "x", NEAREST)},
    Located: {"scatter_error": (2, "e", UP)},
    Priced: {"total": (2, "y", DOWN), "column_prices": (2, "y", NEAREST)},
    ColumnSums: {
        "costs": (2, "y", NEAREST),
        "sizes": (0, "y", NEAREST),
        "overlaps": (0, "y", NEAREST),
        "prices": (2, "y", NEAREST),
        "centre_prices": (2, "y", NEAREST),
    },
    TripleSums: {"found": (0, "y", NEAREST), "overlaps": (0, "y", NEAREST)},
    Trimmed: {"values": (2, "y", NEAREST), "weights": (0, "y", NEAREST), "offsets": (1, "y", NEAREST)},
    BoxSums: {
        "minorants": QUADRATIC,
        "insides": QUADRATIC,
        "undecided": (0, "y", NEAREST),
        "worth": (2, "y", UP),
        "cuts": (1, "y", UP),
        "scores": (2, "y", NEAREST),
    },
    ClaimSums: {"minorants": QUADRATIC, "insides": QUADRATIC, "cuts": (1, "y", UP)},
    Evaluated: {
        "costs": (2, "x", UP),
        "counts": (0, "x", NEAREST),
        "offsets": (1, "x", NEAREST),
        "spreads": (2, "x", NEAREST),
    },
    PricesKept: {"totals": (2, "y", DOWN)},
    PairBound: {"bound": (2, "x", DOWN), "reach": (2, "x", NEAREST)},
    FeatureSums: {
        "total": (0, "x", NEAREST),
        "weights": (0, "x", NEAREST),
        "sums": (1, "x", NEAREST),
        "squares": (2, "x", NEAREST),
    },
}
PARTS: dict[str, type] = {
    "moments": MomentSums,
    "located": Located,
    "priced": Priced,
    "columns": ColumnSums,
    "triples": TripleSums,
    "trimmed": Trimmed,
    "boxes": BoxSums,
    "claimed": ClaimSums,
    "evaluated": Evaluated,
    "kept": PricesKept,
    "pairs": PairBound,
}
KINDS: dict[str, type] = PARTS | {"features": FeatureSums}
Layout = tuple[tuple[str, tuple[int, ...]], ...]  # "part.field" and shape, in order


@dataclass(frozen=True)
class Scales:
    """Powers of two that everybody knows: total weight, largest |x|, and what the coordinates make of it."""

    n_sites: int
    weight: int
    length_x: int
    length_y: int | None = None  # until the coordinates are set

    def with_coordinates(self, at: Coordinates) -> Scales:
        """|y| ≤ (|x| + |origin|) · |basis| · scale."""
        reach = 2.0**self.length_x + float(np.abs(at.origin).max(initial=0.0))
        most = reach * float(np.abs(at.basis).sum(axis=0).max(initial=0.0)) * at.scale * (1.0 + 64 * EPS)
        return Scales(self.n_sites, self.weight, self.length_x, exponent(2.0 * most))

    def quantum(self, power: int, space: str) -> int:
        """log2 of a field's quantum."""
        length = self.length_x if space == "x" else self.length_y
        if length is None:
            raise NodeRefused("sums of coordinates were asked for before there are coordinates")
        return self.weight + power * length - (ERRORS if space == "e" else 0) + HEADROOM + exponent(self.n_sites) - BITS


def exponent(value: float) -> int:
    """The least e with 2^e ≥ value.

    >>> exponent(1.0), exponent(5), exponent(0.3)
    (0, 3, -1)
    """
    if not value > 0.0 or not math.isfinite(value):
        return 0 if value == 0.0 else 900
    mantissa, e = math.frexp(value)
    return e - 1 if mantissa == 0.5 else e


def _pieces(kind: type, name: str, shape: tuple[int, ...]) -> list[tuple[int, str, int, Callable[[Any], Any]]]:
    """The parts of an array that share a quantum, as (power, space, rounding, selection)."""
    rule = FIELDS[kind][name]
    if not isinstance(rule, str):
        return [(*rule, lambda array: array)]
    if len(shape) != 2 or shape[1] < 3:
        raise MalformedMessage(f"{kind.__name__}.{name} is no array of quadratics")
    return [
        (0, "y", NEAREST, lambda array: array[:, :1]),
        (1, "y", NEAREST, lambda array: array[:, 1:-1]),
        (2, "y", DOWN, lambda array: array[:, -1:]),
    ]


def parts_of(reply: PriceReply) -> dict[str, Any]:
    return {part: getattr(reply, part) for part in PARTS if getattr(reply, part) is not None}


def encode(parts: Mapping[str, Any], scales: Scales) -> tuple[Layout, Limbs]:
    """All sums of a reply as limbs (n, 2); `NodeRefused` if a number is too large to be added safely."""
    layout: list[tuple[str, tuple[int, ...]]] = []
    limbs: list[Limbs] = []
    for part, sums in parts.items():
        kind = KINDS[part]
        for name in FIELDS[kind]:
            array = np.asarray(getattr(sums, name), dtype=float)
            layout.append((f"{part}.{name}", array.shape))
            for power, space, rounding, select in _pieces(kind, name, array.shape):
                quantum = scales.quantum(power, space)
                limbs.append(to_limbs(select(array).ravel(), quantum, rounding, scales.n_sites, f"{part}.{name}"))
    return tuple(layout), np.concatenate(limbs) if limbs else np.empty((0, 2), np.int64)


def to_limbs(values: Array, quantum: int, rounding: int, n_sites: int, name: str = "a sum") -> Limbs:
    """Integers of 2^quantum as pairs of limbs, rounded as told."""
    with np.errstate(over="ignore", under="ignore"):
        size = np.ldexp(np.abs(values), -quantum)  # exact: a power of two
    size = np.where((size == 0.0) & (values != 0.0), 5e-324, size)  # too small for doubles, but not nothing
    if not np.all(size < 2.0 ** (BITS - exponent(n_sites))):  # also where it is not a number
        raise NodeRefused(f"'{name}' exceeds what can be added under masks; ask for open sums or state a wider domain")
    high = np.floor(np.ldexp(size, -LOW))
    low = size - np.ldexp(high, LOW)  # exact: the low bits of the same number
    away = (rounding * np.sign(values) > 0) if rounding else np.zeros(len(values), bool)
    whole = np.where(away, np.ceil(low), np.floor(low)) if rounding else np.rint(low)
    sign = np.where(values < 0.0, -1, 1)
    return np.stack([sign * high.astype(np.int64), sign * whole.astype(np.int64)], axis=1)


def from_limbs(total: Limbs, quantum: int, n_sites: int) -> tuple[Array, Array]:
    """The sum in doubles and a bound on its error: rounding at each site and in this last step."""
    high, low = np.ldexp(total[:, 0].astype(float), LOW), total[:, 1].astype(float)
    value = high + low
    seen = value - high
    lost = (high - (value - seen)) + (low - seen)  # of this addition, exactly
    exact = (np.abs(total) < 2**53).all(axis=1) & (lost == 0.0)
    error = n_sites + np.where(exact, 0.0, 2 * EPS * (np.abs(high) + np.abs(low)))
    return np.ldexp(value, quantum), np.ldexp(error, quantum)


def decode(total: Limbs, layout: Layout, scales: Scales, query: PriceQuery, digest: str) -> PriceReply:
    """One reply that stands for all sites, from the exact sums of their limbs."""
    made = decode_parts(total, layout, scales, query, digest)
    if "features" in made:
        raise MalformedMessage("the masked sums answer another question")
    return PriceReply(round=query.round, node="all", step=query.step, **made)


def decode_parts(
    total: Limbs, layout: Layout, scales: Scales, query: PriceQuery | None = None, digest: str = ""
) -> dict[str, Any]:
    told: dict[str, dict[str, Any]] = {}
    at = 0
    for where, shape in layout:
        part, _, name = where.partition(".")
        kind = KINDS[part]
        value, doubt = np.empty(shape), np.empty(shape)
        for power, space, rounding, select in _pieces(kind, name, shape):
            place = select(value)
            n = place.size
            numbers, errors = from_limbs(total[at : at + n], scales.quantum(power, space), scales.n_sites)
            at += n
            outward = numbers + rounding * _last_step(numbers, errors, scales.n_sites, power, space, scales)
            place[...] = outward.reshape(place.shape)
            select(doubt)[...] = errors.reshape(place.shape)
        if FIELDS[kind][name] == QUADRATIC:
            value = _safe_quadratics(value, doubt, part, query)
        told.setdefault(part, {})[name] = value if shape else float(value)
    if at != len(total):
        raise MalformedMessage("the masked sums do not have the size that was announced")
    if "kept" in told:
        told["kept"]["digest"] = digest
    if "pairs" in told:
        kept = query is not None and query.pairs is not None and query.pairs.keep
        told["pairs"]["digest"] = digest if kept else ""
    return {part: KINDS[part](**values) for part, values in told.items()}


def _last_step(numbers: Array, errors: Array, n_sites: int, power: int, space: str, scales: Scales) -> Array:
    """What turning the exact sum into doubles can have cost; the sites rounded their own parts outward already."""
    return np.asarray(np.maximum(errors - math.ldexp(float(n_sites), scales.quantum(power, space)), 0.0))


def _safe_quadratics(value: Array, doubt: Array, part: str, query: PriceQuery | None) -> Array:
    """Take off C what the rounding of W and V can cost within the box."""
    asked: Examine | Claim | None = None
    if query is not None:
        asked = query.examine if part == "boxes" else query.claim
    if asked is None or asked.lower.shape != value[:, 1:-1].shape:
        raise MalformedMessage("the masked sums answer another question")
    width = asked.upper - asked.lower
    cost = doubt[:, 0] * (width**2).sum(axis=1) + 2.0 * (doubt[:, 1:-1] * width).sum(axis=1)
    value[:, -1] -= cost * (1.0 + 64 * EPS) + 2 * EPS * np.abs(value[:, -1]) * (cost > 0.0)
    return value


def check_layout(layout: Any) -> Layout:
    """A layout that came over the wire."""
    good = isinstance(layout, list) and len(layout) <= 64
    known = {f"{part}.{name}" for part, kind in KINDS.items() for name in FIELDS[kind]}
    if not good or not all(
        isinstance(entry, list)
        and len(entry) == 2
        and entry[0] in known
        and isinstance(entry[1], list)
        and len(entry[1]) <= 5
        and all(type(n) is int and 0 <= n <= 10**8 for n in entry[1])
        for entry in layout
    ):
        raise MalformedMessage("the masked reply has no layout")
    return tuple((str(where), tuple(shape)) for where, shape in layout)


assert all(set(rules) | {"digest"} >= {one.name for one in fields(kind)} for kind, rules in FIELDS.items())
