"""Tables in: CSV, Parquet, Arrow, npy and npz files, and pandas, polars or Arrow frames, as names and numbers.

Nothing is guessed silently: text, missing values and missing columns end in one sentence that names the file (or the
node), the column, the row and the remedy. Rows are counted from 1, as a spreadsheet shows them without its header.
"""

from __future__ import annotations

import csv
import math
import zipfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import narwhals as nw
import numpy as np

from ..core.arrays import Array
from ..core.errors import InvalidInput

MISSING = frozenset({"", "na", "nan", "n/a", "null", "none", "."})
BOOLEANS = {"true": 1.0, "false": 0.0}
NPZ_ROWS = ("rows", "points", "X", "x", "data")
NPZ_NAMES = ("names", "columns", "features", "feature_names")


@dataclass(frozen=True)
class Table:
    """Named columns of numbers; a missing value is NaN and only there if it was allowed."""

    names: tuple[str, ...]
    rows: Array  # (J, D)
    kinds: tuple[str, ...] = ()  # "number" or "boolean", one a column: what a schema check compares

    def __post_init__(self) -> None:
        if not self.kinds:
            object.__setattr__(self, "kinds", ("number",) * len(self.names))

    @property
    def n_rows(self) -> int:
        return len(self.rows)

    def select(self, columns: Sequence[str], where: str) -> Table:
        """The named columns, in that order."""
        for column in columns:
            if column not in self.names:
                raise InvalidInput(f"{where} has no column '{column}'; it has {_listed(self.names)}")
        index = [self.names.index(column) for column in columns]
        return Table(tuple(columns), np.ascontiguousarray(self.rows[:, index]), tuple(self.kinds[i] for i in index))


def read_table(path: str | Path, columns: Sequence[str] | None = None, *, missing: bool = False) -> Table:
    """Read a file by its suffix: .csv, .tsv, .txt, .parquet, .feather, .arrow, .npy, .npz.

    `columns` selects and orders; `missing=True` lets NaN through, for imputation. A CSV whose first line is all numbers
    has no header, and its columns are called x0, x1, ...
    """
    path = Path(path)
    reader = READERS.get(path.suffix.lower())
    if reader is None:
        raise InvalidInput(f"cannot read '{path}': the file type must be one of {', '.join(sorted(READERS))}")
    if not path.is_file():
        raise InvalidInput(f"cannot read '{path}': there is no such file")
    try:
        return reader(path, columns, missing)
    except UnicodeDecodeError:
        raise InvalidInput(f"'{path}' is not text in UTF-8; convert it or give the file its true suffix") from None


def as_table(
    frame: Any, columns: Sequence[str] | None = None, *, missing: bool = False, where: str = "the table"
) -> Table:
    """A `Table` from a pandas, polars or Arrow frame, a `Table`, or anything numpy takes as two-dimensional."""
    if isinstance(frame, Table):
        table = frame
    elif is_frame(frame):
        return _from_frame(nw.from_native(frame, eager_only=True), columns, missing, where)
    else:
        table = _from_array(frame, (), where)
    return _finished(table, columns, missing, where)


def is_frame(data: Any) -> bool:
    """Whether narwhals can read it as an eager data frame."""
    native = nw.from_native(data, eager_only=True, pass_through=True)
    return isinstance(native, nw.DataFrame)


def _read_csv(path: Path, columns: Sequence[str] | None, missing: bool) -> Table:
    with path.open(newline="", encoding="utf-8-sig") as file:
        first = file.readline()
        file.seek(0)
        delimiter = max(",;\t", key=first.count)
        lines = [line for line in csv.reader(file, delimiter=delimiter) if any(cell.strip() for cell in line)]
    if not lines:
        raise InvalidInput(f"'{path}' is empty")
    headed = not all(_is_number(cell) for cell in lines[0])
    names = tuple(cell.strip() for cell in lines[0]) if headed else tuple(f"x{d}" for d in range(len(lines[0])))
    body = lines[1:] if headed else lines
    _check_names(names, f"'{path}'")
    for j, line in enumerate(body, start=1):
        if len(line) != len(names):
            raise InvalidInput(f"'{path}' row {j} has {len(line)} cells, the header has {len(names)}")
    wanted = _wanted(names, columns, f"'{path}'")
    parsed = [_parse_column(f"'{path}'", c, [line[names.index(c)] for line in body]) for c in wanted]
    return _finished(_stacked(wanted, parsed, len(body)), None, missing, f"'{path}'")


def _read_parquet(path: Path, columns: Sequence[str] | None, missing: bool) -> Table:
    parquet = _pyarrow("parquet", path)
    return _read_arrow(parquet.read_table, path, columns, missing)


def _read_feather(path: Path, columns: Sequence[str] | None, missing: bool) -> Table:
    feather = _pyarrow("feather", path)
    return _read_arrow(feather.read_table, path, columns, missing)


def _read_arrow(read: Any, path: Path, columns: Sequence[str] | None, missing: bool) -> Table:
    import pyarrow

    try:
        frame = read(str(path))
    except pyarrow.ArrowException as error:
        raise InvalidInput(f"'{path}' is not what its suffix says: {_sentence(error)}") from None
    return _from_frame(nw.from_native(frame, eager_only=True), columns, missing, f"'{path}'")


def _read_npy(path: Path, columns: Sequence[str] | None, missing: bool) -> Table:
    try:
        rows = np.load(path, allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise InvalidInput(f"'{path}' is not a plain numpy array: {_sentence(error)}") from None
    return _finished(_from_array(rows, (), f"'{path}'"), columns, missing, f"'{path}'")


def _read_npz(path: Path, columns: Sequence[str] | None, missing: bool) -> Table:
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = {key: archive[key] for key in archive.files}
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        raise InvalidInput(f"'{path}' is not a plain numpy archive: {_sentence(error)}") from None
    names = next((tuple(map(str, arrays.pop(key))) for key in NPZ_NAMES if key in arrays), ())
    key = next((key for key in NPZ_ROWS if key in arrays), None)
    if key is None and len(arrays) == 1:
        key = next(iter(arrays))
    if key is None:
        raise InvalidInput(f"'{path}' holds {_listed(arrays)}; call the array of rows 'rows'")
    return _finished(_from_array(arrays[key], names, f"'{path}'"), columns, missing, f"'{path}'")


READERS = {
    ".csv": _read_csv,
    ".tsv": _read_csv,
    ".txt": _read_csv,
    ".parquet": _read_parquet,
    ".feather": _read_feather,
    ".arrow": _read_feather,
    ".npy": _read_npy,
    ".npz": _read_npz,
}


def _from_frame(frame: nw.DataFrame[Any], columns: Sequence[str] | None, missing: bool, where: str) -> Table:
    names = tuple(str(name) for name in frame.columns)
    _check_names(names, where)
    wanted = _wanted(names, columns, where)
    parsed = [_frame_column(frame.get_column(frame.columns[names.index(c)]), c, where) for c in wanted]
    return _finished(_stacked(wanted, parsed, len(frame)), None, missing, where)


def _frame_column(series: nw.Series[Any], column: str, where: str) -> tuple[Array, str]:
    dtype = series.dtype
    if dtype == nw.Boolean:
        return series.cast(nw.Float64).to_numpy().astype(float), "boolean"
    if dtype.is_numeric():
        return np.asarray(series.cast(nw.Float64).to_numpy(), dtype=float), "number"
    if dtype in (nw.String, nw.Object):
        cells = ["" if cell is None or cell != cell else str(cell) for cell in series.to_list()]
        if dtype == nw.Object or not any(cells):
            return _parse_column(where, column, cells)
        example = next(cell for cell in cells if cell)
        raise InvalidInput(_text_message(where, column, f"'{example}'"))
    raise InvalidInput(_text_message(where, column, f"type {dtype}"))


def _from_array(data: Any, names: Sequence[str], where: str) -> Table:
    try:
        rows = np.array(data, dtype=float)
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"{where} is not numeric ({_sentence(error)}); encode or drop such columns") from None
    if np.iscomplexobj(data):
        raise InvalidInput(f"{where} holds complex numbers; give real features")
    if rows.ndim != 2:
        raise InvalidInput(f"{where} must be a table of rows and columns, got {rows.ndim} dimension(s)")
    names = tuple(names) or tuple(f"x{d}" for d in range(rows.shape[1]))
    if len(names) != rows.shape[1]:
        raise InvalidInput(f"{where} has {rows.shape[1]} columns and {len(names)} names")
    kind = "boolean" if np.asarray(data).dtype == bool else "number"
    return Table(names, np.ascontiguousarray(rows), (kind,) * len(names))


def _parse_column(where: str, column: str, cells: Sequence[str]) -> tuple[Array, str]:
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
                values[j], seen_number = float(text), True
            except ValueError:
                raise InvalidInput(_text_message(where, column, f"'{text}' in row {j + 1}")) from None
    if seen_boolean and seen_number:
        raise InvalidInput(f"{where}: column '{column}' mixes true/false with numbers; write 1 and 0")
    return values, "boolean" if seen_boolean else "number"


def _stacked(names: tuple[str, ...], parsed: Sequence[tuple[Array, str]], n_rows: int) -> Table:
    rows = np.column_stack([values for values, _ in parsed]) if parsed else np.empty((n_rows, 0))
    return Table(names, np.ascontiguousarray(rows, dtype=float), tuple(kind for _, kind in parsed))


def _finished(table: Table, columns: Sequence[str] | None, missing: bool, where: str) -> Table:
    if columns is not None:
        table = table.select(columns, where)
    if table.n_rows == 0:
        raise InvalidInput(f"{where} has no rows; leave it out")
    if not table.names:
        raise InvalidInput(f"{where} has no columns")
    bad = np.isinf(table.rows) if missing else ~np.isfinite(table.rows)
    if bad.any():
        j, d = (int(i[0]) for i in np.nonzero(bad))
        what = "infinity" if np.isinf(table.rows[j, d]) else "a missing value (NaN)"
        remedy = "replace it" if np.isinf(table.rows[j, d]) else "impute it (see federated imputation) or drop the row"
        raise InvalidInput(f"{where}: row {j + 1} has {what} in column '{table.names[d]}'; {remedy}")
    return table


def _wanted(names: tuple[str, ...], columns: Sequence[str] | None, where: str) -> tuple[str, ...]:
    for column in columns or ():
        if column not in names:
            raise InvalidInput(f"{where} has no column '{column}'; it has {_listed(names)}")
    return names if columns is None else tuple(columns)


def _check_names(names: Sequence[str], where: str) -> None:
    for name in names:
        if names.count(name) > 1:
            raise InvalidInput(f"{where} has two columns called '{name}'; rename one")


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _pyarrow(module: str, path: Path) -> Any:
    try:
        return __import__(f"pyarrow.{module}", fromlist=[module])
    except ImportError:
        raise InvalidInput(
            f"reading '{path}' needs pyarrow; install it with: pip install 'consentroid[parquet]'"
        ) from None


def _text_message(where: str, column: str, what: str) -> str:
    return f"{where}: column '{column}' is not numeric ({what}); select numeric columns or encode it"


def _listed(names: Iterable[str], most: int = 12) -> str:
    quoted = [f"'{name}'" for name in names]
    return ", ".join(quoted[:most]) + (f" and {len(quoted) - most} more" if len(quoted) > most else "")


def _sentence(error: BaseException) -> str:
    return str(error).strip().splitlines()[0].rstrip(".") if str(error).strip() else type(error).__name__
