"""How many bytes a message takes on the wire, without writing it: a count must not cost more than what it counts.

Payloads of arrays and texts are exact, headers as msgpack writes them for such sizes; the result is never below the
true size and above it by a few bytes.
"""

from __future__ import annotations

import dataclasses
from functools import cache
from typing import Any

import numpy as np

from .messages import Request, Response

FRAME = 40  # the frame's own map and keys, beside the name of the message's type


def size_of(message: Request | Response) -> int:
    """Bytes of the encoded message, rounded up."""
    return FRAME + len(type(message).__name__) + _size(message)


def _size(value: Any) -> int:
    if value is None or isinstance(value, bool):
        return 1
    if isinstance(value, np.ndarray):
        return 5 + sum(map(_header, value.shape)) + _header(value.nbytes) + value.nbytes
    if isinstance(value, str):
        return _header(len(value.encode())) + len(value.encode())
    if isinstance(value, tuple):
        return 5 + sum(map(_size, value))
    if dataclasses.is_dataclass(value):
        message: Any = type(value)
        return _headers(message) + sum(1 if part is None else _size(part) for part in vars(value).values())
    return _header(value) if isinstance(value, int) and 0 <= value < 2**32 else 9


@cache
def _headers(message: type) -> int:
    """Bytes of a message's own header and of the names of its fields."""
    names: dict[str, object] = vars(message)["__dataclass_fields__"]
    return 3 + sum(1 + len(name) for name in names)


def _header(number: int) -> int:
    """Bytes of a number, or of the length of something so long."""
    return 2 if number < 2**8 else 3 if number < 2**16 else 5
