"""How many bytes a message takes on the wire, without writing it: a count must not cost more than what it counts.

The payload of arrays and texts is exact; names, shapes and numbers are counted with the constants below, each the most
that msgpack needs for it. The result is never below the true size and above it by a few bytes per field.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from .messages import Request, Response

FRAME = 40  # the frame's own map and keys, beside the name of the message's type
NUMBER = 9
ARRAY = 10  # list, code, list of sizes, length of the payload
EXTENT = 5  # one size of an array's shape
TEXT = 5
NAME = 1  # a field's name, beside its letters


def size_of(message: Request | Response) -> int:
    """Bytes of the encoded message, rounded up."""
    return FRAME + len(type(message).__name__) + _size(message)


def _size(value: Any) -> int:
    if value is None or isinstance(value, bool):
        return 1
    if isinstance(value, np.ndarray):
        return ARRAY + EXTENT * value.ndim + value.nbytes
    if isinstance(value, str):
        return TEXT + len(value.encode())
    if isinstance(value, tuple):
        return TEXT + sum(map(_size, value))
    if dataclasses.is_dataclass(value):
        names = [field.name for field in dataclasses.fields(value)]
        return 3 + sum(NAME + len(name) + _size(getattr(value, name)) for name in names)
    return NUMBER
