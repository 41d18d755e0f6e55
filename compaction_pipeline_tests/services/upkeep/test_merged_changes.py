"""Rounds of upkeep empty the change store of a keyed table that asks for it: its merged files leave it, and later its storage."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from compaction_pipeline.core.planning.plan import PlanRequest
from compaction_pipeline.core.queue.task import TaskStatus
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.upkeep.record import UpkeepStatus
from compaction_pipeline.core.upkeep.works import UpkeepWork
from compaction_pipeline.core.work.kinds import CompactionType
from compaction_pipeline_tests.keyed.program import CHANGE_STORE, FULL, TABLE, Program, change_files, files_of_change_store, merge_planned
from compaction_pipeline_tests.keyed.written import row
from compaction_pipeline_tests.services.upkeep.expiring import DAY, HOUR

CHANGES = UpkeepWork.CHANGE_FILES


def set_properties(program: Program, **properties: str) -> None:
    for store in program.keyed.stores():
        with store.transaction() as transaction:
            transaction.set_properties({key.replace("__", ".").replace("_", "-"): value for key, value in properties.items()})


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Program]:
    program = Program(tmp_path)
    program.services.explore_catalogs.explore()
    yield program
    program.services.close()


def compacted(program: Program) -> None:
    """Two merges, so the base store has an older snapshot that lacks the second change."""
    for number in (1, 2):
        program.upsert(row(number))
        assert program.services.compact_tables.compact(TABLE, FULL).committed
    # Snapshots have the time of this host.
    program.pass_time(60)
    program.refresh()


def round_of(program: Program) -> list[UpkeepWork]:
    """Run a round, and return the works that found something to do."""
    upkept = program.services.upkeep_tables.run()
    assert not upkept.failed
    program.refresh()
    return [one.work for one in upkept.done if one.lines]


def test_merged_files_leave_a_table_that_asks_for_it_and_then_its_storage(program: Program) -> None:
    compacted(program)
    assert round_of(program) == []
    set_properties(program, table_expire__enabled="true")
    program.refresh()
    assert round_of(program) == []
    program.pass_time(7 * DAY + HOUR)
    # In one round the first file leaves, and then the snapshots expire. The second file waits for those of the base store.
    assert round_of(program) == [CHANGES, UpkeepWork.SNAPSHOTS]
    assert change_files(program) == 1
    assert CHANGES in round_of(program)
    assert change_files(program) == 0
    program.check()
    assert len(files_of_change_store(program)) == 2
    for _ in range(3):
        program.pass_time(6 * DAY)
        round_of(program)
    assert files_of_change_store(program) == set()
    program.check()
    records = [one for one in program.services.commit_upkeep.records(TABLE, 9) if one.target.work is CHANGES]
    assert [(one.target.store, one.status, one.figures["change_files"]) for one in records] == [(CHANGE_STORE, UpkeepStatus.DONE, 1)] * 2


def test_an_idle_table_has_a_turn_again_when_its_files_are_old_enough(program: Program) -> None:
    set_properties(program, table_expire__enabled="true", change__data__ttl__minutes="120")
    compacted(program)
    program.services.upkeep_tables.run()
    assert (TABLE, CHANGES) not in program.services.upkeep_tables.due()
    program.pass_time(HOUR)
    assert (TABLE, CHANGES) not in program.services.upkeep_tables.due()
    program.pass_time(HOUR)
    assert (TABLE, CHANGES) in program.services.upkeep_tables.due()


def test_a_task_that_waits_while_merged_files_leave_still_lands(program: Program) -> None:
    set_properties(program, change__data__ttl__minutes="0", history__expire__max_snapshot_age_ms="0")
    compacted(program)
    program.services.expire_snapshots.expire(TABLE)
    program.upsert(row(1, "new"))
    program.services.plan_tables.plan(TABLE, PlanRequest((CompactionType.MAJOR,), force=True), unlimited=True)
    (done,) = program.services.commit_upkeep.carry_out(TABLE, CHANGES)
    assert done.record is not None
    assert change_files(program) == 2, "the new delete and the new insert are not merged"
    merge_planned(program)
    program.services.commit_tables.commit(TABLE)
    assert {task.status for task in program.services.stores.tasks.tasks(TABLE)} == {TaskStatus.COMMITTED}
    program.check()


def test_a_plain_table_has_no_change_store(program: Program) -> None:
    program.keyed.catalog.create_table("db.plain", program.keyed.table.schema)
    plain = TableIdentifier("lake", ("db",), "plain")
    (done,) = program.services.commit_upkeep.carry_out(plain, CHANGES)
    assert done.refusal == "the table is not keyed, so it has no change store"


def test_a_base_store_that_was_set_back_is_refused_in_words(program: Program) -> None:
    set_properties(program, change__data__ttl__minutes="0", history__expire__max_snapshot_age_ms="0")
    program.upsert(row(1))
    assert program.services.compact_tables.compact(TABLE, FULL).committed
    old = program.keyed.stores()[0].metadata_location
    program.upsert(row(2))
    assert program.services.compact_tables.compact(TABLE, FULL).committed
    program.pass_time(60)
    program.services.expire_snapshots.expire(TABLE)
    (done,) = program.services.commit_upkeep.carry_out(TABLE, CHANGES)
    assert done.record is not None
    program.keyed.catalog.drop_table("db.t")
    program.keyed.catalog.register_table("db.t", old)
    assert "were in its base store" in program.services.compact_tables.compact(TABLE, FULL).reason
    (done,) = program.services.commit_upkeep.look(TABLE, CHANGES)
    assert "were in its base store" in (done.refusal or "")
