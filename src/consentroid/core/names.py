"""Names of sites and columns: checked once, at the door, so that nothing odd travels or reaches a terminal.

Letters (of any script), digits, `.`, `_`, `-` and space, at most 100 characters; names of sites become names of files
and neither begin nor end with a full stop. Names of columns may also have the signs that units and formulas need, as in
`sepal length (cm)`; brackets, quotes and backslashes are markup somewhere.
"""

from __future__ import annotations

import unicodedata
from typing import Literal

from .errors import InvalidInput

LONGEST = 100
EVERYWHERE = frozenset("._- ")
IN_COLUMNS = frozenset("()%/+#:,;'&*^=°²³µ·~!?@|$€£")

Kind = Literal["site", "column"]


def check_name(name: str, kind: Kind = "site", where: str = "") -> str:
    """The name itself, if it is one; otherwise an error that shows it harmlessly and says what is allowed."""
    place = f"{where}: " if where else ""
    if not name.strip():
        raise InvalidInput(f"{place}a {kind} has an empty name; give it one")
    if len(name) > LONGEST:
        raise InvalidInput(
            f"{place}the {kind} name '{visible(name[:20])}…' has {len(name)} characters; use at most {LONGEST}"
        )
    if name != name.strip():
        raise InvalidInput(f"{place}the {kind} name '{visible(name)}' begins or ends with a space; remove it")
    if kind == "site" and name != name.strip("."):
        raise InvalidInput(f"{place}the {kind} name '{visible(name)}' begins or ends with a full stop; remove it")
    allowed = EVERYWHERE | IN_COLUMNS if kind == "column" else EVERYWHERE
    for character in name:
        marks = kind == "column" and unicodedata.category(character)[0] == "M"
        if not (character.isalnum() or character in allowed or marks):
            also = " or the signs of units" if kind == "column" else ""
            raise InvalidInput(
                f"{place}the {kind} name '{visible(name)}' has the character '{visible(character)}'; "
                f"rename it with letters, digits, '.', '_', '-', spaces{also}"
            )
    return name


def visible(text: str) -> str:
    """The text with everything written out that a terminal would obey or hide: control and format characters.

    >>> visible("a" + chr(27) + "[31m" + chr(10))
    'a\\\\x1b[31m\\\\n'
    """
    return "".join(_written_out(c) if unicodedata.category(c) in HIDDEN else c for c in text)


HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def _written_out(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")
