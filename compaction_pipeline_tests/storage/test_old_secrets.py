"""The upgrade from a version that stored secrets as plain text: afterwards no file of the database holds one."""

from __future__ import annotations

import json
import logging
import shutil
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import pytest
from cryptography.fernet import Fernet
from sqlalchemy import text

from compaction_pipeline.core.errors import ConfigError
from compaction_pipeline.storage.engine import open_state, reading, writing
from compaction_pipeline.storage.plain_text import IN_COPY, is_plain_text_left, wipe_plain_text
from compaction_pipeline.storage.sealing import GivenKeys
from compaction_pipeline.storage.stores import open_stores
from compaction_pipeline_tests.storage.old_state import VERSION, make_old_state

SECRET = "Zq7+/x=%&vT9Lm2Kp+/w=%&u8Rj"
PROPERTIES = {"type": "rest", "uri": f"https://me:{SECRET}@lake", "token": SECRET, "s3.access-key-id": "AKIA"}
REASON = f"401 for Bearer {SECRET} of s3://lake/a.parquet"


def plant(url: str, secrets: Mapping[str, str] = PROPERTIES) -> None:
    """An old state with a catalog and a group that have secrets, and with errors that repeat one."""
    make_old_state(url)
    engine = open_state(url)
    with writing(engine) as connection:
        values = {"properties": json.dumps(dict(secrets)), "reason": REASON, "result": json.dumps({"error": REASON, "outputs": [SECRET]})}
        for statement in (
            # A catalog that was removed: its row is in a free page.
            "INSERT INTO compaction_catalog (name, properties, observe) VALUES ('gone', :properties, false)",
            "DELETE FROM compaction_catalog WHERE name = 'gone'",
            "INSERT INTO compaction_catalog (name, properties, observe) VALUES ('secret', :properties, false)",
            "UPDATE compaction_group SET properties = :properties",
            "UPDATE compaction_task SET reason = :reason WHERE task_id = 'CONVERT-failed'",
        ):
            needed = {name: value for name, value in values.items() if f":{name}" in statement}
            connection.execute(text(statement), needed)
    # Left to the garbage collector, it would hold the file and its log open while a test puts another file in their place.
    engine.dispose()


def files_with_secret(folder: Path) -> set[str]:
    parts = [SECRET[at : at + 12].encode() for at in range(len(SECRET) - 11)]
    return {path.name for path in folder.iterdir() if path.is_file() and any(part in path.read_bytes() for part in parts)}


def test_an_upgrade_leaves_no_secret_in_any_file(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    url = f"sqlite:///{tmp_path / 'state.db'}"
    plant(url)
    assert files_with_secret(tmp_path)
    with closing(sqlite3.connect(tmp_path / "state.db")) as reader, caplog.at_level(logging.WARNING):
        # Another process has the database open, so that its log is not deleted.
        reader.execute("SELECT count(*) FROM compaction_catalog").fetchone()
        stores = open_stores(url)
        assert stores.upgraded
        assert files_with_secret(tmp_path) == set()
        assert (tmp_path / "state.db-wal").exists()
    assert stores.catalogs.entry("secret").properties == PROPERTIES
    assert stores.groups.groups()[0].properties == PROPERTIES
    task = stores.tasks.task("CONVERT-failed")
    assert task.reason == "401 for Bearer *** of s3://lake/a.parquet"
    said = [record.getMessage() for record in caplog.records]
    assert any("secret: token, uri" in line and "give each of them a new value at its source" in line for line in said)
    assert SECRET not in "".join(said)


def test_a_copy_from_before_the_upgrade_can_be_used_again(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'state.db'}"
    plant(url)
    open_stores(url).close()
    backup = tmp_path / f"state.db.backup-{VERSION}"
    with closing(sqlite3.connect(backup)) as copy:
        [properties] = [json.loads(row) for (row,) in copy.execute("SELECT properties FROM compaction_catalog WHERE name = 'secret'")]
    assert properties["token"].startswith(IN_COPY)
    assert properties["s3.access-key-id"] == "AKIA"
    for file in tmp_path.glob("state.db-*"):
        file.unlink()
    shutil.copy(backup, tmp_path / "state.db")
    again = open_stores(url)
    assert again.upgraded
    assert again.catalogs.entry("secret").properties == PROPERTIES
    assert files_with_secret(tmp_path) == set()


def test_older_copies_with_plain_text_are_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    url = f"sqlite:///{tmp_path / 'state.db'}"
    plant(url)
    with closing(sqlite3.connect(tmp_path / "state.db")) as source, closing(sqlite3.connect(tmp_path / "state.db.backup-0021")) as copy:
        source.backup(copy)
    with caplog.at_level(logging.WARNING):
        open_stores(url)
    assert "state.db.backup-0021" in caplog.text
    assert f"state.db.backup-{VERSION}" not in caplog.text
    assert files_with_secret(tmp_path) == {"state.db.backup-0021"}


def test_a_file_that_could_not_be_written_anew_is_at_the_next_start(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    url = f"sqlite:///{tmp_path / 'state.db'}"
    plant(url)
    with closing(sqlite3.connect(tmp_path / "state.db", isolation_level=None)) as reader:
        # A long read that began before the upgrade keeps the old pages in the log.
        reader.execute("PRAGMA journal_mode = WAL")
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM compaction_catalog").fetchone()
        with caplog.at_level(logging.WARNING):
            from compaction_pipeline.storage import plain_text

            before, plain_text.BUSY_TIMEOUT_SECONDS = plain_text.BUSY_TIMEOUT_SECONDS, 0
            try:
                assert open_stores(url).upgraded
            finally:
                plain_text.BUSY_TIMEOUT_SECONDS = before
        assert "it is tried again at the next start" in caplog.text
        with reading(open_state(url)) as connection:
            assert is_plain_text_left(connection)
    assert not open_stores(url).upgraded
    with reading(open_state(url)) as connection:
        assert not is_plain_text_left(connection)
    assert files_with_secret(tmp_path) == set()


def test_a_fresh_state_has_nothing_to_wipe(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'state.db'}"
    open_stores(url)
    with reading(open_state(url)) as connection:
        assert not is_plain_text_left(connection)


def test_a_state_without_secrets_gets_no_key(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'state.db'}"
    make_old_state(url)
    assert open_stores(url).upgraded
    assert not list(tmp_path.glob("*.key"))


@pytest.mark.postgres
def test_postgresql_is_written_anew_at_the_next_start_when_the_upgrade_was_cut_off(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process ends between the commit of the upgrade and VACUUM FULL. Then the old rows are dead, and still in the files."""
    plant(postgres_url)
    keys = GivenKeys(Fernet.generate_key().decode())

    def files() -> str:
        with reading(open_state(postgres_url)) as connection:
            return str(connection.execute(text("SELECT pg_relation_filenode('compaction_catalog')")).scalar_one())

    def cut_off(engine: object) -> bool:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("compaction_pipeline.storage.migrations.wipe_plain_text", cut_off)
        with pytest.raises(KeyboardInterrupt):
            open_stores(postgres_url, upgrade=True, keys=keys)
    before = files()
    engine = open_state(postgres_url)
    with engine.begin() as connection:
        connection.execute(text("LOCK TABLE compaction_catalog IN ACCESS SHARE MODE"))
        with monkeypatch.context() as patched:
            patched.setattr("compaction_pipeline.storage.plain_text._LOCK_TIMEOUT", "100ms")
            other = open_state(postgres_url)
            assert not wipe_plain_text(other)
    with reading(other) as connection:
        assert connection.execute(text("SHOW lock_timeout")).scalar_one() == "0"
        assert is_plain_text_left(connection)
    assert not open_stores(postgres_url, keys=keys).upgraded
    with reading(open_state(postgres_url)) as connection:
        assert not is_plain_text_left(connection)
    after = files()
    assert after != before
    open_stores(postgres_url, keys=keys)
    assert files() == after


@pytest.mark.postgres
def test_postgresql_without_secrets_is_upgraded_without_a_key(postgres_url: str) -> None:
    make_old_state(postgres_url)
    assert open_stores(postgres_url, upgrade=True).upgraded


@pytest.mark.postgres
def test_postgresql_with_secrets_needs_a_key_for_the_upgrade(postgres_url: str) -> None:
    plant(postgres_url)
    with pytest.raises(
        ConfigError, match=r"the upgrade changed nothing: 'secret' has secrets in plain text: .*'token', 'uri'.*set COMPACTION_SECRET_KEY"
    ):
        open_stores(postgres_url, upgrade=True)
    with reading(open_state(postgres_url)) as connection:
        assert connection.execute(text("SELECT version_num FROM compaction_version")).scalar_one() == VERSION
    keys = GivenKeys(Fernet.generate_key().decode())
    stores = open_stores(postgres_url, upgrade=True, keys=keys)
    assert stores.catalogs.entry("secret").properties == PROPERTIES
    with reading(open_state(postgres_url)) as connection:
        tables = connection.execute(text("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")).scalars().all()
        rows = "".join(str(row) for table in tables for row in connection.execute(text(f'SELECT * FROM "{table}"')))
    assert SECRET not in rows
