"""A private PostgreSQL server for the tests, from the system's binaries, on a socket in a temporary folder.

COMPACTION_TEST_POSTGRES_URL names another server instead. Without either, the tests are skipped, but on CI they fail.
"""

from __future__ import annotations

import os
import pwd
import re
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psutil
import pytest
from sqlalchemy import Table, create_engine, text
from sqlalchemy.engine import make_url

from compaction_pipeline.core.stores import Stores
from compaction_pipeline.storage.schema import metadata
from compaction_pipeline.storage.stores import open_stores

_START_SECONDS = 300


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """The URL of a server on which tests may make databases."""
    given = os.environ.get("COMPACTION_TEST_POSTGRES_URL")
    if given:
        yield given
        return
    with private_server("no PostgreSQL: neither COMPACTION_TEST_POSTGRES_URL nor initdb on PATH or under /usr/lib/postgresql") as server:
        yield server.url


@dataclass(frozen=True)
class PrivateServer:
    """A server of its own for a test. Its URL stays when it is stopped and started."""

    url: str
    _binaries: Path
    _home: Path
    _user: str | None
    _fsync: str

    def start(self) -> None:
        options = f"-c listen_addresses='' -c unix_socket_directories='{self._home}' -c fsync={self._fsync} -c max_connections=50"
        start = ["-l", self._home / "log", "-o", options, "-w", "-t", str(_START_SECONDS), "start"]
        _run([self._binaries / "pg_ctl", "-D", self._home / "data", *start], self._user, self._home)

    def stop(self) -> None:
        """Cut off all connections without a word, as a crash does."""
        _run([self._binaries / "pg_ctl", "-D", self._home / "data", "-m", "immediate", "-w", "stop"], self._user, self._home)


@contextmanager
def private_server(why_none: str = "no PostgreSQL: no initdb on PATH or under /usr/lib/postgresql") -> Iterator[PrivateServer]:
    """A server that runs until the block ends. Without the system's binaries the test is skipped, but on CI it fails."""
    binaries = _binaries()
    if binaries is None:
        if os.environ.get("CI") == "true":
            pytest.fail(why_none)
        pytest.skip(why_none)
    with _running(binaries) as server:
        yield server


@contextmanager
def _running(binaries: Path, *, fsync: bool = False) -> Iterator[PrivateServer]:
    # The folder's path must be short, because the path of a socket may have only about 100 characters.
    home = Path(tempfile.mkdtemp(prefix="cpg-"))
    url = f"postgresql+psycopg2://compaction@/postgres?host={quote(str(home))}"
    server = PrivateServer(url, binaries, home, _unprivileged(home), "on" if fsync else "off")
    try:
        options: list[str | Path] = ["-D", home / "data", "-U", "compaction", "-A", "trust", "-E", "UTF8", "--no-sync"]
        _run([binaries / "initdb", *options], server._user, home)
        server.start()
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(home, ignore_errors=True)


@pytest.fixture
def postgres_url(postgres_server: str) -> Iterator[str]:
    """The URL of an empty database that only this test uses."""
    with new_database(postgres_server) as url:
        yield url


@dataclass(frozen=True)
class NewestState:
    """A state database of the newest schema, and the rows that each table has at first."""

    url: str
    first_rows: Mapping[Table, Sequence[Mapping[str, Any]]]

    def set_back(self) -> None:
        """Leave only the first rows. Connections that a test left open may hold locks, so they are cut off."""
        engine = create_engine(self.url)
        with engine.begin() as connection:
            others = "FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
            connection.execute(text(f"SELECT pg_terminate_backend(pid) {others}"))
            connection.execute(text(f"TRUNCATE {', '.join(metadata.tables)} RESTART IDENTITY"))
            for table, rows in self.first_rows.items():
                connection.execute(table.insert(), rows)
        engine.dispose()


@pytest.fixture(scope="session")
def postgres_state(postgres_server: str) -> Iterator[NewestState]:
    """A state database that one test after the other uses, through the fixture `postgres_stores`."""
    with new_database(postgres_server) as url:
        open_stores(url)
        engine = create_engine(url)
        with engine.connect() as connection:
            rows = {table: connection.execute(table.select()).mappings().all() for table in metadata.sorted_tables}
        engine.dispose()
        yield NewestState(url, {table: [dict(row) for row in first] for table, first in rows.items() if first})


@pytest.fixture
def postgres_stores(postgres_state: NewestState) -> Stores:
    """New stores. To set a database back takes a seventh of the time that it takes to make and drop one."""
    postgres_state.set_back()
    return open_stores(postgres_state.url)


@contextmanager
def new_database(server_url: str) -> Iterator[str]:
    """The URL of an empty database, which is dropped when the block ends."""
    name = f"compaction_{uuid.uuid4().hex[:12]}"
    server = create_engine(server_url, isolation_level="AUTOCOMMIT")
    with server.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name}"))
    yield make_url(server_url).set(database=name).render_as_string(hide_password=False)
    server.dispose()
    with server.connect() as connection:
        connection.execute(text(f"DROP DATABASE {name} WITH (FORCE)"))
    server.dispose()


@contextmanager
def stopped(url: str) -> Iterator[None]:
    """Suspend all processes of the private server until the block ends. It still accepts connections and bytes, but answers nothing."""
    folder = make_url(url).query["host"]
    pid_file = Path(str(folder)) / "data" / "postmaster.pid"
    if not pid_file.exists():
        pytest.skip("only a server that was started here can be stopped")
    main = psutil.Process(int(pid_file.read_text().split()[0]))
    # The main process is suspended first, so that it starts no other process meanwhile.
    main.suspend()
    processes = [main, *main.children(recursive=True)]
    try:
        for process in processes[1:]:
            process.suspend()
        yield
    finally:
        for process in reversed(processes):
            with suppress(psutil.NoSuchProcess):
                process.resume()


def _binaries() -> Path | None:
    on_path = shutil.which("initdb")
    # A link on the PATH may lead to a wrapper. The server's program is in the folder of the real one.
    candidates = [Path(on_path).resolve().parent] if on_path else []
    versions = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: [int(n) for n in re.findall(r"\d+", str(path))])
    candidates += reversed(versions)
    return next((folder for folder in candidates if (folder / "initdb").exists() and (folder / "postgres").exists()), None)


@contextmanager
def lasting_postgres() -> Iterator[str]:
    """The URL of an empty database on a server of its own. The server writes each transaction to the disk, as a user's server does."""
    binaries = _binaries()
    if binaries is None:
        raise SystemExit("no PostgreSQL: initdb is neither on PATH nor under /usr/lib/postgresql")
    with _running(binaries, fsync=True) as server:
        yield server.url


def _unprivileged(home: Path) -> str | None:
    """Give the server's folder to a user who is not root, because PostgreSQL refuses root. Returns that user; None when we are not root."""
    if os.geteuid() != 0:
        return None
    known = {entry.pw_name: entry for entry in pwd.getpwall()}
    name = next(name for name in ("postgres", "nobody") if name in known)
    os.chown(home, known[name].pw_uid, known[name].pw_gid)
    return name


def _run(command: list[str | Path], user: str | None, home: Path) -> None:
    done = subprocess.run(
        [str(part) for part in command], user=user, cwd=home, capture_output=False, stdout=subprocess.DEVNULL, check=False
    )
    if done.returncode != 0:
        log = home / "log"
        pytest.fail(f"{command[0]} ended with {done.returncode}: {log.read_text() if log.exists() else 'see stderr'}")
