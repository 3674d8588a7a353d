"""CSV and its relatives as people have them: any separator, decimal comma, blank rows, compressed."""

from __future__ import annotations

import csv
import gzip
import io
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np

from ..core.arrays import Array
from ..core.errors import InvalidInput
from ..core.names import visible

MISSING = frozenset({"", "na", "nan", "n/a", "null", "none", "."})
BOOLEANS = {"true": 1.0, "false": 0.0}
SEPARATORS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar"}
LOOKED_AT = 20  # lines, to find the separator

COMMA = re.compile(r"[+-]?\d*,\d+(?:[eE][+-]?\d+)?")
POINT = re.compile(r"[+-]?\d*\.\d+(?:[eE][+-]?\d+)?")

Decimal = Literal[".", ","]


@dataclass(frozen=True)
class TextFormat:
    """What is given; None is found from the file."""

    separator: str | None = None
    decimal: Decimal | None = None

    @classmethod
    def checked(cls, separator: str | None, decimal: str | None) -> TextFormat:
        named = {name: sign for sign, name in SEPARATORS.items()} | {r"\t": "\t"}
        sign = named.get(separator or "", separator)
        if sign is not None and sign not in SEPARATORS:
            raise InvalidInput(f"unknown separator '{visible(sign)}'; choose one of {', '.join(SEPARATORS.values())}")
        if decimal not in (None, ".", ","):
            raise InvalidInput(f"unknown decimal sign '{visible(str(decimal))}'; choose '.' or ','")
        if sign == "," and decimal == ",":
            raise InvalidInput("the comma cannot both separate columns and mark decimals; give another --separator")
        return cls(sign, decimal)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Cells:
    """A text file taken apart, not yet numbers."""

    names: tuple[str, ...]
    body: list[list[str]]
    numbers: list[int]  # of the rows in the file, from 1
    decimal: Decimal
    notices: tuple[str, ...] = ()
    blank_columns: frozenset[int] = field(default=frozenset())  # without name and without any cell

    def column(self, name: str) -> list[str]:
        d = self.names.index(name)
        return [line[d] for line in self.body]


def read_cells(path: Path, where: str, form: TextFormat) -> Cells:
    text = _text(path, where)
    separator = form.separator or _separator(text, form.decimal)
    lines = list(csv.reader(io.StringIO(text, newline=""), delimiter=separator))
    filled = [j for j, line in enumerate(lines) if any(cell.strip() for cell in line)]
    if not filled:
        raise InvalidInput(f"{where} is empty")
    first = lines[filled[0]]
    decimal, comma_seen = _decimal([lines[j] for j in filled], separator, form.decimal, where)
    headed = not all(_is_number(cell, decimal) for cell in first)
    names = tuple(cell.strip() for cell in first) if headed else tuple(f"x{d}" for d in range(len(first)))
    rows = filled[1:] if headed else filled
    start = filled[0] + (1 if headed else 0)
    body, numbers = [lines[j] for j in rows], [j - start + 1 for j in rows]
    for j, line in zip(numbers, body):
        if len(line) != len(names):
            raise InvalidInput(
                f"{where} row {j} has {len(line)} cells, the header has {len(names)}; the separator was taken to be a "
                f"{SEPARATORS[separator]}, give another with --separator"
            )
    notices = []
    if comma_seen:
        notices.append(f"{where}: commas are read as decimal signs, as in '{comma_seen}'; --decimal . says otherwise")
    n_blank = sum(1 for line in lines[filled[0] : filled[-1]] if not any(cell.strip() for cell in line))
    if n_blank:
        notices.append(f"{where}: {n_blank} blank {'rows are' if n_blank > 1 else 'row is'} left out")
    blank = (d for d, name in enumerate(names) if not name and not any(line[d].strip() for line in body))
    return Cells(names, body, numbers, decimal, tuple(notices), frozenset(blank))


def _text(path: Path, where: str) -> str:
    if path.suffix.lower() != ".gz":
        return path.read_text(encoding="utf-8-sig")
    try:
        with gzip.open(path, "rt", newline="", encoding="utf-8-sig") as file:
            return file.read()
    except (gzip.BadGzipFile, EOFError):
        raise InvalidInput(f"{where} is not what its suffix says: no complete gzip file") from None


def _separator(text: str, decimal: Decimal | None) -> str:
    """The first of semicolon, tab and comma that cuts all of the first lines alike, else the most frequent."""
    lines = [line for line in io.StringIO(text) if line.strip()][:LOOKED_AT]
    candidates = [";", "\t", ","] if decimal != "," else [";", "\t"]
    for candidate in candidates:
        widths = {len(cells) for cells in csv.reader(lines, delimiter=candidate)}
        if len(widths) == 1 and widths.pop() > 1:
            return candidate
    return max(reversed(candidates), key=lines[0].count) if lines else ","


def _decimal(lines: list[list[str]], separator: str, given: Decimal | None, where: str) -> tuple[Decimal, str]:
    """The decimal sign, and an example if it was found to be the comma."""
    if given is not None or separator == ",":
        return given or ".", ""
    cells = [cell.strip() for line in lines for cell in line]
    comma = next((cell for cell in cells if COMMA.fullmatch(cell)), "")
    point = next((cell for cell in cells if POINT.fullmatch(cell)), "")
    if comma and point:
        raise InvalidInput(f"{where} has both '{comma}' and '{point}'; say which sign marks decimals with --decimal")
    return ("," if comma else "."), comma


def parse_column(
    where: str, column: str, cells: Sequence[str], numbers: Sequence[int] | None = None, decimal: Decimal = "."
) -> tuple[Array, str]:
    """Numbers and kind of a column; missing values become NaN."""
    values = np.empty(len(cells))
    seen_boolean = seen_number = False
    for j, cell in enumerate(cells):
        text = cell.strip()
        lowered = text.lower()
        if lowered in MISSING:
            values[j] = math.nan
        elif lowered in BOOLEANS:
            values[j], seen_boolean = BOOLEANS[lowered], True
        else:
            try:
                values[j], seen_number = number(text, decimal), True
            except ValueError:
                row = j + 1 if numbers is None else numbers[j]
                raise InvalidInput(text_message(where, column, f"'{visible(text[:60])}' in row {row}")) from None
    if seen_boolean and seen_number:
        raise InvalidInput(f"{where}: column '{column}' mixes true/false with numbers; write 1 and 0")
    return values, "boolean" if seen_boolean else "number"


def number(text: str, decimal: Decimal = ".") -> float:
    """A number as files write it; Python's underscores are text."""
    if "_" in text or (decimal == "," and "." in text):
        raise ValueError(text)
    return float(text.replace(",", ".") if decimal == "," else text)


def text_message(where: str, column: str, what: str) -> str:
    return f"{where}: column '{column}' is not numeric ({what}); select numeric columns (--columns) or encode it"


def _is_number(cell: str, decimal: Decimal) -> bool:
    try:
        number(cell.strip(), decimal)
    except ValueError:
        return False
    return True
