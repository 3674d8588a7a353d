"""How large may what msgpack builds become? Answered from the bytes, before anything is built.

One byte of msgpack can stand for an empty list of 56 bytes, and five bytes can announce a list of four thousand
millions. `check_structure` walks over the bytes, skipping texts and binary payloads, and refuses what no message has:
more elements, deeper nesting, extensions. What unpacking may then cost is the size of the payloads plus a constant.
"""

from __future__ import annotations

from ..core.errors import MalformedMessage

MOST_DEEP = 6  # frame, body, part, array, shape, and the size in it
MOST_ELEMENTS = 12_000  # keys, numbers, texts, lists: the names of 10,000 features and all fields of any message

# first byte → bytes of the value behind it
NUMBERS = {0xCA: 4, 0xCB: 8, 0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8, 0xD0: 1, 0xD1: 2, 0xD2: 4, 0xD3: 8}
CONSTANTS = frozenset({0xC0, 0xC2, 0xC3})  # nil, false, true
# first byte → bytes that hold the length of what follows
PAYLOADS = {0xC4: 1, 0xC5: 2, 0xC6: 4, 0xD9: 1, 0xDA: 2, 0xDB: 4}  # binary, text
LISTS = {0xDC: 2, 0xDD: 4}
MAPS = {0xDE: 2, 0xDF: 4}


def check_structure(data: bytes | bytearray | memoryview) -> None:
    """Raise `MalformedMessage` unless the bytes are one msgpack value within the limits above."""
    view = memoryview(data).cast("B")
    at, seen = 0, 1
    open_items = [1]  # still to come, for each container around the present place
    while open_items:
        if open_items[-1] == 0:
            open_items.pop()
            continue
        open_items[-1] -= 1
        if at >= len(view):
            raise MalformedMessage("not a msgpack message (it ends too early)")
        head = view[at]
        at += 1
        inner = -1  # items of a container that begins here
        if head <= 0x7F or head >= 0xE0 or head in CONSTANTS:
            pass
        elif head in NUMBERS:
            at += NUMBERS[head]
        elif 0xA0 <= head <= 0xBF:
            at += head & 0x1F
        elif head in PAYLOADS:
            width = PAYLOADS[head]
            at += width + _length(view, at, width)
        elif head <= 0x8F or head in MAPS:
            width = MAPS.get(head, 0)
            inner = 2 * (_length(view, at, width) if width else head & 0x0F)
            at += width
        elif head <= 0x9F or head in LISTS:
            width = LISTS.get(head, 0)
            inner = _length(view, at, width) if width else head & 0x0F
            at += width
        else:
            raise MalformedMessage(f"not a msgpack message of ours (byte {head:#x} at {at - 1})")
        if inner >= 0:
            seen += inner
            open_items.append(inner)
            if seen > MOST_ELEMENTS:
                raise MalformedMessage(f"more than {MOST_ELEMENTS} elements; no message has so many")
            if len(open_items) > MOST_DEEP:
                raise MalformedMessage(f"nested deeper than {MOST_DEEP - 1} levels; no message is")
    if at != len(view):
        raise MalformedMessage(f"not a msgpack message ({len(view)} bytes, of which it takes {at})")


def _length(view: memoryview, at: int, width: int) -> int:
    return int.from_bytes(view[at : at + width], "big")
