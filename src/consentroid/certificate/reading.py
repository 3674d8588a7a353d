"""Reads a certificate from elsewhere: every field, kind, size and range, before anything is computed with it.

Nothing here is larger in memory than a small multiple of the file: an array is decoded only if its shape matches the
length of its text. What cannot be read is refused with a `CertificateInvalid` that names the place.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core.arrays import Array
from ..core.errors import CertificateInvalid, InvalidInput
from ..core.names import Kind, check_name, visible
from .document import VERSION, BoxTree, CellProof, Certificate, LeafProof, PairsProof, RestProof, fingerprint_of

MOST_BYTES = 2**30  # of a file
LARGEST_COORDINATE = 1e150  # its square is still a number
LARGEST_COST = 1e300

FIELDS = (
    "consentroid_certificate", "n_clusters", "sites", "features", "domain", "coordinates", "root", "shift", "centroids",
    "site_costs", "scatter_errors", "total_scatter_error", "leaves", "rest", "pairs", "price_files", "lower",
    "upper", "gap", "fingerprint",
)  # fmt: skip


def read_json(path: Path | str) -> Any:
    """The file as JSON; numbers that are not finite and fields given twice are refused."""
    path = Path(path)
    try:
        size = path.stat().st_size
        if size > MOST_BYTES:
            raise CertificateInvalid(f"'{path}' has {size} bytes; certificates have at most {MOST_BYTES}")
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise InvalidInput(f"cannot read '{path}' ({error.strerror})") from None
    except UnicodeDecodeError:
        raise CertificateInvalid(f"'{path}' is not text in UTF-8") from None
    return parse_json(text, f"'{path}'")


def parse_json(text: str, what: str) -> Any:
    """The same for a text."""
    try:
        return json.loads(text, object_pairs_hook=_distinct_fields, parse_constant=_not_a_number)
    except ValueError as error:
        raise CertificateInvalid(f"{what} is not JSON: {_plain(str(error))}") from None
    except RecursionError:
        raise CertificateInvalid(f"{what} is nested too deeply for a certificate") from None


def certificate_from(document: Any) -> Certificate:
    """Check the structure, then the fingerprint."""
    if isinstance(document, dict) and document.get("format") == "consentroid-certificate":
        raise CertificateInvalid(
            f"this is a certificate of version 1; this program reads version {VERSION}: run the fit again"
        )
    if not isinstance(document, dict) or "consentroid_certificate" not in document:
        raise CertificateInvalid("this is not a certificate: the field 'consentroid_certificate' is missing")
    version = document["consentroid_certificate"]
    if type(version) is not int or version != VERSION:
        raise CertificateInvalid(f"consentroid_certificate: this program reads version {VERSION}, not {_show(version)}")
    _fields(document, FIELDS, "the certificate")
    sites = _names(document["sites"], "sites", "site")
    features = _names(document["features"], "features", "column")
    n, d = len(sites), len(features)
    k = _integer(document["n_clusters"], "n_clusters", 1, 10**9)
    coordinates = document["coordinates"]
    _fields(coordinates, ("origin", "basis", "scale"), "coordinates")
    price_files = document["price_files"]
    _fields(price_files, sites, "price_files")
    for name, digest in price_files.items():
        if not (isinstance(digest, str) and len(digest) == 64 and set(digest) <= set("0123456789abcdef")):
            raise CertificateInvalid(f"price_files, {name}: not a SHA-256 digest")
    pairs = None if document["pairs"] is None else _pairs(document["pairs"], n)
    if not isinstance(document["leaves"], list) or (pairs is None) != bool(document["leaves"]):
        raise CertificateInvalid("leaves: must be a list of at least one, or empty where pairs prove the bound")
    if pairs is not None and document["rest"] is not None:
        raise CertificateInvalid("rest: prices on pairs leave nothing out")
    result = Certificate(
        n_clusters=k,
        sites=sites,
        features=features,
        domain=_box(document["domain"], d, "domain"),
        origin=_numbers(coordinates["origin"], (d,), "coordinates.origin"),
        basis=_numbers(coordinates["basis"], (d, d), "coordinates.basis"),
        scale=_power_of_two(coordinates["scale"], "coordinates.scale"),
        root=_box(document["root"], d, "root"),
        shift=_shift(document["shift"]),
        centroids=_numbers(document["centroids"], (k, d), "centroids"),
        site_costs=_costs_or_none(document["site_costs"], n, "site_costs"),
        scatter_errors=_costs_or_none(document["scatter_errors"], n, "scatter_errors"),
        total_scatter_error=_cost(document["total_scatter_error"], "total_scatter_error"),
        leaves=tuple(_leaf(leaf, f"leaf {i}", k, n, d) for i, leaf in enumerate(document["leaves"])),
        price_files=dict(price_files),
        lower=_cost(document["lower"], "lower"),
        upper=_cost(document["upper"], "upper"),
        gap=_cost(document["gap"], "gap"),
        rest=None if document["rest"] is None else _rest(document["rest"], n, d),
        pairs=pairs,
    )
    if document["fingerprint"] != fingerprint_of(document):
        raise CertificateInvalid("fingerprint: the certificate was altered after it was written")
    return result


def _leaf(leaf: Any, place: str, k: int, n: int, d: int) -> LeafProof:
    _fields(leaf, ("path", "prices", "totals", "total", "bound", "cells"), place)
    if not isinstance(leaf["path"], list) or not isinstance(leaf["cells"], list):
        raise CertificateInvalid(f"{place}: path and cells must be lists")
    path = []
    for i, step in enumerate(leaf["path"]):
        at = f"{place}, path[{i}]"
        if not isinstance(step, list) or len(step) != 4:
            raise CertificateInvalid(f"{at}: must be [cell, axis, value, count below]")
        path.append(
            (
                _integer(step[0], at, 0, i),  # i branches make i + 1 cells
                _integer(step[1], at, 0, d - 1),
                _number(step[2], at, LARGEST_COORDINATE),
                _integer(step[3], at, 0, k),
            )
        )
    if len(leaf["cells"]) != len(path) + 1:
        raise CertificateInvalid(f"{place}: {len(path)} branches make {len(path) + 1} cells, not {len(leaf['cells'])}")
    return LeafProof(
        path=tuple(path),
        prices=_integer(leaf["prices"], f"{place}, prices", 0, 2**31 - 1),
        totals=_costs_or_none(leaf["totals"], n, f"{place}, totals"),
        total=_cost(leaf["total"], f"{place}, total"),
        bound=_number(leaf["bound"], f"{place}, bound", LARGEST_COST),
        cells=tuple(_cell(cell, f"{place}, cell {i}", k, n, d) for i, cell in enumerate(leaf["cells"])),
    )


def _cell(cell: Any, place: str, k: int, n: int, d: int) -> CellProof:
    _fields(cell, ("lower", "upper", "count", "target", "proof"), place)
    box = _box({"lower": cell["lower"], "upper": cell["upper"]}, d, place)
    count = _integer(cell["count"], f"{place}, count", 0, k)
    target = _number(cell["target"], f"{place}, target", LARGEST_COST)
    if target > 0.0:
        raise CertificateInvalid(f"{place}, target: {target!r} is above 0")
    if (cell["proof"] is None) != (count == 0):
        raise CertificateInvalid(f"{place}: a proof is due exactly where the count is not 0")
    proof = None if cell["proof"] is None else _tree(cell["proof"], f"{place}, proof", n, d)
    return CellProof(box[0], box[1], count, target, proof)


def _rest(rest: Any, n: int, d: int) -> RestProof:
    _fields(rest, ("bound", "moments"), "rest")
    bound, moments = _cost(rest["bound"], "rest, bound"), None
    if rest["moments"] is not None:
        moments = _unpacked(rest["moments"], "f8", 2, "rest, moments")
        if moments.shape != (n, 1 + d + d * d):
            raise CertificateInvalid(f"rest, moments: the shape {moments.shape} fits no {n} sites and {d} features")
        if np.abs(moments).max() > LARGEST_COST:
            raise CertificateInvalid("rest, moments: a number is out of range")
    return RestProof(bound, moments)


def _pairs(pairs: Any, n: int) -> PairsProof:
    _fields(pairs, ("bound", "bounds"), "pairs")
    return PairsProof(_cost(pairs["bound"], "pairs, bound"), _costs_or_none(pairs["bounds"], n, "pairs, bounds"))


def _tree(tree: Any, place: str, n: int, d: int) -> BoxTree:
    _fields(tree, ("kind", "axis", "side", "value", "mu", "claims"), place)
    kind = _unpacked(tree["kind"], "i4", 1, f"{place}, kind")
    length = len(kind)
    if length == 0:
        raise CertificateInvalid(f"{place}: has no records")
    axis, side = (_unpacked(tree[name], "i4", 1, f"{place}, {name}") for name in ("axis", "side"))
    value, mu = (_unpacked(tree[name], "f8", 1, f"{place}, {name}") for name in ("value", "mu"))
    for name, array in (("axis", axis), ("side", side), ("value", value), ("mu", mu)):
        if len(array) != length:
            raise CertificateInvalid(f"{place}, {name}: {len(array)} entries for {length} records")
    for name, array, most in (("kind", kind, 5), ("axis", axis, d - 1), ("side", side, 1)):
        if int(array.min()) < 0 or int(array.max()) > most:
            raise CertificateInvalid(f"{place}, {name}: must be from 0 to {most}")
    if np.abs(value).max() > LARGEST_COORDINATE or mu.min() < 0.0 or mu.max() > LARGEST_COORDINATE:
        raise CertificateInvalid(f"{place}: a value or mu is out of range")
    claims = None
    if tree["claims"] is not None:
        claims = _unpacked(tree["claims"], "f8", 3, f"{place}, claims")
        if claims.shape[1] != n or claims.shape[2] < 2 * (d + 2) or not 0 < claims.shape[0] <= length:
            raise CertificateInvalid(f"{place}, claims: the shape {claims.shape} fits no {n} sites and {d} features")
        if np.abs(claims).max() > LARGEST_COST:
            raise CertificateInvalid(f"{place}, claims: a number is out of range")
    return BoxTree(kind, axis, side, value, mu, claims)


def _unpacked(packed: Any, name: str, dimensions: int, place: str) -> NDArray[Any]:
    """{"shape", "f8" or "i4"} as an array; sizes are compared before anything is decoded."""
    _fields(packed, ("shape", name), place)
    shape, text = packed["shape"], packed[name]
    if not isinstance(shape, list) or len(shape) != dimensions or not isinstance(text, str):
        raise CertificateInvalid(f"{place}: must be an array of {dimensions} dimension(s)")
    size = math.prod(_integer(length, f"{place}, shape", 0, 2**40) for length in shape) * int(name[1])
    if len(text) != 4 * ((size + 2) // 3):
        raise CertificateInvalid(f"{place}: the shape {shape} does not fit {len(text)} characters of data")
    try:
        raw = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise CertificateInvalid(f"{place}: is not base64") from None
    if len(raw) != size:
        raise CertificateInvalid(f"{place}: {len(raw)} bytes, where the shape {shape} needs {size}")
    array = np.frombuffer(raw, dtype=f"<{name}").reshape(shape)
    if name == "f8" and not np.isfinite(array).all():
        raise CertificateInvalid(f"{place}: a number is not finite")
    return array.astype(np.int32 if name == "i4" else np.float64, copy=False)


def _fields(section: Any, names: tuple[str, ...], place: str) -> None:
    if not isinstance(section, dict):
        raise CertificateInvalid(f"{place}: must be an object with {', '.join(names)}")
    for name in names:
        if name not in section:
            raise CertificateInvalid(f"{place}: the field '{name}' is missing")
    for name in section:
        if name not in names:
            raise CertificateInvalid(f"{place}: unknown field {_show(name)}")


def _names(value: Any, place: str, kind: Kind) -> tuple[str, ...]:
    if not isinstance(value, list) or not value or not all(isinstance(name, str) for name in value):
        raise CertificateInvalid(f"{place}: must be a list of names")
    for name in value:
        try:
            check_name(name, kind, place)
        except InvalidInput as error:
            raise CertificateInvalid(str(error)) from None
    if len(set(value)) < len(value):
        raise CertificateInvalid(f"{place}: a name occurs twice")
    return tuple(value)


def _integer(value: Any, place: str, least: int, most: int) -> int:
    if type(value) is not int or not least <= value <= most:
        raise CertificateInvalid(f"{place}: {_show(value)} is not an integer from {least} to {most}")
    return value


def _number(value: Any, place: str, most: float) -> float:
    if type(value) not in (int, float):
        raise CertificateInvalid(f"{place}: {_show(value)} is not a number")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not abs(number) <= most:  # also where it is not a number
        raise CertificateInvalid(f"{place}: {_show(value)} is not a number of size at most {most:g}")
    return number


def _cost(value: Any, place: str) -> float:
    number = _number(value, place, LARGEST_COST)
    if number < 0.0:
        raise CertificateInvalid(f"{place}: {number!r} is negative")
    return number


def _costs_or_none(value: Any, n: int, place: str) -> Array | None:
    if value is None:
        return None
    if not isinstance(value, list) or len(value) != n:
        raise CertificateInvalid(f"{place}: must be null or a list of {n}")
    return np.array([_cost(entry, f"{place}[{i}]") for i, entry in enumerate(value)])


def _power_of_two(value: Any, place: str) -> float:
    number = _number(value, place, 2.0**1000)
    if number < 2.0**-1000 or math.frexp(number)[0] != 0.5:
        raise CertificateInvalid(f"{place}: {number!r} is not a power of two")
    return number


def _shift(value: Any) -> float:
    number = _number(value, "shift", 0.49)
    if number < 0.0:
        raise CertificateInvalid(f"shift: {number!r} is negative")
    return number


def _numbers(value: Any, shape: tuple[int, ...], place: str) -> Array:
    """A list, or a list of lists, of exactly this shape."""
    if not isinstance(value, list) or len(value) != shape[0]:
        raise CertificateInvalid(f"{place}: must be a list of {shape[0]}")
    if len(shape) == 1:
        return np.array([_number(entry, f"{place}[{i}]", LARGEST_COORDINATE) for i, entry in enumerate(value)])
    return np.array([_numbers(entry, shape[1:], f"{place}[{i}]") for i, entry in enumerate(value)])


def _box(section: Any, d: int, place: str) -> Array:
    _fields(section, ("lower", "upper"), place)
    box = np.stack([_numbers(section[side], (d,), f"{place}, {side}") for side in ("lower", "upper")])
    if np.any(box[0] > box[1]):
        raise CertificateInvalid(f"{place}: lower exceeds upper in feature {int(np.argmax(box[0] > box[1]))}")
    return box


def _distinct_fields(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) < len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise ValueError(f"the field {_show(name)} is given twice")
            seen.add(name)
    return result


def _not_a_number(text: str) -> float:
    raise ValueError(f"{text} is not a finite number")


def _show(value: Any) -> str:
    """A value from a file in an error message: short, and without control characters."""
    if type(value) is int:
        return str(value) if abs(value) < 10**18 else "a huge integer"
    return _plain(repr(value)) if isinstance(value, (str, float, bool)) or value is None else type(value).__name__


def _plain(text: str) -> str:
    return visible(text[:80]) + ("…" if len(text) > 80 else "")
