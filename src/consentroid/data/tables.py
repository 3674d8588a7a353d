"""Tables in: CSV, Parquet, Arrow, npy and npz files, databases, pandas, polars and Arrow frames, as names and numbers.

Nothing is guessed silently: text, missing values and missing columns end in one sentence that names the file (or the
site), the column, the row and the remedy; what is left out or read in one of several ways is told in `Table.notices`.
Rows are counted from 1, as a spreadsheet shows them without its header.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import narwhals as nw
import numpy as np

from ..core.arrays import Array
from ..core.errors import InvalidInput
from ..core.extras import require
from ..core.names import check_name, visible
from .file_sets import TEXT, files_of, is_many, suffix_of
from .text_files import TextFormat, parse_column, read_cells, text_message

INDEX = re.compile(r"__index_level_\d+__|Unnamed: \d+|")
DATABASE = re.compile(r"[A-Za-z][\w.+-]*://")
NPZ_ROWS = ("rows", "points", "X", "x", "data")
NPZ_NAMES = ("names", "columns", "features", "feature_names")


@dataclass(frozen=True)
class Table:
    """Named columns of numbers; a missing value is NaN and only there if it was allowed."""

    names: tuple[str, ...]
    rows: Array  # (J, D)
    kinds: tuple[str, ...] = ()  # "number" or "boolean", one a column: what a schema check compares
    notices: tuple[str, ...] = ()  # what was left out or guessed while reading, one sentence each

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
        kinds = tuple(self.kinds[i] for i in index)
        return Table(tuple(columns), np.ascontiguousarray(self.rows[:, index]), kinds, self.notices)

    def told(self, *notices: str) -> Table:
        """The same table with more notices."""
        return replace(self, notices=self.notices + notices)


def read_table(
    source: str | Path,
    columns: Sequence[str] | None = None,
    *,
    missing: bool = False,
    separator: str | None = None,
    decimal: str | None = None,
) -> Table:
    """Read a file by its suffix (.csv, .tsv, .txt, also with .gz; .parquet, .feather, .arrow, .npy, .npz), or rows of a
    database by its address (URL#TABLE or URL#SELECT ..., see `databases.py`).

    `columns` selects and orders; `missing=True` lets NaN through, for imputation. A CSV whose first line is all numbers
    has no header, and its columns are called x0, x1, ...; its separator and decimal sign are found unless given.
    """
    if is_database(source):
        from .databases import read_database

        return read_database(str(source), columns, missing=missing)
    if is_many(source):
        return _read_many(str(source), columns, missing, separator, decimal)
    path = Path(source)
    where = f"'{visible(str(path))}'"
    kind = suffix_of(path)
    if kind not in READERS and kind not in TEXT:
        raise InvalidInput(f"cannot read {where}: the file type must be one of {', '.join(sorted([*READERS, *TEXT]))}")
    if not path.is_file():
        raise InvalidInput(f"cannot read {where}: there is no such file")
    try:
        if kind in TEXT:
            return _read_text(path, columns, missing, where, TextFormat.checked(separator, decimal))
        return READERS[kind](path, columns, missing, where)
    except UnicodeDecodeError:
        raise InvalidInput(f"{where} is not text in UTF-8; convert it or give the file its true suffix") from None
    except OSError as error:
        raise InvalidInput(f"cannot read {where}: {error.strerror or _sentence(error)}") from None


def _read_many(
    source: str, columns: Sequence[str] | None, missing: bool, separator: str | None, decimal: str | None
) -> Table:
    tables = [
        read_table(file, columns, missing=missing, separator=separator, decimal=decimal) for file in files_of(source)
    ]
    first = tables[0]
    for file, table in zip(files_of(source), tables, strict=True):
        if table.names != first.names:
            others = f"columns {_listed(table.names)}, the first file {_listed(first.names)}"
            raise InvalidInput(f"'{visible(file)}' has {others}; name those to use with --columns")
    rows = np.concatenate([table.rows for table in tables])
    return Table(first.names, rows, first.kinds, tuple(notice for table in tables for notice in table.notices))


def is_database(source: object) -> bool:
    """Whether this is the address of a database rather than of a file."""
    return isinstance(source, str) and DATABASE.match(source) is not None


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
    return finished(table, columns, missing, where)


def is_frame(data: Any) -> bool:
    """Whether narwhals can read it as an eager data frame."""
    native = nw.from_native(data, eager_only=True, pass_through=True)
    return isinstance(native, nw.DataFrame)


def _read_text(path: Path, columns: Sequence[str] | None, missing: bool, where: str, form: TextFormat) -> Table:
    cells = read_cells(path, where, form)
    names, dropped = without_index(cells.names, columns, where, blank=cells.blank_columns)
    check_names(names, where)
    wanted = _wanted(names, columns, where)
    parsed = [parse_column(where, c, cells.column(c), cells.numbers, cells.decimal) for c in wanted]
    return finished(stacked(wanted, parsed, len(cells.body)).told(*cells.notices, *dropped), None, missing, where)


def _read_parquet(path: Path, columns: Sequence[str] | None, missing: bool, where: str) -> Table:
    return _read_arrow("pyarrow.parquet", path, columns, missing, where)


def _read_feather(path: Path, columns: Sequence[str] | None, missing: bool, where: str) -> Table:
    return _read_arrow("pyarrow.feather", path, columns, missing, where)


def _read_arrow(module: str, path: Path, columns: Sequence[str] | None, missing: bool, where: str) -> Table:
    read = require(module, "parquet", f"reading {where}").read_table
    import pyarrow

    try:
        frame = read(str(path))
    except pyarrow.ArrowException as error:
        raise InvalidInput(f"{where} is not what its suffix says: {_sentence(error)}") from None
    names, dropped = without_index(tuple(map(str, frame.column_names)), columns, where)
    native = nw.from_native(frame, eager_only=True)
    return _from_frame(native, names if columns is None else columns, missing, where).told(*dropped)


def _read_npy(path: Path, columns: Sequence[str] | None, missing: bool, where: str) -> Table:
    try:
        rows = np.load(path, allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise InvalidInput(f"{where} is not a plain numpy array: {_sentence(error)}") from None
    return finished(_from_array(rows, (), where), columns, missing, where)


def _read_npz(path: Path, columns: Sequence[str] | None, missing: bool, where: str) -> Table:
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = {key: archive[key] for key in archive.files}
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        raise InvalidInput(f"{where} is not a plain numpy archive: {_sentence(error)}") from None
    names = next((tuple(map(str, arrays.pop(key))) for key in NPZ_NAMES if key in arrays), ())
    key = next((key for key in NPZ_ROWS if key in arrays), None)
    if key is None and len(arrays) == 1:
        key = next(iter(arrays))
    if key is None:
        raise InvalidInput(f"{where} holds {_listed(arrays)}; call the array of rows 'rows'")
    return finished(_from_array(arrays[key], names, where), columns, missing, where)


READERS = {
    ".parquet": _read_parquet,
    ".feather": _read_feather,
    ".arrow": _read_feather,
    ".npy": _read_npy,
    ".npz": _read_npz,
}


def _from_frame(frame: nw.DataFrame[Any], columns: Sequence[str] | None, missing: bool, where: str) -> Table:
    names = tuple(str(name) for name in frame.columns)
    check_names(names, where)
    wanted = _wanted(names, columns, where)
    parsed = [_frame_column(frame.get_column(frame.columns[names.index(c)]), c, where) for c in wanted]
    return finished(stacked(wanted, parsed, len(frame)), None, missing, where)


def _frame_column(series: nw.Series[Any], column: str, where: str) -> tuple[Array, str]:
    dtype = series.dtype
    if dtype == nw.Boolean:
        return series.cast(nw.Float64).to_numpy().astype(float), "boolean"
    if dtype.is_numeric():
        return np.asarray(series.cast(nw.Float64).to_numpy(), dtype=float), "number"
    if dtype in (nw.String, nw.Object):
        cells = ["" if cell is None or cell != cell else str(cell) for cell in series.to_list()]
        if dtype == nw.Object or not any(cells):
            return parse_column(where, column, cells)
        example = next(cell for cell in cells if cell)
        raise InvalidInput(text_message(where, column, f"'{visible(example)}'"))
    raise InvalidInput(text_message(where, column, f"type {dtype}"))


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


def stacked(names: tuple[str, ...], parsed: Sequence[tuple[Array, str]], n_rows: int) -> Table:
    rows = np.column_stack([values for values, _ in parsed]) if parsed else np.empty((n_rows, 0))
    return Table(names, np.ascontiguousarray(rows, dtype=float), tuple(kind for _, kind in parsed))


def finished(table: Table, columns: Sequence[str] | None, missing: bool, where: str) -> Table:
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
        remedy = "replace it" if np.isinf(table.rows[j, d]) else "impute it (--impute) or drop the row"
        raise InvalidInput(f"{where}: row {j + 1} has {what} in column '{table.names[d]}'; {remedy}")
    return table


def _wanted(names: tuple[str, ...], columns: Sequence[str] | None, where: str) -> tuple[str, ...]:
    for column in columns or ():
        if column not in names:
            raise InvalidInput(f"{where} has no column '{column}'; it has {_listed(names)}")
    return names if columns is None else tuple(columns)


def check_names(names: Sequence[str], where: str) -> None:
    for name in names:
        check_name(name, "column", where)
        if names.count(name) > 1:
            raise InvalidInput(f"{where} has two columns called '{name}'; rename one")


def without_index(
    names: tuple[str, ...], columns: Sequence[str] | None, where: str, blank: frozenset[int] = frozenset()
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names without those of a saved row index, unless asked for, and a notice for each that is left out."""
    kept, notices = [], []
    for d, name in enumerate(names):
        if name in (columns or ()) or not INDEX.fullmatch(name):
            kept.append(name)
        elif name or d == 0:
            notices.append(f"{where}: column '{name}' is a row index and is left out")
        elif d not in blank:
            raise InvalidInput(f"{where}: column {d + 1} has no name; give it one")
    return tuple(kept), tuple(notices)


def _listed(names: Iterable[str], most: int = 12) -> str:
    quoted = [f"'{name}'" for name in names]
    return ", ".join(quoted[:most]) + (f" and {len(quoted) - most} more" if len(quoted) > most else "")


def _sentence(error: BaseException) -> str:
    return str(error).strip().splitlines()[0].rstrip(".") if str(error).strip() else type(error).__name__
