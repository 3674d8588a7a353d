"""Rows of databases: SQLite, and a PostgreSQL that the test starts; secrets stay where they are."""

from __future__ import annotations

import os
import shutil
import socket
import sqlite3
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from consentroid.core.errors import InvalidInput
from consentroid.data import databases
from consentroid.data.tables import is_database, read_table

pytest.importorskip("sqlalchemy", reason="the extra 'databases' is not installed")
ROWS = np.array([[1.0, 0.25], [2.5, -3.0], [4.0, 1e-3]])
SECRET = "s3cret%/@: word"


@pytest.fixture(scope="module")
def sqlite(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("database") / "birds.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE birds (mass REAL, length REAL, species TEXT, note TEXT)")
        connection.executemany("INSERT INTO birds VALUES (?, ?, 'Adelie', '1.5')", ROWS.tolist())
        connection.execute("CREATE TABLE holes (a REAL, b INTEGER)")
        connection.executemany("INSERT INTO holes VALUES (?, ?)", [(1.0, None), (2.0, 3)])
        connection.execute("CREATE TABLE empty (a REAL)")
    connection.close()
    return f"sqlite:///{path}"


def test_a_table_and_a_query_of_sqlite(sqlite: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(databases, "CHUNK", 2)
    table = read_table(f"{sqlite}#birds", ["length", "mass"])
    assert table.names == ("length", "mass")
    np.testing.assert_array_equal(table.rows, ROWS[:, ::-1])
    query = read_table(f"{sqlite}#SELECT mass, length, note AS 'n' FROM birds WHERE species LIKE 'Ad%' ORDER BY mass")
    np.testing.assert_array_equal(query.rows[:, :2], ROWS)
    np.testing.assert_array_equal(query.rows[:, 2], 1.5)  # numbers stored as text are numbers
    with pytest.raises(InvalidInput, match=r"row 1 has a missing value \(NaN\) in column 'b'"):
        read_table(f"{sqlite}#holes")
    np.testing.assert_array_equal(read_table(f"{sqlite}#holes", missing=True).rows, [[1, np.nan], [2, 3]])


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ("#nowhere", "no such table: nowhere"),
        ("#birds", r"column 'species' is not numeric \('Adelie' in row 1\)"),
        ("#DROP TABLE birds", "must stand the name of a table or a query that begins with SELECT"),
        ("#empty", "has no rows"),
        ("#SELECT mass, mass FROM birds", "two columns called 'mass'"),
        ("", "must end in #TABLE"),
        ("#", "must end in #TABLE"),
    ],
)
def test_what_cannot_be_read(sqlite: str, wanted: str, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        read_table(sqlite + wanted)


@pytest.mark.parametrize(
    "address",
    [
        "postgresql+psycopg://me:{}@127.0.0.1:1/clinic?connect_timeout=1#t",
        "postgresql+psycopg://me@127.0.0.1:1/clinic?connect_timeout=1&password={}#t",
        "postgresql+psycopg://me:${{SECRET_OF_TEST}}@127.0.0.1:1/clinic?connect_timeout=1#t",
        "nonsense+driver://me:{}@host/clinic#t",
        "postgresql+psycopg://me:{}@host:port/clinic#t",
        "postgresql+psycopg://me:{}@127.0.0.1/clinic",
    ],
)
def test_secrets_are_never_shown(
    address: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("SECRET_OF_TEST", "Kx7secretKx7")
    with caplog.at_level("DEBUG"), pytest.raises(InvalidInput) as caught:
        read_table(address.format("Kx7secretKx7"))
    assert "Kx7" not in str(caught.value) + caplog.text
    assert caught.value.__context__ is None or caught.value.__suppress_context__


def test_an_unset_variable_is_named() -> None:
    with pytest.raises(InvalidInput, match=r"asks for \$\{NOT_SET_HERE\}; set this environment variable"):
        read_table("postgresql+psycopg://me:${NOT_SET_HERE}@host/db#t")


def test_addresses_are_told_from_files() -> None:
    assert is_database("sqlite:///a.db#t")
    assert not is_database("a.csv")
    assert not is_database(Path("a.csv"))
    assert not is_database("C:\\data\\a.csv")


# ---------------------------------------------------------------------------------------------------- PostgreSQL


def programs() -> Path:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: float(path.parent.name))
    on_path = shutil.which("pg_ctl")
    folder = found[-1] if found else Path(on_path).resolve().parent if on_path else None
    if folder is None or not (folder / "initdb").exists():
        pytest.skip("no PostgreSQL found (initdb, pg_ctl); install postgresql to test against a real one")
    return folder


@pytest.fixture(scope="module")
def postgresql(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server of its own on a free port, with a password; the address of its database without it."""
    psycopg = pytest.importorskip("psycopg", reason="the driver psycopg is not installed")
    folder = programs()
    home = Path(f"/tmp/consentroid-pg-{os.getpid()}")
    prefix: list[str] = []
    home.mkdir(mode=0o700)
    if os.getuid() == 0:  # the server refuses to run as root
        user = next((name for name in ("postgres", "nobody") if _exists(name)), None)
        if user is None or shutil.which("runuser") is None:
            pytest.skip("PostgreSQL refuses to run as root, and there is no other user to run it as")
        shutil.chown(home, user)
        prefix = ["runuser", "-u", user, "--"]
    (home / "password").write_text(SECRET)
    (home / "password").chmod(0o644)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]

    def run(program: str, *arguments: str) -> None:
        command = [*prefix, str(folder / program), "-D", str(home / "data"), *arguments]
        subprocess.run(command, check=True, capture_output=True, timeout=120, cwd="/")

    try:
        run("initdb", "-U", "reader", "-A", "scram-sha-256", "--pwfile", str(home / "password"), "--no-sync")
        options = f"-c listen_addresses=127.0.0.1 -p {port} -k {home} -c fsync=off"
        run("pg_ctl", "-w", "-l", str(home / "log"), "-o", options, "start")
        try:
            connected = psycopg.connect(
                host="127.0.0.1", port=port, user="reader", password=SECRET, dbname="postgres", autocommit=True
            )
            with connected as connection:
                connection.execute("CREATE SCHEMA ward")
                connection.execute("CREATE TABLE ward.visits (age numeric, weight float, sick boolean, seen date)")
                connection.execute(
                    "INSERT INTO ward.visits SELECT 20 + i % 60, 50 + 0.25 * i, i % 2 = 0, '2024-05-01'"
                    " FROM generate_series(0, 24999) AS i"
                )
            yield f"postgresql+psycopg://reader@127.0.0.1:{port}/postgres"
        finally:
            run("pg_ctl", "-w", "-m", "immediate", "stop")
    finally:
        shutil.rmtree(home, ignore_errors=True)


def _exists(user: str) -> bool:
    import pwd

    try:
        pwd.getpwnam(user)
    except KeyError:
        return False
    return True


def test_a_real_postgresql(postgresql: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGPASSWORD", SECRET)
    table = read_table(f"{postgresql}#ward.visits", ["age", "weight", "sick"])
    assert table.names == ("age", "weight", "sick")
    assert table.kinds == ("number", "number", "boolean")
    assert table.rows.shape == (25000, 3)
    np.testing.assert_array_equal(sorted(table.rows[:, 1]), 50 + 0.25 * np.arange(25000))
    query = read_table(f"{postgresql}#SELECT avg(age)::float AS a FROM ward.visits WHERE weight::text LIKE '50%'")
    assert query.rows.shape == (1, 1)
    with pytest.raises(InvalidInput, match=r"column 'seen' is not numeric \(type date in row 1\)"):
        read_table(f"{postgresql}#ward.visits")
    with pytest.raises(InvalidInput, match='relation "nowhere" does not exist'):
        read_table(f"{postgresql}#nowhere")


def test_passwords_of_postgresql(postgresql: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PGPASSWORD", raising=False)
    monkeypatch.setenv("DB_PASSWORD", SECRET)
    address = postgresql.replace("reader@", "reader:${DB_PASSWORD}@")
    assert read_table(f"{address}#SELECT count(*) AS n FROM ward.visits").rows[0, 0] == 25000
    monkeypatch.setenv("DB_PASSWORD", "wrong-Kx7")
    with pytest.raises(InvalidInput, match=r"cannot be read: .*password authentication failed") as caught:
        read_table(f"{address}#ward.visits")
    assert "Kx7" not in str(caught.value)
