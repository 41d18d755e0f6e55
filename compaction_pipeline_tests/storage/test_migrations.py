"""How the state database gets its schema if it is fresh, older or newer than the program, and what happens if a migration fails."""

from __future__ import annotations

import json
import shutil
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from pydantic import TypeAdapter
from sqlalchemy import create_engine, text
from sqlalchemy.exc import OperationalError

from compaction_pipeline.core.errors import ConfigError, StorageUnavailable
from compaction_pipeline.core.queue.group import ResourceGroup
from compaction_pipeline.core.queue.task import CompactionTask, EndReason, MergeResult
from compaction_pipeline.core.tables.figures import MeasuredNode, NodeMetrics
from compaction_pipeline.core.tables.node import TableNode
from compaction_pipeline.core.tables.table import CatalogEntry
from compaction_pipeline.storage.engine import VERSION_TABLE, open_state, reading, writing
from compaction_pipeline.storage.migrations import HEAD, SCRIPTS, migrate, schema_version
from compaction_pipeline.storage.schema import metadata
from compaction_pipeline.storage.stores import open_stores
from compaction_pipeline_tests.builders import NOW, TABLE, data, node, task

NEXT = f"{int(HEAD) + 1:04d}"
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


def test_the_migrations_make_the_schema(state_url: str) -> None:
    open_stores(state_url)
    with reading(open_state(state_url)) as connection:
        context = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE, "compare_type": False})
        assert compare_metadata(context, metadata) == []


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


def test_a_database_of_the_first_version_reads_its_files_again(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'state.db'}"
    engine = open_state(url)
    migrate(engine, head="0001")
    with writing(engine) as connection:
        connection.execute(text("INSERT INTO compaction_manifest VALUES (1, 'lake.shop.orders', 'm')"))
        connection.execute(text("INSERT INTO compaction_partition VALUES (1, 'lake.shop.orders', 'd', '[]')"))
        names = "manifest_id, ordinal, partition_id, path, content, spec_id, file_size_bytes, record_count, data_sequence_number"
        values = "1, 0, 1, 'f', 'DATA', 0, 1, 1, 1"
        connection.execute(text(f"INSERT INTO compaction_file ({names}, added_snapshot_id) VALUES ({values}, 1)"))
        connection.execute(
            text(
                "INSERT INTO compaction_table (identifier, catalog, known_sequence_number, complete, paused, dropped) "
                "VALUES ('lake.shop.orders', 'lake', 1, 1, 1, 0)"
            )
        )
    stores = open_stores(url)
    (state,) = stores.tables.states()
    assert (state.whole, state.paused) == (None, True)
    assert (stores.files.files(state.table), stores.files.manifests(state.table)) == ((), frozenset())


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


def test_waiting_tasks_of_tables_that_were_paused_before_the_upgrade_have_no_turn(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'state.db'}"
    engine = open_state(url)
    migrate(engine, head="0010")
    with writing(engine) as connection:
        for number, paused in enumerate((True, False)):
            table, planned = f"lake.shop.t{number}", TypeAdapter(CompactionTask).dump_json(task(f"t{number}")).decode()
            connection.execute(
                text("INSERT INTO compaction_table (identifier, catalog, index_state, paused) VALUES (:table, 'lake', 'UNREAD', :paused)"),
                {"table": table, "paused": paused},
            )
            connection.execute(
                text(
                    "INSERT INTO compaction_task (task_id, identifier, queue, priority, created_at, group_name, planned, max_attempts, "
                    "status, attempt) VALUES (:task_id, :table, 'default', 0, '2026-01-01', '', :planned, 4, 'PENDING', 0)"
                ),
                {"task_id": f"t{number}", "table": table, "planned": planned},
            )
    stores = open_stores(url)
    assert stores.tasks.paused() == 1
    assert [str(stores.tasks.first_waiting(None, [name])) for name in ("t0", "t1")] == ["None", "lake.shop.t1"]


def test_the_upgrade_makes_the_groups_that_tasks_tables_and_catalogs_name(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'state.db'}"
    engine = open_state(url)
    migrate(engine, head="0019")
    properties = json.dumps({"self-optimizing.group": " of_table "})
    layout = f'{{"schema_id": 0, "properties": {properties}}}'
    planned = TypeAdapter(CompactionTask).dump_json(task("t")).decode()
    with writing(engine) as connection:
        connection.execute(text("INSERT INTO compaction_catalog VALUES ('lake', '{\"table.self-optimizing.group\": \"of-catalog\"}', 0)"))
        connection.execute(
            text("INSERT INTO compaction_table (identifier, catalog, index_state, layout) VALUES ('lake.a.b', 'lake', 'UNREAD', :layout)"),
            {"layout": layout},
        )
        for number, (queue, status) in enumerate((("of-task", "PENDING"), ("of-ended", "COMMITTED"), ("no name", "PENDING"))):
            connection.execute(
                text(
                    "INSERT INTO compaction_task (task_id, identifier, queue, priority, created_at, group_name, planned, max_attempts, "
                    "status, attempt) VALUES (:task_id, 'lake.a.b', :queue, 0, '2026-01-01', '', :planned, 4, :status, 0)"
                ),
                {"task_id": f"t{number}", "queue": queue, "planned": planned, "status": status},
            )
    groups = open_stores(url).groups.groups()
    assert groups == tuple(map(ResourceGroup, ("default", "of-catalog", "of-task", "of_table")))


def test_the_ends_of_older_tasks_and_attempts_get_their_reason(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'state.db'}"
    engine = open_state(url)
    migrate(engine, head="0005")
    refused = TypeAdapter(MergeResult).dump_python(MergeResult("refused", "a", error="no field ids"), mode="json")
    ends = {
        "conflict": ("FAILED", "conflict: its input is gone", None, EndReason.CONFLICT),
        "lost": ("FAILED", "attempt 4 of 4 was lost: process 1 did not renew its lease", None, EndReason.LOST),
        "refused": ("FAILED", "no field ids", json.dumps({**refused, "refused": True}), EndReason.REFUSED),
        "failed": ("FAILED", "footer unreadable", None, EndReason.FAILED),
        "replaced": ("CANCELED", "replaced by a newer plan", None, EndReason.REPLACED),
        "given-up": ("CANCELED", "interrupted", None, EndReason.GIVEN_UP),
        "waits": ("PENDING", None, None, None),
        "merged": ("PREPARED", None, TypeAdapter(MergeResult).dump_json(MergeResult("merged", "a")).decode(), None),
    }
    outcomes = {"PREPARED": EndReason.MERGED, "LOST": EndReason.LOST, "DIGEST_MISMATCH": EndReason.DIGEST_MISMATCH, None: None}
    with writing(engine) as connection:
        for task_id, (status, reason, result, _) in ends.items():
            planned = TypeAdapter(CompactionTask).dump_json(task(task_id)).decode()
            connection.execute(
                text(
                    "INSERT INTO compaction_task (task_id, identifier, queue, priority, created_at, group_name, planned, max_attempts, "
                    "status, attempt, reason, result, input_bytes) "
                    "VALUES (:task_id, 'lake.shop.orders', 'default', 0, :now, '', :planned, 4, :status, 1, :reason, :result, 0)"
                ),
                {
                    "task_id": task_id,
                    "now": "2026-01-01 00:00:00.000000",
                    "planned": planned,
                    "status": status,
                    "reason": reason,
                    "result": result,
                },
            )
        for number, outcome in enumerate(outcomes, 1):
            connection.execute(
                text(
                    "INSERT INTO compaction_attempt (task_id, number, attempt_id, owner, started_at, outcome) "
                    "VALUES ('failed', :number, :attempt_id, 'process 1', '2026-01-01 00:00:00.000000', :outcome)"
                ),
                {"number": number, "attempt_id": f"a{number}", "outcome": outcome},
            )
    tasks = open_stores(url).tasks
    assert {task.task_id: task.end_reason for task in tasks.tasks()} == {task_id: end[3] for task_id, end in ends.items()}
    assert [attempt.end_reason for attempt in tasks.attempts("failed")] == list(outcomes.values())
    assert tasks.task("merged").result == MergeResult("merged", "a")


@pytest.mark.parametrize("kind", ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def test_nodes_of_an_older_state_keep_their_keys_and_new_nodes_get_short_ones(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    url = f"sqlite:///{tmp_path / 'state.db'}" if kind == "sqlite" else request.getfixturevalue("postgres_url")
    engine = open_state(url)
    migrate(engine, head="0009")
    old = "lake.shop.orders/0/dt=1/0-0"
    values = {
        "key": old,
        "identifier": str(TABLE),
        "node": TypeAdapter(TableNode).dump_json(node("1")).decode(),
        "metrics": TypeAdapter(NodeMetrics).dump_json(NodeMetrics(data_files=4)).decode(),
        "last_done": "{}",
    }
    with writing(engine) as connection:
        names = ", ".join(values)
        connection.execute(text(f"INSERT INTO compaction_node ({names}) VALUES (:{', :'.join(values)})"), values)
    stores = open_stores(url, upgrade=True)
    (before,) = stores.tables.nodes(TABLE)
    assert (before.key, before.node, before.metrics.data_files) == (old, node("1"), 4)
    stores.index.save_figures(TABLE, [MeasuredNode(node(day), NodeMetrics(data_files=5), 1) for day in "12"], NOW)
    assert {state.key: state.metrics.data_files for state in stores.tables.nodes(TABLE)} == {old: 5, "shop.orders/dt=2": 5}
    stores.index.remove_nodes(TABLE, [node("1")])
    stores.index.save_figures(TABLE, [MeasuredNode(node("1"), NodeMetrics(), 1)], NOW)
    assert stores.tables.node(old).node == node("1")
    stores.close()
