"""The upgrade of an old state database, with tables in every state and with open tasks. Each table means the same afterwards."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

from compaction_pipeline.core.commit.table_commits import TableCommits
from compaction_pipeline.core.fragmentation.health import HealthStatus
from compaction_pipeline.core.fragmentation.verdict import PlanReason, PlanReasonCode
from compaction_pipeline.core.ids import TaskId
from compaction_pipeline.core.insight.known_table import KnownTable
from compaction_pipeline.core.planning.table_planning import TablePlanning
from compaction_pipeline.core.queue.task import TaskStatus
from compaction_pipeline.core.tables.index import Complete, Empty, Failed, LoadedTable, Reading, Refused, TableIndex, WholeRead
from compaction_pipeline.core.tables.switch import TableSwitch
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.work.kinds import TaskAction
from compaction_pipeline.services.insight.read_tables import ReadTables
from compaction_pipeline.storage.stores import open_stores
from compaction_pipeline_tests.behaviours.example_tasks import failed, prepared
from compaction_pipeline_tests.builders import LAYOUT, NOW
from compaction_pipeline_tests.storage.old_state import make_old_state

LATER = NOW + timedelta(hours=1)
REASON = PlanReason(PlanReasonCode.NO_GAIN, "nothing to gain")


def named(name: str) -> TableIdentifier:
    return TableIdentifier("lake", ("shop",), name)


def known(name: str, index: TableIndex, **values: Any) -> KnownTable:
    return KnownTable(replace(index, table=named(name)), **values)


LOADED = LoadedTable("uuid", replace(LAYOUT, schemas={0: "{}", 1: '{"fields": []}'}))
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
    "whole": (HealthStatus.DUE, "1 task waits, 1 task is being merged, 2 merged tasks wait for the commit"),
    "bad_property": (HealthStatus.WAITING, "'self-optimizing.fragment-ratio' is 1"),
    "empty": (HealthStatus.DUE, "5 tasks wait, 5 tasks are being merged, 5 failed tasks are tried again later, 5 merged tasks"),
    "paused": (HealthStatus.WAITING, "paused"),
    "committed": (HealthStatus.WAITING, "the table changed since its files were read"),
    "first_look": (HealthStatus.WAITING, "its files are being read"),
    "away": (HealthStatus.WAITING, "the catalog is away"),
    "refused": (HealthStatus.REFUSED, "format v3"),
    "unloadable": (HealthStatus.REFUSED, "a type of tomorrow"),
    "failing": (HealthStatus.FAILING, "its last 3 commits failed: HTTP 403; tried again from 13:00:00 UTC"),
}


def test_every_table_means_the_same_after_the_upgrade(state_url: str) -> None:
    make_old_state(state_url)
    stores = open_stores(state_url, upgrade=True)
    assert stores.upgraded
    assert {state.table.name: state for state in stores.tables.states()} == MEANT
    seen = stores.tables.seen()
    assert {table.name for table, location in seen.items() if location == "m7"} == UNMOVED
    assert {location for table, location in seen.items() if table.name not in UNMOVED} == {None}
    assert {state.table.name for state in stores.tables.states() if state.whole is not None} == UNMOVED - {"refused"}


def test_the_overviews_show_the_same_after_the_upgrade(state_url: str) -> None:
    make_old_state(state_url)
    stores = open_stores(state_url, upgrade=True)
    tables = ReadTables(stores.catalogs, stores.tables, stores.files, stores.tasks, stores.records, stores.teams, lambda: NOW)
    shown = {table.table.name: (table.health, table.reason) for table in tables.tables()}
    assert {name: health for name, (health, _) in shown.items()} == {name: health for name, (health, _) in SHOWN.items()}
    assert [name for name, (_, reason) in shown.items() if not reason.startswith(SHOWN[name][1])] == []


def test_open_work_goes_on_after_the_upgrade(state_url: str) -> None:
    make_old_state(state_url)
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


STATUSES = {
    "pending": TaskStatus.PENDING,
    "executing": TaskStatus.EXECUTING,
    "prepared": TaskStatus.PREPARED,
    "retry": TaskStatus.FAILED,
    "failed": TaskStatus.FAILED,
    "canceled": TaskStatus.CANCELED,
    "committed": TaskStatus.COMMITTED,
}


def test_tasks_of_every_action_and_status_are_read_and_go_on(state_url: str) -> None:
    make_old_state(state_url)
    tasks, lease = open_stores(state_url, upgrade=True).tasks, timedelta(minutes=1)
    stored = {task.task_id: task for task in tasks.tasks(named("empty"))}
    assert {name: task.status for name, task in stored.items()} == {
        f"{action.value}-{name}": status for action in TaskAction for name, status in STATUSES.items()
    }
    assert [task.work.action.value for name, task in stored.items()] == [name.rpartition("-")[0] for name in stored]
    for action in TaskAction:
        waiting, running = stored[f"{action.value}-pending"], stored[f"{action.value}-executing"]
        assert tasks.complete(prepared(running), NOW, lease) is TaskStatus.PREPARED
        polled = tasks.poll(None, "me", NOW, lease, [waiting.task_id])
        assert polled is not None
        assert (polled.work, polled.attempt) == (waiting.work, 1)
        assert tasks.complete(failed(polled), NOW, lease) is TaskStatus.FAILED
        assert tasks.retry([f"{action.value}-retry"]) == (f"{action.value}-retry",)
        tasks.commit([f"{action.value}-prepared"], NOW)
        assert tasks.task(TaskId(f"{action.value}-prepared")).result == stored[f"{action.value}-prepared"].result
    spans = [task.work.changes for task in stored.values() if task.work.action is TaskAction.TO_BASE]
    assert {(span.above, span.up_to, len(span.marked)) for span in spans if span is not None} == {(4, 6, 1)}


def test_leases_groups_and_tokens_of_an_older_state_stay(state_url: str) -> None:
    make_old_state(state_url)
    stores = open_stores(state_url, upgrade=True)
    assert [group.name for group in stores.groups.groups()] == ["default", "nightly"]
    held = stores.leases.holder("commit:lake.shop.whole", NOW)
    assert held is not None
    assert held.owner == "process 1"
    assert not stores.leases.acquire("commit:lake.shop.whole", "me", NOW, timedelta(minutes=1))


def test_attempts_of_an_older_state_go_on_after_the_upgrade(state_url: str) -> None:
    make_old_state(state_url)
    tasks, later = open_stores(state_url, upgrade=True).tasks, NOW + timedelta(seconds=30)
    executing = tasks.task("executing")
    assert tasks.renew([executing.current_attempt_id], later, timedelta(minutes=1)) == (executing.attempt_id,)
    assert tasks.complete(failed(executing), later, timedelta(minutes=1)) is TaskStatus.FAILED
    assert tasks.retry(["executing", "failed"]) == ("executing",)
    pending = tasks.poll(None, "me", later, timedelta(minutes=1), ["pending"])
    assert pending is not None
    assert (pending.attempt, pending.failures) == (4, 2)


def test_the_places_of_all_loaded_tables_are_known_after_the_upgrade(state_url: str) -> None:
    make_old_state(state_url)
    stores = open_stores(state_url, upgrade=True)
    loaded = {table: state.index.loaded for table in map(named, MEANT) if (state := stores.tables.state(table)).index.loaded is not None}
    assert len(loaded) > 5
    assert {(one.table, one.table_uuid, one.location) for one in stores.orphans.places()} >= {
        (table, each.table_uuid, each.layout.location) for table, each in loaded.items() if each is not None
    }
    stores.close()
