"""Messages as bytes: msgpack, never pickle; what arrives is checked before anything is built from it.

A frame is the map {"consentroid": version, "type": name, "body": {field: value}}. The fields and their kinds are read
from the dataclasses of `messages.py` themselves, so nothing else can be written or read; `SHAPES` adds what a type
hint cannot say. An array is [code, shape, little-endian bytes]. Letters in `SHAPES` stand for sizes that must agree
wherever they occur in one message: A all columns, B boxes, C candidates, D features, E = D + 2, K clusters, L slots,
P points, Q new columns, S columns before the new ones, T cuts.

Decoding a message of n bytes takes at most 4 n bytes and a megabyte: `structure.py` bounds what is built around the
payloads, a payload is copied twice.

Numbers that are not finite are refused, except where they have a meaning (`MAY_BE_INFINITE`); NaN is always refused.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import types
import typing
from collections.abc import Mapping
from typing import Any, Literal, get_args, get_origin

import msgpack
import numpy as np
from numpy.typing import NDArray

from ..core.errors import MalformedMessage
from . import messages
from .messages import Request, Response
from .structure import check_structure

VERSION = 7
MAX_BYTES = 256 * 2**20  # well under the transport's frame limit of 2 GiB
MAX_TEXT = 2_000  # characters of a name or reason
MAX_NAMES = 10_000  # features
MAX_SIZE = {
    "A": 10**5, "B": 10**6, "C": 10**5, "D": MAX_NAMES, "E": MAX_NAMES + 2, "K": 10_000,
    "L": 10**6, "P": 10**6, "Q": 10**5, "S": 10**5, "T": 10**7,
}  # fmt: skip

SHAPES: dict[str, tuple[str | int, ...]] = {
    "Describe.lower": ("D",),
    "Describe.upper": ("D",),
    "Solve.boxes": ("B", 2, "K", "D"),
    "Solve.prices": ("B", "K", "D"),
    "Evaluate.candidates": ("C", "K", "D"),
    "Query.references": ("K", "D"),
    "Description.lower": ("D",),
    "Description.upper": ("D",),
    "Description.allowed": (3,),
    "Solved.bounds": ("B",),
    "Solved.values": ("B",),
    "Solved.centroids": ("B", "K", "D"),
    "Solved.optimal": ("B",),
    "Evaluated.costs": ("C",),
    "Evaluated.counts": ("C", "K"),
    "Evaluated.offsets": ("C", "K", "D"),
    "Evaluated.spreads": ("C", "K"),
    "Moments.reference": ("D",),
    "Coordinates.origin": ("D",),
    "Coordinates.basis": ("D", "D"),
    "StartPrices.centroids": ("K", "D"),
    "MovePrices.z": ("S",),
    "MakeColumns.kept": ("S",),
    "MakeColumns.points": ("Q", "D"),
    "FindTriples.z": ("S",),
    "ImprovePairs.centroids": ("K", "D"),
    "Trim.points": ("P", "D"),
    "Examine.lower": ("B", "D"),
    "Examine.upper": ("B", "D"),
    "Examine.held": ("B", "D"),
    "Examine.steepness": ("B",),
    "Examine.keys": ("B",),
    "Examine.parents": ("B",),
    "Claim.lower": ("B", "D"),
    "Claim.upper": ("B", "D"),
    "Claim.held": ("B", "D"),
    "Claim.cut_box": ("T",),
    "Claim.cut_axis": ("T",),
    "Claim.cut_side": ("T",),
    "Claim.cut_at": ("T",),
    "Claim.cut_mu": ("T",),
    "KeepPrices.slots": ("L",),
    "MomentSums.sums": ("D",),
    "MomentSums.products": ("D", "D"),
    "Priced.column_prices": ("S",),
    "ColumnSums.costs": ("Q",),
    "ColumnSums.sizes": ("Q",),
    "ColumnSums.overlaps": ("Q", "A"),
    "ColumnSums.prices": ("Q",),
    "ColumnSums.centre_prices": ("Q",),
    "TripleSums.overlaps": ("S", "S"),
    "Trimmed.values": ("P",),
    "Trimmed.weights": ("P",),
    "Trimmed.offsets": ("P", "D"),
    "BoxSums.minorants": ("B", "E"),
    "BoxSums.insides": ("B", "E"),
    "BoxSums.undecided": ("B",),
    "BoxSums.worth": ("B",),
    "BoxSums.cuts": ("B", "D", 2, 3, 4),
    "BoxSums.scores": ("B", "D"),
    "ClaimSums.minorants": ("B", "E"),
    "ClaimSums.insides": ("B", "E"),
    "ClaimSums.cuts": ("T",),
    "PricesKept.totals": ("L",),
}
# No budget in time; a box that the symmetry rule leaves empty has the bound and value +inf.
MAY_BE_INFINITE = frozenset({"Solve.seconds", "Solved.bounds", "Solved.values"})

CODES: dict[str, np.dtype[Any]] = {"f8": np.dtype("<f8"), "i8": np.dtype("<i8"), "b1": np.dtype("u1")}
KINDS: dict[str, type] = {"f8": np.float64, "i8": np.int64, "b1": np.bool_}  # in memory
REQUESTS = get_args(Request)
RESPONSES = get_args(Response)
TYPES = {kind.__name__: kind for kind in (*REQUESTS, *RESPONSES)}
ENCODED = "_encoded"  # attribute of a message that holds its bytes, beside its fields
Sizes = dict[str, int]


def encode(message: Request | Response) -> bytes:
    """The message as bytes; raises `MalformedMessage` for one that the other side would refuse.

    Messages are never changed, so the bytes are kept with the message: a journal around a network encodes once.
    """
    kept = vars(message).get(ENCODED)
    if kept is not None:
        return bytes(kept)
    frame = {"consentroid": VERSION, "type": type(message).__name__, "body": _pack(message, {})}
    data = bytes(msgpack.packb(frame, use_bin_type=True))
    if len(data) > MAX_BYTES:
        raise MalformedMessage(f"the message has {len(data)} bytes, more than {MAX_BYTES}; send fewer boxes at once")
    object.__setattr__(message, ENCODED, data)
    return data


def decode_request(data: bytes) -> Request:
    """What a coordinator sent; raises `MalformedMessage` unless it is a well-formed request."""
    return typing.cast(Request, _decode(data, REQUESTS))


def decode_response(data: bytes) -> Response:
    """What a node sent; raises `MalformedMessage` unless it is a well-formed response."""
    return typing.cast(Response, _decode(data, RESPONSES))


def _decode(data: bytes, expected: tuple[type, ...]) -> object:
    if not isinstance(data, bytes | bytearray | memoryview):
        raise MalformedMessage(f"expected bytes, got {type(data).__name__}")
    if len(data) > MAX_BYTES:
        raise MalformedMessage(f"the message has {len(data)} bytes, more than {MAX_BYTES}")
    check_structure(data)
    try:
        frame = msgpack.unpackb(data, raw=False, strict_map_key=True, max_ext_len=0, max_str_len=4 * MAX_TEXT)
    except (ValueError, TypeError, OverflowError, RecursionError, msgpack.UnpackException) as error:
        raise MalformedMessage(f"not a msgpack message ({type(error).__name__}: {str(error)[:200]})") from None
    if not isinstance(frame, dict) or set(frame) != {"consentroid", "type", "body"}:
        raise MalformedMessage("the frame must hold exactly 'consentroid', 'type' and 'body'")
    if type(frame["consentroid"]) is not int or frame["consentroid"] != VERSION:
        raise MalformedMessage(
            f"protocol version {_shown(frame['consentroid'])} is not {VERSION}; install the same release"
        )
    kind = TYPES.get(frame["type"]) if isinstance(frame["type"], str) else None
    if kind is None or kind not in expected:
        names = ", ".join(one.__name__ for one in expected)
        raise MalformedMessage(f"unexpected message type {_shown(frame['type'])}; expected one of {names}")
    message = _unpack(kind, frame["body"], {})
    if isinstance(data, bytes):
        object.__setattr__(message, ENCODED, data)
    return message


@functools.cache
def fields_of(kind: Any) -> Mapping[str, Any]:
    """Name → type of every field of a message class."""
    hints = typing.get_type_hints(kind, vars(messages))
    return {field.name: hints[field.name] for field in dataclasses.fields(kind)}


def _pack(message: Any, sizes: Sizes) -> dict[str, Any]:
    kind: Any = type(message)
    packed = {}
    for name, hint in fields_of(kind).items():
        packed[name] = _pack_value(f"{kind.__name__}.{name}", hint, getattr(message, name), sizes)
    return packed


def _pack_value(where: str, hint: Any, value: Any, sizes: Sizes) -> Any:
    hint, optional = _required(hint)
    if value is None:
        if not optional:
            raise MalformedMessage(f"{where} is missing")
        return None
    if dataclasses.is_dataclass(hint):
        return _pack(value, sizes)
    if get_origin(hint) is np.ndarray:
        code = _code(hint)
        array: NDArray[Any] = np.ascontiguousarray(value, dtype=KINDS[code])
        _check_array(where, array, sizes)
        return [code, list(array.shape), array.astype(CODES[code], copy=False).tobytes()]
    if hint is int:
        value = int(value)
    elif hint is float:
        value = float(value)
    elif get_origin(hint) is tuple:
        value = [str(item) for item in value]
    elif hint is str:
        value = str(value)[:MAX_TEXT] if where == "Failure.reason" else str(value)
    _check_scalar(where, hint, value)
    return value


def _unpack(kind: Any, body: Any, sizes: Sizes) -> Any:
    expected = fields_of(kind)
    if not isinstance(body, dict) or set(body) != set(expected):
        raise MalformedMessage(f"{kind.__name__} must have exactly the fields {', '.join(expected)}")
    # Arrays are checked field by field in declared order, so that the first wrong size is the one reported.
    return kind(
        **{name: _unpack_value(f"{kind.__name__}.{name}", hint, body[name], sizes) for name, hint in expected.items()}
    )


def _unpack_value(where: str, hint: Any, value: Any, sizes: Sizes) -> Any:
    hint, optional = _required(hint)
    if value is None:
        if not optional:
            raise MalformedMessage(f"{where} is missing")
        return None
    if dataclasses.is_dataclass(hint):
        return _unpack(hint, value, sizes)
    if get_origin(hint) is np.ndarray:
        return _unpack_array(where, hint, value, sizes)
    _check_scalar(where, hint, value)
    return tuple(value) if get_origin(hint) is tuple else value


def _unpack_array(where: str, hint: Any, value: Any, sizes: Sizes) -> NDArray[Any]:
    code = _code(hint)
    if not isinstance(value, list) or len(value) != 3 or value[0] != code:
        raise MalformedMessage(f"{where} must be an array of kind {code}")
    shape, raw = value[1], value[2]
    if not isinstance(raw, bytes) or not isinstance(shape, list) or len(shape) != len(SHAPES[where]):
        raise MalformedMessage(f"{where} must have {len(SHAPES[where])} dimension(s) and its numbers as bytes")
    if not all(type(n) is int and 0 <= n <= MAX_BYTES for n in shape):
        raise MalformedMessage(f"{where} has the shape {_shown(shape)}")
    if math.prod(shape) * CODES[code].itemsize != len(raw):
        raise MalformedMessage(f"{where} has the shape {shape} but {len(raw)} bytes")
    array = np.frombuffer(raw, CODES[code]).reshape(shape)
    if code == "b1" and np.any(array > 1):
        raise MalformedMessage(f"{where} holds a byte that is neither true nor false")
    array = array.astype(KINDS[code])  # a copy: aligned, native and writable
    _check_array(where, array, sizes)
    return array


def _check_array(where: str, array: NDArray[Any], sizes: Sizes) -> None:
    spec = SHAPES[where]
    if array.ndim != len(spec):
        raise MalformedMessage(f"{where} has {array.ndim} dimension(s), not {len(spec)}")
    for letter, n in zip(spec, array.shape, strict=True):
        if letter == "E":
            wanted = sizes.setdefault("D", max(n - 2, 0)) + 2
        else:
            wanted = letter if isinstance(letter, int) else sizes.setdefault(letter, n)
        if n != wanted:
            raise MalformedMessage(f"{where} has the shape {array.shape} where {letter}={wanted}")
        if isinstance(letter, str) and not 0 <= n <= MAX_SIZE[letter]:
            raise MalformedMessage(f"{where} has {letter}={n}, more than {MAX_SIZE[letter]}")
    if array.dtype == np.float64:
        bad = np.isnan(array) if where in MAY_BE_INFINITE else ~np.isfinite(array)
        if bad.any():
            raise MalformedMessage(f"{where} holds {array[bad][0]}; every number must be finite")


def _check_scalar(where: str, hint: Any, value: Any) -> None:
    if hint is int:
        good = type(value) is int and -(2**63) <= value < 2**63
    elif hint is float:
        good = type(value) is float and (math.isfinite(value) or (where in MAY_BE_INFINITE and value == math.inf))
    elif hint is bool:
        good = type(value) is bool
    elif hint is str:
        good = isinstance(value, str) and len(value) <= MAX_TEXT
    elif get_origin(hint) is Literal:
        good = isinstance(value, str) and value in get_args(hint)
    elif get_origin(hint) is tuple:
        good = isinstance(value, list) and len(value) <= MAX_NAMES
        good = good and all(isinstance(item, str) and len(item) <= MAX_TEXT for item in value)
    else:
        raise TypeError(f"{where}: no wire format for {hint}")
    if not good:
        raise MalformedMessage(f"{where} holds {_shown(value)}, which is not allowed there")


def _shown(value: Any) -> str:
    """A value of the sender's for an error; never its whole text, which can be as long as the message."""
    if isinstance(value, str | bytes):
        return repr(value[:40])
    if isinstance(value, list):
        return str([_shown(item) if isinstance(item, str | bytes | list | dict) else item for item in value[:8]])
    return f"{len(value)} fields" if isinstance(value, dict) else repr(value)


def _code(hint: Any) -> str:
    """The kind of an array, from its type hint."""
    kind = get_args(get_args(hint)[1])[0]
    return next(code for code, known in KINDS.items() if known is kind)


def _required(hint: Any) -> tuple[Any, bool]:
    """The type without `| None`, and whether `None` is allowed."""
    if get_origin(hint) in (typing.Union, types.UnionType):
        kinds = [one for one in get_args(hint) if one is not type(None)]
        return kinds[0], len(kinds) < len(get_args(hint))
    return hint, False
