"""Opens the state database (SQLite in WAL mode, or PostgreSQL) and runs transactions on it.

A transaction that will write is opened with `writing`. On SQLite it takes the write lock at once, because a transaction that
starts as a reader and writes later fails with "database is locked", however long the timeout is. Every failure to reach the
database becomes a StorageUnavailable, which names the database without its password.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine, create_engine, event, func, select
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DatabaseError, IntegrityError, InterfaceError, NoSuchModuleError, ProgrammingError
from sqlalchemy.schema import Table

from compaction_pipeline.core.errors import ConfigError, StateFull, StorageUnavailable
from compaction_pipeline.storage.private_files import make_private_file, make_private_folder, tighten_database

BUSY_TIMEOUT_SECONDS = 30
"""A SQLite transaction waits this long for another one. A bulk insert of 10⁶ files takes less."""
STILL_IN_TRANSACTION_SECONDS = 60
"""PostgreSQL ends a transaction in which a process has done nothing for this long. The process is stopped, or its host is gone, and without
this its locks would keep all others waiting until it is back."""
CACHE_KIB = 64 * 1024
"""The most that a SQLite connection caches. Files are read by node but stored by manifest, so one read touches many pages."""
CONNECT_TIMEOUT_SECONDS = 10
BATCH = 1_000
"""The number of values in one IN list. SQLite allows 32,766 variables."""

_FULL = "database or disk is full"
"""SQLite's words."""
_POSTGRES_FULL = "53100"
"""PostgreSQL's code for a disk without room."""
VERSION_TABLE = "compaction_version"
"""The table of the schema's version. Dagster uses alembic's usual name, possibly in the same PostgreSQL database, so ours differs."""

_WRITES = "compaction_writes"
_WRITE_LOCK = "compaction_write_lock"
_NAMED_BY = "compaction_named_by"
_FORMS = "sqlite:///path/to/state.db or postgresql://user:password@host/database"

T = TypeVar("T")


def open_state(url: str, *, make_folder: bool = False) -> Engine:
    """Return an engine for the state database. It creates no tables (`migrations` does).

    With `make_folder` it creates the folder of a SQLite file.

    Raises ConfigError for a URL of another kind, for a missing folder and, on first use, for a SQLite file that belongs to
    another program. Raises StorageUnavailable when the file cannot be opened.
    """
    parsed = _parsed(url)
    return _open_sqlite(parsed, make_folder) if parsed.get_backend_name() == "sqlite" else _open_postgres(parsed)


@contextmanager
def reading(engine: Engine) -> Iterator[Connection]:
    """A transaction that only reads. All its statements see the database at one moment."""
    with reachable(engine), engine.connect() as connection:
        if engine.dialect.name == "postgresql":
            # By default, each statement of PostgreSQL sees the newest data. A transaction of SQLite always sees one moment.
            connection = connection.execution_options(isolation_level="REPEATABLE READ")
        with connection.begin():
            yield connection


@contextmanager
def asking(engine: Engine) -> Iterator[Connection]:
    """For one statement that only reads: it sees the database at one moment anyway.

    PostgreSQL begins and ends no transaction for it, which would be two more messages each way.
    """
    if engine.dialect.name != "postgresql":
        with reading(engine) as connection:
            yield connection
        return
    with reachable(engine), engine.connect() as connection:
        driver: Any = connection.connection.dbapi_connection
        try:
            # With any other level, and by way of SQLAlchemy, a message is sent to set it, and one to set it back.
            driver.isolation_level, driver.autocommit = None, True
            yield connection
            connection.rollback()
            driver.autocommit = False
        except BaseException:
            # It may be broken, or nobody set it back: a transaction on it would be none.
            connection.invalidate()
            raise


@contextmanager
def writing(engine: Engine) -> Iterator[Connection]:
    """A transaction that writes. It is applied whole, or not at all."""
    with reachable(engine), _one_writer(engine), engine.connect() as connection:
        connection = connection.execution_options(**{_WRITES: True})
        with connection.begin():
            yield connection


@contextmanager
def _one_writer(engine: Engine) -> Iterator[None]:
    """Let the threads of this process write to SQLite one after the other.

    SQLite has one write lock. A thread that finds it taken sleeps for up to a tenth of a second before it looks again, so many threads
    would mostly sleep. Writers of other processes still meet at SQLite's own lock.
    """
    mutex: Lock | None = engine.get_execution_options().get(_WRITE_LOCK)
    # When this thread does not get its turn in time, SQLite decides whether it may write.
    held = mutex is not None and mutex.acquire(timeout=BUSY_TIMEOUT_SECONDS)
    try:
        yield
    finally:
        if mutex is not None and held:
            mutex.release()


def lock(connection: Connection, name: str) -> None:
    """Wait until no other transaction holds this name, and hold it until this transaction ends. SQLite has only one writer anyway."""
    if connection.dialect.name == "postgresql":
        connection.execute(select(func.pg_advisory_xact_lock(func.hashtextextended(name, 0))))


def upsert(connection: Connection, table: Table) -> Any:
    """An INSERT with `on_conflict_do_update`, in the connection's dialect."""
    # The import of PostgreSQL's dialect takes a quarter of a second, so only the dialect in use is imported.
    if connection.dialect.name == "postgresql":
        from sqlalchemy.dialects import postgresql

        return postgresql.insert(table)
    from sqlalchemy.dialects import sqlite

    return sqlite.insert(table)


def batches(values: Sequence[T], size: int = BATCH) -> Iterator[Sequence[T]]:
    """Slices of at most `size`."""
    for start in range(0, len(values), size):
        yield values[start : start + size]


def shown(engine: Engine) -> str:
    """The database's URL without its password."""
    return engine.url.render_as_string(hide_password=True)


def _parsed(url: str) -> URL:
    try:
        parsed = make_url("postgresql" + url.removeprefix("postgres") if url.startswith("postgres://") else url)
        backend = parsed.get_backend_name()
    except (ArgumentError, ValueError):
        # The message does not repeat the text, because a password may stand anywhere in it.
        raise ConfigError(f"COMPACTION_STATE_URL is not a URL; it must be {_FORMS}") from None
    if backend == "postgresql":
        return parsed.set(drivername="postgresql+psycopg2")
    if backend != "sqlite":
        raise ConfigError(f"COMPACTION_STATE_URL names a {backend!r} database but must be {_FORMS}")
    if parsed.database in (None, "", ":memory:"):
        raise ConfigError(f"COMPACTION_STATE_URL names a SQLite database in memory, which no second process sees; it must be {_FORMS}")
    return parsed


def _open_sqlite(url: URL, make_folder: bool) -> Engine:
    path = Path(url.database or "").expanduser()
    if make_folder:
        _make(path.parent)
    elif not path.parent.is_dir():
        raise ConfigError(
            f"COMPACTION_STATE_URL names {str(path)!r} but there is no folder {str(path.parent)!r}: correct it, or make the folder"
        )
    make_private_file(path)
    engine = create_engine(
        url.set(database=str(path)),
        connect_args={"timeout": BUSY_TIMEOUT_SECONDS},
        execution_options={_WRITE_LOCK: Lock(), _NAMED_BY: "COMPACTION_HOME" if make_folder else "COMPACTION_STATE_URL"},
    )
    event.listen(engine, "connect", _prepare_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _make(folder: Path) -> None:
    try:
        make_private_folder(folder)
    except (FileExistsError, NotADirectoryError) as error:
        raise ConfigError(
            f"COMPACTION_HOME needs the folder {str(folder)!r}, but there is a file in its place or above it; set it to a folder"
        ) from error
    except OSError as error:
        raise StorageUnavailable(
            f"the folder {str(folder)!r} of the state database cannot be made: {error.strerror}; "
            "set COMPACTION_HOME or COMPACTION_STATE_URL to a place that can be written"
        ) from error


def _open_postgres(url: URL) -> Engine:
    try:
        # The server may have ended a pooled connection hours ago, so each connection is tried before use. Updates of many rows are
        # sent a hundred at a time.
        engine = create_engine(
            url,
            pool_pre_ping=True,
            executemany_mode="values_plus_batch",
            connect_args={"connect_timeout": CONNECT_TIMEOUT_SECONDS},
        )
    except (NoSuchModuleError, ImportError) as error:
        raise ConfigError("COMPACTION_STATE_URL names a PostgreSQL database but psycopg2 is not installed") from error
    event.listen(engine, "connect", _prepare_postgres)
    return engine


def _prepare_postgres(connection: Any, _record: object) -> None:
    # This is no parameter of the connection, because poolers such as PgBouncer refuse those.
    with connection.cursor() as cursor:
        # Without JIT: to compile the claim of instances took 2 s as soon as the statistics named 9,000 ready rows, and to run it 20 ms.
        cursor.execute(f"SET idle_in_transaction_session_timeout = '{STILL_IN_TRANSACTION_SECONDS}s'; SET jit = off")
    connection.commit()


def _prepare_sqlite(connection: sqlite3.Connection, _record: object) -> None:
    # `_begin_sqlite` sends BEGIN, because the driver starts no transaction for DDL and never takes the write lock early.
    connection.isolation_level = None
    path = _path_of(connection)
    _refuse_database_of_another_program(connection, path)
    tighten_database(path)
    if connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
        connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute(f"PRAGMA cache_size = {-CACHE_KIB}")


def _path_of(connection: sqlite3.Connection) -> Path:
    _, _, path = connection.execute("PRAGMA database_list").fetchone()
    return Path(path)


def _refuse_database_of_another_program(connection: sqlite3.Connection, path: Path) -> None:
    # Setting the journal mode changes the file, so this check comes first. A URL may name an Iceberg catalog's file by mistake.
    tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")]
    if tables and VERSION_TABLE not in tables:
        raise ConfigError(
            f"COMPACTION_STATE_URL names {str(path)!r}, which is the database of another program (it holds the table {tables[0]!r}); "
            "set it to a file that no other program uses, or unset it"
        )


def _begin_sqlite(connection: Connection) -> None:
    connection.exec_driver_sql("BEGIN IMMEDIATE" if connection.get_execution_options().get(_WRITES) else "BEGIN")


@contextmanager
def reachable(engine: Engine) -> Iterator[None]:
    """Turn what the driver raises when the database does not answer into StorageUnavailable, until the block ends."""
    try:
        yield
    except (IntegrityError, ProgrammingError):
        # These are mistakes of this program, not of the database.
        raise
    except ValueError as error:
        if "NUL" not in str(error):
            raise
        # psycopg2 says this. A text with this character names nothing that exists.
        raise ConfigError("a text holds the character NUL (U+0000), which the state database cannot store; remove it") from error
    except (DatabaseError, InterfaceError) as error:
        reason = " ".join(str(error.orig).split())
        if _FULL in reason or getattr(error.orig, "pgcode", None) == _POSTGRES_FULL:
            raise StateFull(
                f"the state database {shown(engine)} did not answer: {reason}; "
                "free space on its disk, then run the command again, or wait for the next tick"
            ) from error
        raise StorageUnavailable(f"the state database {shown(engine)} did not answer: {reason}; {_what_to_do(engine, reason)}") from error


def _what_to_do(engine: Engine, reason: str) -> str:
    """The advice for a database that gives this reason. SQLite is a file, so there is nothing that could run."""
    if engine.dialect.name != "sqlite":
        return "see that it runs, that it can be written, and that COMPACTION_STATE_URL names the right database"
    variable = engine.get_execution_options().get(_NAMED_BY)
    if any(sign in reason for sign in ("not a database", "malformed")):
        return f"the file is damaged, or is no database: restore a copy of it (docs/operations.md, Restore), or correct {variable}"
    return f"see that the file can be read, that it and its folder can be written by this user, and that {variable} names the right place"
