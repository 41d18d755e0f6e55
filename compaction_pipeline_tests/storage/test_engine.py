from __future__ import annotations

import os
import sqlite3
from contextlib import closing, suppress
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from sqlalchemy import Connection, text

from compaction_pipeline.core.errors import ConfigError, StorageUnavailable
from compaction_pipeline.core.planning.table_planning import TablePlanning
from compaction_pipeline.storage.engine import asking, lock, open_state, reading, shown, writing
from compaction_pipeline.storage.stores import open_stores
from compaction_pipeline_tests.builders import NOW, TABLE


def test_the_folder_of_a_new_state_is_made_only_on_request(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'a' / 'b' / 'state.db'}"
    with pytest.raises(ConfigError, match=r"COMPACTION_STATE_URL names '.*state\.db' but there is no folder '.*b': correct it, or make"):
        open_stores(url)
    assert not (tmp_path / "a").exists()
    open_stores(url, make_folder=True)
    assert (tmp_path / "a" / "b" / "state.db").exists()


def test_the_database_of_another_program_is_refused_and_stays_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "catalog.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE iceberg_tables (name TEXT)")
    before = path.read_bytes()
    with pytest.raises(
        ConfigError, match=r"catalog\.db', which is the database of another program \(it holds the table 'iceberg_tables'\)"
    ):
        open_stores(f"sqlite:///{path}")
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_an_empty_database_file_is_taken(tmp_path: Path) -> None:
    (tmp_path / "state.db").touch()
    assert open_stores(f"sqlite:///{tmp_path / 'state.db'}").catalogs.entries() == ()


def test_sqlite_runs_in_wal_mode_with_foreign_keys_and_a_timeout(tmp_path: Path) -> None:
    with reading(open_state(f"sqlite:///{tmp_path / 'state.db'}")) as connection:
        pragmas = [connection.execute(text(f"PRAGMA {name}")).scalar() for name in ("journal_mode", "foreign_keys", "busy_timeout")]
    assert pragmas == ["wal", 1, 30_000]


@pytest.mark.parametrize(
    "url", ["", "state.db", "mysql://root:hidden@host/db", "sqlite://", "sqlite:///:memory:", "postgresql://u:hidden@h:port/x"]
)
def test_a_url_of_another_kind_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(ConfigError, match="COMPACTION_STATE_URL") as refused:
        open_state(url)
    assert "hidden" not in str(refused.value)
    assert "sqlite:///path" in str(refused.value)


@pytest.mark.parametrize("scheme", ["postgres", "postgresql", "postgresql+psycopg2"])
def test_a_postgresql_url_is_taken_in_every_spelling(scheme: str) -> None:
    engine = open_state(f"{scheme}://me:hidden@host/db")
    assert engine.url.drivername == "postgresql+psycopg2"
    assert shown(engine) == "postgresql+psycopg2://me:***@host/db"


def test_a_server_that_does_not_answer_is_named_without_its_password() -> None:
    with pytest.raises(StorageUnavailable, match=r"127\.0\.0\.1:1/db") as unavailable:
        open_stores("postgresql://me:hidden@127.0.0.1:1/db")
    assert "hidden" not in str(unavailable.value)


def test_a_file_that_is_no_database_is_unavailable_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    path.write_text("these are notes, not a database\n" * 99)
    with pytest.raises(StorageUnavailable, match=r"not a database; the file is damaged.*Restore\), or correct COMPACTION_STATE_URL"):
        open_stores(f"sqlite:///{path}")
    with pytest.raises(StorageUnavailable, match=r"Restore\), or correct COMPACTION_HOME"):
        open_stores(f"sqlite:///{path}", make_folder=True)
    assert path.read_text().startswith("these are notes")


def test_a_folder_that_cannot_be_made_is_named_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for folder in (tmp_path / "file", tmp_path / "file" / "deeper"):
        with pytest.raises(ConfigError, match=r"COMPACTION_HOME needs the folder '.*file.*set it to a folder"):
            open_state(f"sqlite:///{folder / 'state.db'}", make_folder=True)


def test_a_file_that_cannot_be_opened_is_named_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "state.db").mkdir()
    with pytest.raises(StorageUnavailable, match="its folder can be written by this user, and that COMPACTION_STATE_URL names"):
        open_stores(f"sqlite:///{tmp_path / 'state.db'}")


def test_moments_keep_their_instant_whatever_their_zone(state_url: str) -> None:
    stores = open_stores(state_url)
    moment = datetime(2024, 3, 31, 2, 30, 0, 123456, tzinfo=timezone(timedelta(hours=5, minutes=45)))
    stores.index.add(TABLE)
    stores.planning.save(TABLE, TablePlanning(last_planned_at=moment))
    found = stores.tables.state(TABLE).planning.last_planned_at
    assert found == moment
    assert found is not None
    assert found.tzinfo is timezone.utc


def test_a_naive_moment_is_refused(tmp_path: Path) -> None:
    stores = open_stores(f"sqlite:///{tmp_path / 'state.db'}")
    stores.index.add(TABLE)
    with pytest.raises(Exception, match="no time zone"):
        stores.planning.save(TABLE, TablePlanning(last_planned_at=NOW.replace(tzinfo=None)))


def test_what_was_written_is_there_when_opened_again(state_url: str) -> None:
    stores = open_stores(state_url)
    stores.index.add(TABLE)
    stores.planning.save(TABLE, TablePlanning(problem="x"))
    assert open_stores(state_url).tables.state(TABLE).problem == "x"
    assert os.environ.get("COMPACTION_STATE_URL") is None


@pytest.mark.postgres
def test_a_process_that_stands_still_in_a_transaction_blocks_others_only_for_a_while(postgres_url: str) -> None:
    still, other = open_state(postgres_url), open_state(postgres_url)
    with pytest.raises(StorageUnavailable), writing(still) as connection:  # noqa: PT012
        assert connection.execute(text("SHOW idle_in_transaction_session_timeout")).scalar_one() == "1min"
        # The test does not wait for a minute.
        connection.execute(text("SET idle_in_transaction_session_timeout = '1s'"))
        lock(connection, "queue heavy")
        with writing(other) as waiting:
            # Without the limit, this would wait for ever.
            lock(waiting, "queue heavy")
        connection.execute(text("SELECT 1"))
    with writing(still) as connection:
        lock(connection, "queue heavy")


@pytest.mark.postgres
def test_postgresql_compiles_no_statement_however_much_it_expects_to_read(postgres_url: str) -> None:
    with writing(open_state(postgres_url)) as connection:
        for setting in ("jit_above_cost", "jit_inline_above_cost", "jit_optimize_above_cost"):
            connection.execute(text(f"SET {setting} = 0"))
        plan = connection.execute(text("EXPLAIN (ANALYZE, FORMAT JSON) SELECT count(*) FROM generate_series(1, 1000)")).scalar_one()
    assert "JIT" not in plan[0]


@pytest.mark.postgres
def test_a_text_that_postgresql_cannot_store_is_a_mistake_of_the_caller(postgres_url: str) -> None:
    with pytest.raises(ConfigError, match="NUL"):
        open_stores(postgres_url).tokens.token("a\0b")


def test_a_write_begins_or_says_why_not(state_url: str, tmp_path: Path) -> None:
    within = timedelta(milliseconds=50)
    stores = open_stores(state_url, upgrade=True)
    stores.begin_write(within)
    if state_url.startswith("sqlite"):
        (tmp_path / "state.db").rename(tmp_path / "gone.db")
        with pytest.raises(StorageUnavailable, match=r"takes no writes: unable to open database file \(waited for 0\.05 s\)"):
            stores.begin_write(within)
        assert not (tmp_path / "state.db").exists()
    else:
        read_only = open_stores(f"{state_url}&options=-c%20default_transaction_read_only%3Don")
        with pytest.raises(StorageUnavailable, match="takes no writes: it is read-only"):
            read_only.begin_write(within)
        read_only.close()
    stores.close()


def test_a_write_after_a_question_is_still_applied_whole_or_not_at_all(state_url: str) -> None:
    engine = open_state(state_url)
    with writing(engine) as connection:
        connection.execute(text("CREATE TABLE numbers (number INTEGER)"))

    def write_and_fail() -> None:
        with writing(engine) as connection:
            connection.execute(text("INSERT INTO numbers VALUES (1)"))
            raise ZeroDivisionError

    for _ in range(2):
        # The pool gives the same connection to both.
        with asking(engine) as connection:
            assert connection.execute(text("SELECT count(*) FROM numbers")).scalar() == 0
        with pytest.raises(ZeroDivisionError):
            write_and_fail()
    engine.dispose()


def test_a_question_that_is_interrupted_at_its_end_leaves_no_connection_without_transactions(
    state_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = open_state(state_url)
    with writing(engine) as connection:
        connection.execute(text("CREATE TABLE numbers (number INTEGER)"))

    def interrupted(connection: Connection) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, suppress(KeyboardInterrupt), asking(engine) as connection:
        connection.execute(text("SELECT 1"))
        patch.setattr(Connection, "rollback", interrupted)
    with suppress(ZeroDivisionError), writing(engine) as connection:
        connection.execute(text("INSERT INTO numbers VALUES (1)"))
        raise ZeroDivisionError
    with reading(engine) as connection:
        assert connection.execute(text("SELECT count(*) FROM numbers")).scalar() == 0
    engine.dispose()
