"""Only the owner may read the state database, because it holds the credentials of catalogs."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import text

from compaction_pipeline.storage.engine import open_state, writing
from compaction_pipeline.storage.private_files import make_private_folder
from compaction_pipeline.storage.stores import open_stores
from compaction_pipeline_tests.storage.old_state import VERSION, make_old_state


@pytest.fixture(autouse=True)
def usual_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o7777


def test_a_new_state_and_its_folder_are_for_their_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "home" / "state.db"
    open_stores(f"sqlite:///{path}", make_folder=True)
    engine = open_state(f"sqlite:///{path}")
    with writing(engine) as connection:
        connection.execute(text("INSERT INTO compaction_lease (name, owner, expires_at) VALUES ('a', 'b', 0)"))
        files = {file.name: mode(file) for file in path.parent.iterdir()}
    assert files == {"state.db": 0o600, "state.db-wal": 0o600, "state.db-shm": 0o600}
    assert mode(path.parent) == 0o700


def test_a_state_that_others_may_read_is_made_private_with_its_copies(tmp_path: Path) -> None:
    home = tmp_path / "home"
    path = home / "state.db"
    open_stores(f"sqlite:///{path}", make_folder=True)
    (home / "state.db.backup-0001").touch()
    (home / "other.db").touch()
    home.chmod(0o755)
    # A second connection keeps the database open, so that the files -wal and -shm stay.
    with closing(sqlite3.connect(path)) as held:
        held.execute("SELECT count(*) FROM compaction_lease").fetchone()
        for file in home.iterdir():
            file.chmod(0o644)
        open_stores(f"sqlite:///{path}", make_folder=True)
        files = {file.name: mode(file) for file in home.iterdir()}
    assert files.pop("other.db") == 0o644
    assert {"state.db", "state.db-wal", "state.db-shm", "state.db.backup-0001"} == files.keys()
    assert set(files.values()) == {0o600}
    assert mode(home) == 0o700


def test_the_backup_before_a_migration_is_for_its_owner_alone(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'state.db'}"
    make_old_state(url)
    open_stores(url)
    assert mode(tmp_path / f"state.db.backup-{VERSION}") == 0o600


def test_a_folder_for_all_users_keeps_its_mode(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    make_private_folder(shared)
    assert mode(shared) == 0o1777
