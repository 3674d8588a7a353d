"""Rows of a database, through SQLAlchemy: `URL#TABLE`, or `URL#SELECT ...` for a query.

    postgresql+psycopg://reader@db.example.org/clinic#measurements
    postgresql+psycopg://reader:${DB_PASSWORD}@db.example.org/clinic#SELECT age, weight FROM visits WHERE year = 2024
    sqlite:///birds.db#penguins

Passwords come from the environment: the database's own way (`PGPASSWORD`, `~/.pgpass`) or `${VARIABLE}` in the address,
filled in here and nowhere else. Errors name driver, host and database, never user, password or options, and what a
driver says is searched for the secret before it is shown. Rows are fetched in chunks and kept as numbers only.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any
from urllib.parse import quote, quote_plus

import numpy as np

from ..core.arrays import Array
from ..core.errors import InvalidInput
from ..core.extras import require
from ..core.names import visible
from .tables import Table, check_names, finished, stacked, without_index
from .text_files import parse_column, text_message

CHUNK = 10_000  # rows
VARIABLE = re.compile(r"\$\{(\w+)\}")
IDENTIFIER = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)?")
QUERY = re.compile(r"\s*(select|with)\b", re.IGNORECASE)
DRIVERS = {"postgresql+psycopg": "psycopg", "postgresql": "psycopg2", "mysql": "mysqlclient"}


@dataclass(frozen=True)
class Address:
    """A database and what to read from it; the words it is shown with hold no secret."""

    url: Any  # sqlalchemy.URL
    wanted: str
    secrets: tuple[str, ...]

    @classmethod
    def parse(cls, text: str) -> Address:
        sqlalchemy = require("sqlalchemy", "databases", "reading a database")
        location, mark, wanted = text.partition("#")
        if not mark or not wanted.strip():
            raise InvalidInput(
                "the address of a database must end in #TABLE or #SELECT ..., as in sqlite:///birds.db#penguins"
            )
        values: list[str] = []

        def fill(match: re.Match[str]) -> str:
            value = os.environ.get(match[1])
            if value is None:
                raise InvalidInput(f"the address of a database asks for ${{{match[1]}}}; set this environment variable")
            values.append(value)
            return quote(value, safe="")

        filled = VARIABLE.sub(fill, location)
        try:
            url = sqlalchemy.make_url(filled)
        except (sqlalchemy.exc.ArgumentError, ValueError):
            raise InvalidInput(
                "the address of a database cannot be read; write it as DRIVER://USER@HOST/DATABASE#TABLE and keep "
                "special characters in ${VARIABLE}s"
            ) from None
        options = [value for given in url.query.values() for value in ((given,) if isinstance(given, str) else given)]
        secrets = [*values, *options, str(url.password or ""), str(url.username or "")]
        return cls(url, wanted.strip(), tuple(secret for secret in secrets if secret))

    @property
    def where(self) -> str:
        """For errors: driver, host and database."""
        host = f"{self.url.host}/" if self.url.host else ""
        return visible(f"'{self.url.drivername}://{host}{self.url.database or ''}'")

    def statement(self, engine: Any) -> str:
        if IDENTIFIER.fullmatch(self.wanted):
            quoted = engine.dialect.identifier_preparer.quote
            return "SELECT * FROM " + ".".join(quoted(part) for part in self.wanted.split("."))
        if QUERY.match(self.wanted):
            return self.wanted
        raise InvalidInput(f"{self.where}: after # must stand the name of a table or a query that begins with SELECT")

    def without_secrets(self, error: BaseException) -> str:
        lines = str(getattr(error, "orig", None) or error).strip().splitlines()
        text = lines[0] if lines else type(error).__name__
        for secret in sorted(self.secrets, key=len, reverse=True):
            for form in (secret, quote(secret), quote_plus(secret)):
                text = text.replace(form, "…")
        return visible(text.rstrip("."))


def read_database(address: str, columns: Sequence[str] | None = None, *, missing: bool = False) -> Table:
    """A table or the answer of a query as a `Table`."""
    sqlalchemy = require("sqlalchemy", "databases", "reading a database")
    given = Address.parse(address)
    where = given.where
    try:
        # Parameters may hold secrets: they stay out of SQLAlchemy's own messages and log.
        engine = sqlalchemy.create_engine(given.url, hide_parameters=True, poolclass=sqlalchemy.pool.NullPool)
    except (ModuleNotFoundError, sqlalchemy.exc.NoSuchModuleError):
        driver = DRIVERS.get(given.url.drivername, "a driver of this database")
        raise InvalidInput(
            f"{where} needs {driver}; install it with pip, or take postgresql+psycopg of 'consentroid[databases]'"
        ) from None
    try:
        with engine.connect() as connection:
            # No parameters: a % in the query is a %, and nothing in it is taken for a placeholder.
            streamed = connection.execution_options(no_parameters=True, stream_results=True, max_row_buffer=CHUNK)
            with streamed.exec_driver_sql(given.statement(engine)) as answer:
                return _collected(answer, columns, missing, where)
    except sqlalchemy.exc.SQLAlchemyError as error:
        raise InvalidInput(f"{where} cannot be read: {given.without_secrets(error)}") from None
    finally:
        engine.dispose()


def _collected(answer: Any, columns: Sequence[str] | None, missing: bool, where: str) -> Table:
    all_names = tuple(map(str, answer.keys()))
    names, notices = without_index(all_names, columns, where)
    check_names(names, where)
    for column in columns or ():
        if column not in names:
            listed = ", ".join(f"'{name}'" for name in names)
            raise InvalidInput(f"{where} has no column '{column}'; it has {listed}")
    wanted = names if columns is None else tuple(columns)
    places = [all_names.index(name) for name in wanted]
    kinds: list[set[str]] = [set() for _ in wanted]
    parts: list[Array] = []
    done = 0
    for chunk in _chunks(answer):
        block = np.empty((len(chunk), len(wanted)))
        for d, (column, place) in enumerate(zip(wanted, places)):
            block[:, d] = _numbers([row[place] for row in chunk], column, where, done, kinds[d])
        parts.append(block)
        done += len(chunk)
    rows = np.concatenate(parts) if parts else np.empty((0, len(wanted)))
    for column, seen in zip(wanted, kinds):
        if len(seen) > 1:
            raise InvalidInput(f"{where}: column '{column}' mixes true/false with numbers; cast it in the query")
    parsed = [(rows[:, d], next(iter(kinds[d]), "number")) for d in range(len(wanted))]
    return finished(stacked(wanted, parsed, len(rows)).told(*notices), None, missing, where)


def _chunks(answer: Any) -> Iterator[list[Any]]:
    while chunk := answer.fetchmany(CHUNK):
        yield chunk


def _numbers(cells: list[Any], column: str, where: str, before: int, kinds: set[str]) -> Array:
    values = np.empty(len(cells))
    for j, cell in enumerate(cells):
        if cell is None:
            values[j] = math.nan
        elif isinstance(cell, bool):
            values[j] = float(cell)
            kinds.add("boolean")
        elif isinstance(cell, (int, float, Decimal)):
            values[j] = float(cell)
            kinds.add("number")
        elif isinstance(cell, str):
            values[j : j + 1], kind = parse_column(where, column, [cell], [before + j + 1])
            kinds.add(kind)
        else:
            what = f"type {type(cell).__name__} in row {before + j + 1}"
            raise InvalidInput(text_message(where, column, what))
    return values
