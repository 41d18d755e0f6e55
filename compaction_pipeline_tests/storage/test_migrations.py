"""How the state database gets its schema if it is fresh, older or newer than the program, and what happens if a migration fails."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from datetime import datetime, timezone
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine, inspect, text
from sqlalchemy.exc import OperationalError

from compaction_pipeline.core.dependencies.ports import ToldAs
from compaction_pipeline.core.errors import ConfigError, StorageUnavailable
from compaction_pipeline.core.tables.table import CatalogEntry
from compaction_pipeline.storage.engine import VERSION_TABLE, open_state, reading, writing
from compaction_pipeline.storage.migrations import HEAD, OLDEST, SCRIPTS, migrate, schema_version
from compaction_pipeline.storage.schema import metadata
from compaction_pipeline.storage.stores import open_stores
from compaction_pipeline_tests.builders import TABLE, data
from compaction_pipeline_tests.postgres import new_database
from compaction_pipeline_tests.storage.old_state import make_old_state

NEXT = f"{max(int(script.revision) for script in ScriptDirectory(str(SCRIPTS)).walk_revisions()) + 1:04d}"
_NEXT = """
import sqlalchemy as sa
from alembic import op

revision = "{next}"
down_revision = "{head}"


def upgrade() -> None:
    op.add_column("compaction_catalog", sa.Column("added", sa.Text()))
    {more}
"""


def newer(folder: Path, more: str = "") -> Path:
    """The migration scripts of a later program, with one more version than ours."""
    scripts = folder / "migrations"
    shutil.copytree(SCRIPTS, scripts, ignore=shutil.ignore_patterns("__pycache__"))
    (scripts / "versions" / f"v{NEXT}_next.py").write_text(_NEXT.format(more=more, next=NEXT, head=HEAD))
    return scripts


def version(url: str) -> str | None:
    with reading(open_state(url)) as connection:
        return schema_version(connection)


def test_head_is_the_newest_script() -> None:
    assert ScriptDirectory(str(SCRIPTS)).get_current_head() == HEAD


def columns_and_indexes(url: str) -> Mapping[str, object]:
    """All that a schema says, table by table: columns with types and defaults, keys, and indexes with their conditions.

    The length of a text is left out: SQLite has none, and no name of a member is as long as the shortest, 32.
    """
    found: dict[str, object] = {}
    with reading(open_state(url)) as connection:
        inspector = inspect(connection)
        for table in inspector.get_table_names():
            columns = [
                (column["name"], str(column["type"]).partition("(")[0], column["nullable"], str(column["default"]))
                for column in inspector.get_columns(table)
            ]
            indexes = {
                index["name"]: (
                    index["column_names"],
                    index["unique"],
                    {key: str(value) for key, value in index["dialect_options"].items()},
                )
                for index in inspector.get_indexes(table)
            }
            foreign = [(key["constrained_columns"], key["referred_table"], key["options"]) for key in inspector.get_foreign_keys(table)]
            found[table] = (sorted(columns), inspector.get_pk_constraint(table), foreign, indexes)
    return found


def test_a_fresh_database_has_the_schema_that_the_migrations_make(state_url: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    open_stores(state_url)
    with ExitStack() as databases:
        if state_url.startswith("sqlite"):
            upgraded = f"sqlite:///{tmp_path / 'old.db'}"
        else:
            upgraded = databases.enter_context(new_database(request.getfixturevalue("postgres_server")))
        make_old_state(upgraded)
        stores = open_stores(upgraded, upgrade=True)
        assert stores.upgraded
        assert columns_and_indexes(state_url) == columns_and_indexes(upgraded)
        stores.close()
    with reading(open_state(state_url)) as connection:
        context = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE, "compare_type": False})
        assert compare_metadata(context, metadata) == []


def test_a_state_before_the_oldest_version_is_refused_with_what_to_do(state_url: str) -> None:
    make_old_state(state_url)
    with writing(open_state(state_url)) as connection:
        connection.execute(text(f"UPDATE {VERSION_TABLE} SET version_num = '0025'"))
    for upgrade in (False, True):
        with pytest.raises(ConfigError, match=rf"0025.*upgrades versions from {OLDEST} on; open it once with the release"):
            open_stores(state_url, upgrade=upgrade)
    assert version(state_url) == "0025"


def test_a_fresh_database_gets_its_tables_at_once(state_url: str) -> None:
    open_stores(state_url)
    assert version(state_url) == HEAD


def test_many_that_open_a_fresh_database_at_once_make_it_once(state_url: str) -> None:
    with ThreadPoolExecutor(8) as pool:
        opened = list(pool.map(lambda _: open_stores(state_url), range(8)))
    opened[0].catalogs.add(CatalogEntry("lake", {}))
    assert [len(stores.catalogs.entries()) for stores in opened] == [1] * 8


def test_a_newer_version_is_refused_with_both_versions(state_url: str) -> None:
    open_stores(state_url)
    with writing(open_state(state_url)) as connection:
        connection.execute(text(f"UPDATE {VERSION_TABLE} SET version_num = '0099'"))
    for upgrade in (False, True):
        with pytest.raises(ConfigError, match=rf"0099.*{HEAD}.*newer compaction-pipeline"):
            open_stores(state_url, upgrade=upgrade)
    assert version(state_url) == "0099"


def test_an_older_sqlite_state_is_backed_up_and_migrated(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'state.db'}"
    open_stores(url).catalogs.add(CatalogEntry("lake", {}))
    scripts = newer(tmp_path)
    assert migrate(open_state(url), scripts=scripts, head=NEXT)
    assert not migrate(open_state(url), scripts=scripts, head=NEXT)
    assert version(url) == NEXT
    copy = f"sqlite:///{tmp_path / f'state.db.backup-{HEAD}'}"
    assert version(copy) == HEAD
    assert [entry.name for entry in open_stores(copy).catalogs.entries()] == ["lake"]
    assert not list(tmp_path.glob("*.part"))


def test_a_fresh_state_needs_no_backup(tmp_path: Path) -> None:
    open_stores(f"sqlite:///{tmp_path / 'state.db'}")
    assert not list(tmp_path.glob("*backup*"))


def test_a_migration_that_fails_leaves_the_old_state(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'state.db'}"
    open_stores(url)
    broken = newer(tmp_path, more='op.execute("INSERT INTO no_such_table VALUES (1)")')
    with pytest.raises((StorageUnavailable, OperationalError)):
        migrate(open_state(url), scripts=broken, head=NEXT)
    assert version(url) == HEAD
    with closing(sqlite3.connect(tmp_path / "state.db")) as connection:
        assert "added" not in [row[1] for row in connection.execute("PRAGMA table_info(compaction_catalog)")]


@pytest.mark.postgres
def test_an_older_postgresql_state_is_migrated_only_when_asked(postgres_url: str, tmp_path: Path) -> None:
    open_stores(postgres_url)
    scripts = newer(tmp_path)
    with pytest.raises(ConfigError, match=rf"{HEAD}.*{NEXT}.*compaction-pipeline state upgrade"):
        migrate(open_state(postgres_url), scripts=scripts, head=NEXT)
    assert version(postgres_url) == HEAD
    migrate(open_state(postgres_url), upgrade=True, scripts=scripts, head=NEXT)
    assert version(postgres_url) == NEXT


@pytest.mark.postgres
def test_a_database_shared_with_another_user_of_alembic_is_fresh(postgres_url: str) -> None:
    engine = create_engine(postgres_url)
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE alembic_version (version_num text)"))
        connection.execute(text("INSERT INTO alembic_version VALUES ('dagster')"))
    open_stores(postgres_url)
    with engine.begin() as connection:
        assert connection.execute(text("SELECT version_num FROM alembic_version")).scalars().all() == ["dagster"]
    engine.dispose()


def test_a_node_that_loses_a_file_indexed_without_a_hash_is_measured_anew(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'state.db'}"
    stores = open_stores(url)
    one, two = data("a", day="1"), data("b", day="2")
    stores.files.apply(TABLE, [], {"m1": [one, two]})
    with writing(open_state(url)) as connection:
        # The migration that added the hashes leaves nodes that were measured before it like this.
        connection.execute(text("UPDATE compaction_file SET entry_hash = NULL"))
        connection.execute(text("UPDATE compaction_partition SET files_sum = 0, measured_sum = 0, touched = false"))
    assert stores.files.touched(TABLE) == {}
    stores.files.apply(TABLE, ["m1"], {"m2": [two]})
    assert {node: found.files for node, found in stores.files.touched(TABLE).items()} == {one.node: 0, two.node: 1}


def test_keys_of_catalogs_that_were_registered_before_are_a_persons(state_url: str) -> None:
    make_old_state(state_url)
    row = {"name": "old", "properties": '{"type": "rest", "uri": "https://c"}', "observe": True}
    with writing(open_state(state_url)) as connection:
        connection.execute(text("INSERT INTO compaction_catalog (name, properties, observe) VALUES (:name, :properties, :observe)"), row)
    entry = open_stores(state_url, upgrade=True).catalogs.entry("old")
    assert entry == CatalogEntry("old", {"type": "rest", "uri": "https://c"}, observe=True)
    assert entry.held == {}


def test_what_the_receiver_of_callbacks_was_told_before_is_not_forgotten(state_url: str) -> None:
    make_old_state(state_url)
    assert migrate(open_state(state_url), upgrade=True, head="0044")
    now = datetime(2026, 1, 2, tzinfo=timezone.utc)
    told = {"day=2026-01-01": True, "day=2026-01-02": False, "day=2026-01-03": None}
    columns = "table_uuid, what, identifier, asked_at, awaited_until, told, value"
    insert = text(f"INSERT INTO compaction_ready_answer ({columns}) VALUES ('u', :what, :table, :at, :at, :told, '{{}}')")
    with writing(open_state(state_url)) as connection:
        for what, was_ready in told.items():
            at = now if state_url.startswith("postgresql") else f"{now:%Y-%m-%d %H:%M:%S.%f}"
            connection.execute(insert, {"what": what, "table": str(TABLE), "at": at, "told": was_ready})
    awaited = open_stores(state_url, upgrade=True).dependencies.awaited(now)
    assert {one.what: one.told_as for one in awaited} == dict(zip(told, (ToldAs.READY_AGAIN, ToldAs.WITHDRAWN, None), strict=True))


def test_the_id_of_what_the_receiver_of_callbacks_was_told_stays_as_it_was(state_url: str) -> None:
    make_old_state(state_url)
    assert migrate(open_state(state_url), upgrade=True, head="0046")
    now = datetime(2026, 1, 2, tzinfo=timezone.utc)
    told = {
        "day=2026-01-01": ("u/day=2026-01-01/0/2026-01-02T00:00:00+00:00/ready", ToldAs.READY),
        "day=2026-01-02": ("u/day=2026-01-02/0/2026-01-02T00:00:00+00:00/ready/again", ToldAs.READY_AGAIN),
        "day=2026-01-03": ("u/day=2026-01-03/1/2026-01-02T00:00:00+00:00/withdrawn", ToldAs.WITHDRAWN),
        "day=2026-01-04": (None, None),
    }
    columns = "table_uuid, what, identifier, asked_at, awaited_until, told, value"
    insert = text(f"INSERT INTO compaction_ready_answer ({columns}) VALUES ('u', :what, :table, :at, :at, :told, '{{}}')")
    with writing(open_state(state_url)) as connection:
        for what, (before, _) in told.items():
            at = now if state_url.startswith("postgresql") else f"{now:%Y-%m-%d %H:%M:%S.%f}"
            connection.execute(insert, {"what": what, "table": str(TABLE), "at": at, "told": before})
    awaited = open_stores(state_url, upgrade=True).dependencies.awaited(now)
    ids = {what: None if before is None else before.partition("+00:00")[0] + "+00:00" for what, (before, _) in told.items()}
    assert {one.what: (one.told, one.told_as) for one in awaited} == {what: (ids[what], told_as) for what, (_, told_as) in told.items()}


def test_instances_of_the_dependency_center_go_on_and_runs_that_failed_are_told_apart(state_url: str) -> None:
    make_old_state(state_url)
    assert migrate(open_state(state_url), upgrade=True, head="0048")
    at = datetime(2026, 1, 2, tzinfo=timezone.utc) if state_url.startswith("postgresql") else "2026-01-02 00:00:00.000000"
    instance = "INSERT INTO compaction_center_instance (id, job, biz, origin, part, generation, state, missing, made_at) VALUES "
    subject = "INSERT INTO compaction_center_subject (id, key, kind, name, reported, reached, spread, at) VALUES "
    runs = {
        ("raw", "", "", "FAILED"): -1,
        ("raw", "fix", "", "FAILED"): -1,
        ("parts", "", "eu", "FAILED"): -1,
        ("other", "", "", "RUNNING"): 0,
    }
    keys = [
        "job=raw && biz=2026-01-01",
        "job=raw && backfill=fix && biz=2026-01-01",
        "job=parts && biz=2026-01-01 && part=eu",
        "job=other && biz=2026-01-01",
    ]
    with writing(open_state(state_url)) as connection:
        for number, (job, origin, part, state) in enumerate([*runs, ("load", "", "", "WAITING")], start=1):
            values = {"id": number, "job": job, "origin": origin, "part": part, "state": state, "missing": int(job == "load"), "at": at}
            connection.execute(text(f"{instance} (:id, :job, '2026-01-01', :origin, :part, 1, :state, :missing, :at)"), values)
        for number, key in enumerate(keys, start=1):
            connection.execute(text(f"{subject} (:id, :key, 'job', 'x', false, 0, true, :at)"), {"id": number, "key": key, "at": at})
        connection.execute(
            text("INSERT INTO compaction_center_requirement (instance_id, edge, subject_id, bound, met) VALUES (5, 0, 1, 1, false)")
        )
    center = open_stores(state_url, upgrade=True).center
    reached = center.reached(keys)
    assert [reached[key] for key in keys] == list(runs.values())
    (wait,) = center.waits(5)
    assert (wait.key, wait.met, wait.opens_at, center.groups(5), center.recount()) == (keys[0], False, None, [], 0)
