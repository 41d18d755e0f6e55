"""The upgrade of an old state database, with tables in every state and with open tasks. Each table means the same afterwards."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from pydantic import TypeAdapter
from sqlalchemy import Boolean, Engine, bindparam, text

from compaction_pipeline.core.commit.record import CommitFigures, CompactionRecord, RecordStatus
from compaction_pipeline.core.commit.table_commits import TableCommits
from compaction_pipeline.core.fragmentation.health import HealthStatus
from compaction_pipeline.core.fragmentation.verdict import PlanReason, PlanReasonCode
from compaction_pipeline.core.ids import RecordId, TaskId
from compaction_pipeline.core.insight.known_table import KnownTable
from compaction_pipeline.core.planning.table_planning import TablePlanning
from compaction_pipeline.core.queue.task import CompactionTask, EndReason, MergeResult, TaskStatus
from compaction_pipeline.core.tables.index import Complete, Empty, Failed, Reading, Refused, TableIndex, WholeRead
from compaction_pipeline.core.tables.switch import TableSwitch
from compaction_pipeline.core.tables.table import CatalogEntry, TableIdentifier, TableLayout
from compaction_pipeline.services.insight.read_tables import ReadTables
from compaction_pipeline.storage.catalogs import SqlCatalogStore
from compaction_pipeline.storage.columns import Moment
from compaction_pipeline.storage.engine import open_state, writing
from compaction_pipeline.storage.files import SqlFileStore
from compaction_pipeline.storage.migrations import migrate
from compaction_pipeline.storage.stores import open_stores
from compaction_pipeline_tests.behaviours.example_tasks import example, failed, prepared
from compaction_pipeline_tests.builders import LOADED, NOW, data

LATER = NOW + timedelta(hours=1)
REASON = PlanReason(PlanReasonCode.NO_GAIN, "nothing to gain")
READ: Mapping[str, object] = {
    "table_uuid": LOADED.table_uuid,
    "layout": TypeAdapter(TableLayout).dump_json(LOADED.layout).decode(),
    "head_snapshot_id": 2**62,
    "known_snapshot_id": 2**62,
    "known_sequence_number": 7,
    "refreshed_at": NOW,
    "metadata_location": "m7",
}
OLD: Mapping[str, Mapping[str, object]] = {
    "listed": {},
    "never_answered": {"problem": "the catalog is away"},
    "whole": {**READ, "complete": True, "warning": "two compactors", "last_old_spec_delete_at": LATER},
    "bad_property": {**READ, "complete": True, "problem": "'self-optimizing.fragment-ratio' is 1"},
    "empty": {**READ, "complete": True, "head_snapshot_id": None, "known_snapshot_id": None, "known_sequence_number": 0},
    "paused": {**READ, "complete": True, "paused": True},
    # A commit of ours has set `complete` to false, and has left the other columns as they were.
    "committed": {**READ, "last_committed_at": LATER, "last_planned_at": NOW, "plan_reason": "REASON"},
    "first_look": {**READ, "known_snapshot_id": None, "known_sequence_number": 0, "refreshed_at": None, "metadata_location": None},
    "away": {**READ, "problem": "the catalog is away"},
    "refused": {**READ, "known_snapshot_id": None, "refreshed_at": None, "refusal": "format v3", "problem": None},
    "unloadable": {"refusal": "a type of tomorrow"},
    "failing": {**READ, "complete": True, "commit_problem": "HTTP 403", "commit_failures": 3, "commit_retry_at": LATER},
}


def named(name: str) -> TableIdentifier:
    return TableIdentifier("lake", ("shop",), name)


def known(name: str, index: TableIndex, **values: Any) -> KnownTable:
    return KnownTable(replace(index, table=named(name)), **values)


ANY = TableIndex(named("any"))
COMPLETE = Complete(LOADED, 2**62, 7, "m7", "before 0007", NOW)
EARLIER = WholeRead(2**62, NOW)
MEANT = {
    "listed": known("listed", ANY),
    "never_answered": known("never_answered", replace(ANY, state=Failed("the catalog is away"))),
    "whole": known("whole", TableIndex(named("whole"), COMPLETE, None, LATER, "two compactors")),
    "bad_property": known("bad_property", replace(ANY, state=replace(COMPLETE, property_problem="'self-optimizing.fragment-ratio' is 1"))),
    "empty": known("empty", replace(ANY, state=Empty(LOADED, "m7", "before 0007", NOW))),
    "paused": known("paused", replace(ANY, state=COMPLETE), switch=TableSwitch(True)),
    "committed": known(
        "committed",
        replace(ANY, state=Reading(LOADED), earlier=EARLIER),
        planning=TablePlanning(NOW, REASON),
        commits=TableCommits(0, LATER),
    ),
    "first_look": known("first_look", replace(ANY, state=Reading(LOADED))),
    "away": known("away", replace(ANY, state=Failed("the catalog is away", LOADED), earlier=EARLIER)),
    "refused": known("refused", replace(ANY, state=Refused("format v3", LOADED, "m7"))),
    "unloadable": known("unloadable", replace(ANY, state=Refused("a type of tomorrow"))),
    "failing": known("failing", replace(ANY, state=COMPLETE), commits=TableCommits(0, None, "HTTP 403", 3, LATER)),
}
UNMOVED = {"whole", "bad_property", "empty", "paused", "refused", "failing"}
SHOWN = {
    "listed": (HealthStatus.WAITING, "its files were not read yet"),
    "never_answered": (HealthStatus.WAITING, "the catalog is away"),
    "whole": (HealthStatus.HEALTHY, "no files"),
    "bad_property": (HealthStatus.WAITING, "'self-optimizing.fragment-ratio' is 1"),
    "empty": (HealthStatus.HEALTHY, "no files"),
    "paused": (HealthStatus.WAITING, "paused"),
    "committed": (HealthStatus.WAITING, "the table changed since its files were read"),
    "first_look": (HealthStatus.WAITING, "its files are being read"),
    "away": (HealthStatus.WAITING, "the catalog is away"),
    "refused": (HealthStatus.REFUSED, "format v3"),
    "unloadable": (HealthStatus.REFUSED, "a type of tomorrow"),
    "failing": (HealthStatus.FAILING, "its last 3 commits failed: HTTP 403; tried again from 13:00:00 UTC"),
}


def old_state(url: str) -> Engine:
    """A database of version 0006 with the tables of OLD."""
    engine = open_state(url)
    migrate(engine, head="0006")
    reason = TypeAdapter(PlanReason).dump_json(REASON).decode()
    with writing(engine) as connection:
        for name, told in OLD.items():
            row = {"known_sequence_number": 0, "complete": False, "paused": False, "dropped": False, **told}
            row |= {"identifier": str(named(name)), "catalog": "lake"}
            if "plan_reason" in row:
                row["plan_reason"] = reason
            statement = text(f"INSERT INTO compaction_table ({', '.join(row)}) VALUES ({', '.join(f':{column}' for column in row)})")
            moments = [bindparam(column, type_=Moment()) for column, value in row.items() if isinstance(value, datetime)]
            flags = [bindparam(column, type_=Boolean()) for column, value in row.items() if isinstance(value, bool)]
            connection.execute(statement.bindparams(*moments, *flags), row)
    return engine


NEW_FIELDS = ("failures", "losses", "waiting_since", "failed_at", "retry_at", "prepared_at", "committed_at")
"""The fields of a task that versions before 0013 did not know."""


def old_task(engine: Engine, task: CompactionTask, ends: Sequence[EndReason | None] = ()) -> None:
    """Insert a task as version 0006 did, with attempts that ended so. None stands for an attempt that still runs."""
    planned = json.loads(TypeAdapter(CompactionTask).dump_json(task))
    row: dict[str, object] = {
        "task_id": task.task_id,
        "identifier": str(task.table),
        "queue": task.queue,
        "priority": task.priority,
        "created_at": task.created_at,
        "group_name": task.work.group,
        "planned": json.dumps({name: value for name, value in planned.items() if name not in NEW_FIELDS}),
        "max_attempts": task.max_attempts,
        "status": task.status.value,
        "attempt": len(ends),
        "attempt_id": task.attempt_id,
        "owner": task.owner,
        "lease_expires_at": task.lease_expires_at,
        "started_at": task.started_at,
        "ended_at": task.ended_at,
        "end_reason": task.end_reason.value if task.end_reason else None,
        "reason": task.reason,
        "result": TypeAdapter(MergeResult).dump_json(task.result).decode() if task.result else None,
        "record_id": task.record_id,
        "input_bytes": task.work.input_bytes,
    }
    attempts = [
        {
            "task_id": task.task_id,
            "number": number,
            "attempt_id": task.attempt_id if number == len(ends) and task.attempt_id else f"{task.task_id}-{number}",
            "owner": "me",
            "started_at": NOW,
            "ended_at": NOW + timedelta(minutes=number) if end else None,
            "end_reason": end.value if end else None,
        }
        for number, end in enumerate(ends, 1)
    ]
    inputs = [{"task_id": task.task_id, "ordinal": number, "path": file.path} for number, file in enumerate(task.work.inputs)]
    with writing(engine) as connection:
        for name, rows in (("task", [row]), ("attempt", attempts), ("task_input", inputs)):
            for values in rows:
                statement = text(f"INSERT INTO compaction_{name} ({', '.join(values)}) VALUES (:{', :'.join(values)})")
                moments = [bindparam(column, type_=Moment()) for column, value in values.items() if isinstance(value, datetime)]
                connection.execute(statement.bindparams(*moments), values)


def at_work(engine: Engine) -> None:
    """Insert a Pending, an Executing, a Prepared and a claimed task, and the record of the claim. Version 0007 does not change them."""
    table = named("whole")
    SqlCatalogStore(engine).add(CatalogEntry("lake", {}))
    SqlFileStore(engine).apply(table, [], {"m1": [data("f")]})
    old_task(engine, example("pending", table=table), [EndReason.FAILED, EndReason.LOST, EndReason.DIGEST_MISMATCH])
    for name, record_id in (("claimed", RecordId("r1")), ("prepared", None)):
        task = example(name, table=table, status=TaskStatus.PREPARED, attempt_id=f"{name}-1", record_id=record_id)
        old_task(engine, replace(task, result=prepared(task)), [EndReason.MERGED])
    executing = example("executing", table=table, status=TaskStatus.EXECUTING, attempt_id="executing-2", owner="me", started_at=NOW)
    old_task(engine, replace(executing, lease_expires_at=NOW + timedelta(minutes=1)), [EndReason.INTERRUPTED, None])
    failed = example("failed", table=table, status=TaskStatus.FAILED, end_reason=EndReason.FAILED, reason="no footer", ended_at=NOW)
    old_task(engine, failed, [EndReason.FAILED] * 4)
    old_task(
        engine, example("committed", table=table, status=TaskStatus.COMMITTED, ended_at=NOW + timedelta(minutes=5)), [EndReason.MERGED]
    )
    save_record(engine, CompactionRecord(RecordId("r1"), table, RecordStatus.OPEN, NOW, (TaskId("claimed"),)))


def save_record(engine: Engine, record: CompactionRecord) -> None:
    """Insert a record as the versions before 0008 did."""
    values = {
        "id": record.record_id,
        "identifier": str(record.table),
        "status": record.status.value,
        "value": TypeAdapter(CompactionRecord).dump_json(record).decode(),
    }
    statement = text(
        "INSERT INTO compaction_record (record_id, identifier, status, created_at, mirrored, value) "
        "VALUES (:id, :identifier, :status, :at, :mirrored, :value)"
    ).bindparams(bindparam("at", NOW, Moment), bindparam("mirrored", False, Boolean))
    with writing(engine) as connection:
        connection.execute(statement, values)


def test_records_of_older_versions_say_how_many_files_they_merged_away(state_url: str) -> None:
    engine = old_state(state_url)
    figures = CommitFigures(files_before=30, files_after=3, delete_files_before=4)
    for number in range(3):
        save_record(
            engine, CompactionRecord(RecordId(f"c{number}"), named("whole"), RecordStatus.COMMITTED, NOW, (TaskId("t"),), figures=figures)
        )
    save_record(engine, CompactionRecord(RecordId("failed"), named("whole"), RecordStatus.FAILED, NOW, (TaskId("t"),), figures=figures))
    assert open_stores(state_url, upgrade=True).records.merged_away() == {named("whole"): 93}


def test_every_table_means_the_same_after_the_upgrade(state_url: str) -> None:
    old_state(state_url)
    stores = open_stores(state_url, upgrade=True)
    assert stores.upgraded
    assert {state.table.name: state for state in stores.tables.states()} == MEANT
    seen = stores.tables.seen()
    assert {table.name for table, location in seen.items() if location == "m7"} == UNMOVED
    assert {location for table, location in seen.items() if table.name not in UNMOVED} == {None}
    assert {state.table.name for state in stores.tables.states() if state.whole is not None} == UNMOVED - {"refused"}


def test_the_overviews_show_the_same_after_the_upgrade(state_url: str) -> None:
    old_state(state_url)
    stores = open_stores(state_url, upgrade=True)
    stores.catalogs.add(CatalogEntry("lake", {}))
    tables = ReadTables(stores.catalogs, stores.tables, stores.files, stores.tasks, stores.records)
    shown = {table.table.name: (table.health, table.reason) for table in tables.tables()}
    assert {name: health for name, (health, _) in shown.items()} == {name: health for name, (health, _) in SHOWN.items()}
    assert [name for name, (_, reason) in shown.items() if not reason.startswith(SHOWN[name][1])] == []


def test_open_work_goes_on_after_the_upgrade(state_url: str) -> None:
    at_work(old_state(state_url))
    stores = open_stores(state_url, upgrade=True)
    table = named("whole")
    assert {task.task_id: task.status for task in stores.tasks.tasks(table)} == {
        "claimed": TaskStatus.PREPARED,
        "committed": TaskStatus.COMMITTED,
        "executing": TaskStatus.EXECUTING,
        "failed": TaskStatus.FAILED,
        "pending": TaskStatus.PENDING,
        "prepared": TaskStatus.PREPARED,
    }
    assert [record.record_id for record in stores.records.records(table, unsettled=True)] == ["r1"]
    assert [file.path for file in stores.files.files(table)] == ["f"]
    # Settling the record makes the index outdated, as before the upgrade.
    stores.commits.note_landed(table, NOW)
    stores.tasks.commit(["claimed"], NOW)
    assert stores.tables.state(table).whole is None
    assert stores.tables.seen()[table] is None
    assert stores.tasks.task("claimed").status is TaskStatus.COMMITTED


def test_open_tasks_keep_their_failures_and_get_their_lost_attempts_back(state_url: str) -> None:
    at_work(old_state(state_url))
    tasks = open_stores(state_url, upgrade=True).tasks
    counted = {task.task_id: (task.failures, task.losses, task.attempt) for task in tasks.tasks()}
    assert counted == {
        "claimed": (0, 0, 1),
        "committed": (0, 0, 1),
        "executing": (0, 0, 2),
        "failed": (4, 0, 4),
        "pending": (2, 0, 3),
        "prepared": (0, 0, 1),
    }
    minute = timedelta(minutes=1)
    assert {task.waiting_since for task in tasks.tasks()} == {NOW}
    assert (tasks.task("pending").failed_at, tasks.task("failed").failed_at) == (NOW + 3 * minute, NOW + 4 * minute)
    assert (tasks.task("prepared").prepared_at, tasks.task("prepared").committed_at) == (NOW + minute, None)
    assert (tasks.task("committed").prepared_at, tasks.task("committed").committed_at) == (NOW + minute, NOW + 5 * minute)
    assert tasks.task("failed").is_final
    assert tasks.count_waiting_for_retry() == 0


def test_attempts_of_an_older_state_go_on_after_the_upgrade(state_url: str) -> None:
    at_work(old_state(state_url))
    tasks, later = open_stores(state_url, upgrade=True).tasks, NOW + timedelta(seconds=30)
    executing = tasks.task("executing")
    assert tasks.renew([executing.current_attempt_id], later, timedelta(minutes=1)) == (executing.attempt_id,)
    assert tasks.complete(failed(executing), later, timedelta(minutes=1)) is TaskStatus.FAILED
    assert tasks.retry(["executing", "failed"]) == ("executing",)
    pending = tasks.poll(None, "me", later, timedelta(minutes=1), ["pending"])
    assert pending is not None
    assert (pending.attempt, pending.failures) == (4, 2)


def test_waiting_tasks_of_an_older_state_stand_in_line_by_priority_age_and_small_files(state_url: str) -> None:
    engine = old_state(state_url)
    tasks = [
        example("late", created_at=NOW + timedelta(minutes=1)),
        example("large", inputs_kb=200),
        example("first", priority=2),
        example("aged", created_at=NOW - timedelta(hours=9)),
        example("many", files=("1", "2", "3")),
    ]
    for task in tasks:
        old_task(engine, task)
    upgraded = open_stores(state_url, upgrade=True).tasks
    assert upgraded.insert([example("new", files=("4", "5", "6"), created_at=NOW + timedelta(minutes=5))], [], NOW)
    polled = [upgraded.poll(None, "me", NOW, timedelta(minutes=1)) for _ in range(6)]
    assert [task.task_id for task in polled if task is not None] == ["aged", "first", "many", "new", "late", "large"]
