"""Change files stay, and stay in storage, while an old reader, another registration or an open question may need them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.exceptions import CommitStateUnknownException
from pyiceberg.io.pyarrow import schema_to_pyarrow

from compaction_pipeline.core.upkeep.record import UpkeepStatus
from compaction_pipeline.core.upkeep.works import UpkeepWork
from compaction_pipeline.iceberg.catalogs.open_catalogs import Catalogs
from compaction_pipeline_tests.iceberg.faulty_catalog import Faulty
from compaction_pipeline_tests.iceberg.upkeep.test_merged_changes import expire_all_but_refs
from compaction_pipeline_tests.interop.amoro_reader import amoro_rows
from compaction_pipeline_tests.keyed.expired_changes import expire_changes
from compaction_pipeline_tests.keyed.program import CHANGE_STORE, FULL, TABLE, Program, change_files, files_of_change_store
from compaction_pipeline_tests.keyed.written import row
from compaction_pipeline_tests.services.upkeep.expiring import DAY, HOUR
from compaction_pipeline_tests.services.upkeep.test_merged_changes import compacted, round_of, set_properties

CHANGES = UpkeepWork.CHANGE_FILES


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Program]:
    """A table whose snapshots expire at once, and whose change files leave as soon as they are merged."""
    program = Program(tmp_path)
    program.services.explore_catalogs.explore()
    set_properties(program, change__data__ttl__minutes="0", history__expire__max_snapshot_age_ms="0", table_expire__enabled="true")
    yield program
    program.services.close()


def refusal(program: Program) -> str:
    """Why no change file leaves."""
    (done,) = program.services.commit_upkeep.carry_out(TABLE, CHANGES)
    assert done.record is None
    assert done.refusal is not None
    return done.refusal


def left(program: Program) -> None:
    """Let the older snapshots of the base store go, and then all change files."""
    program.services.expire_snapshots.expire(TABLE)
    (done,) = program.services.commit_upkeep.carry_out(TABLE, CHANGES)
    assert done.record is not None
    assert change_files(program) == 0


def test_another_registration_of_the_base_store_keeps_the_change_files(program: Program) -> None:
    program.upsert(row(1))
    assert program.services.compact_tables.compact(TABLE, FULL).committed
    program.keyed.catalog.register_table("db.copy", program.keyed.stores()[0].metadata_location)
    compacted(program)
    program.services.explore_catalogs.explore()
    expire_all_but_refs(program.keyed.stores()[0])
    assert "lake.db.copy is another registration of this table" in refusal(program)
    assert change_files(program) == 4, "three inserts, and a delete"


def test_another_registration_of_the_base_store_keeps_files_of_the_change_store_in_storage(program: Program) -> None:
    compacted(program)
    copied = program.keyed.stores()[0].metadata_location
    left(program)
    files = files_of_change_store(program)
    program.services.expire_snapshots.expire(TABLE)
    program.keyed.catalog.register_table("db.copy", copied)
    program.services.explore_catalogs.explore()
    program.pass_time(7 * DAY)
    expired = program.services.expire_snapshots.expire(TABLE)
    waits = [record.summary for record in expired.earlier if record.store == CHANGE_STORE]
    assert waits
    assert all("lake.db.copy is another registration of this table" in summary for summary in waits)
    assert files_of_change_store(program) == files


def test_while_the_base_store_is_set_back_nothing_of_the_change_store_goes(program: Program) -> None:
    program.upsert(row(1))
    assert program.services.compact_tables.compact(TABLE, FULL).committed
    old = program.keyed.stores()[0].metadata_location
    compacted(program)
    left(program)
    files, snapshots = files_of_change_store(program), len(program.keyed.stores()[1].metadata.snapshots)
    program.keyed.catalog.drop_table("db.t")
    program.keyed.catalog.register_table("db.t", old)
    program.pass_time(7 * DAY)
    base, change = program.services.expire_snapshots.expire(TABLE).stores
    for one in (base, change):
        assert "of store lake.db.t, its metadata is older than what was seen" in (one.refusal or "")
    assert "of store lake.db.t, its metadata is older" in refusal(program)
    assert (files_of_change_store(program), len(program.keyed.stores()[1].metadata.snapshots)) == (files, snapshots)


@pytest.mark.parametrize(
    "changed", [{"status": UpkeepStatus.KEPT}, {"status": UpkeepStatus.OPEN}, {"status": UpkeepStatus.UNKNOWN}, {"base_known": False}]
)
def test_changes_stay_while_a_snapshot_of_the_base_store_may_come_back(program: Program, changed: dict[str, Any]) -> None:
    compacted(program)
    program.services.expire_snapshots.expire(TABLE)
    memory = program.services.stores.upkeep
    (record,) = (one for one in memory.records(TABLE) if one.store == TABLE)
    memory.save(replace(record, **changed))
    assert f"snapshots that expiry {record.record_id} removed may come back" in refusal(program)
    memory.save(record)
    (done,) = program.services.commit_upkeep.carry_out(TABLE, CHANGES)
    assert done.record is not None


def test_change_files_stay_for_the_time_that_the_base_store_says_although_snapshots_expire_sooner(program: Program) -> None:
    compacted(program)
    with program.keyed.stores()[0].transaction() as transaction:
        transaction.set_properties({"change.data.ttl.minutes": str(30 * 24 * 60)})
    with program.keyed.stores()[1].transaction() as transaction:
        transaction.remove_properties("change.data.ttl.minutes")
    program.refresh()
    for _ in range(3):
        program.pass_time(9 * DAY)
        round_of(program)
    assert change_files(program) == 2
    for _ in range(3):
        program.pass_time(4 * DAY)
        round_of(program)
    assert change_files(program) == 0


def test_a_tag_whose_numbers_are_those_of_its_parent_is_read_as_before(program: Program) -> None:
    """A program that does not know the numbers has committed to the base store, and its snapshot is tagged."""
    program.upsert(row(1))
    assert program.services.compact_tables.compact(TABLE, FULL).committed
    base = program.keyed.stores()[0]
    base.append(pa.Table.from_pylist([row(9)], schema=schema_to_pyarrow(base.schema())))
    program.rows[9] = row(9)
    tagged = base.refresh().metadata.current_snapshot_id
    assert tagged is not None
    base.manage_snapshots().create_tag(tagged, "release").commit()
    program.upsert(row(2))
    assert program.services.compact_tables.compact(TABLE, FULL).committed
    assert at(program, tagged) == [1, 2, 9]
    program.pass_time(60)
    program.refresh()
    for _ in range(3):
        round_of(program)
        program.pass_time(2 * HOUR)
    assert at(program, tagged) == [1, 2, 9]
    program.keyed.stores()[0].manage_snapshots().set_current_snapshot(snapshot_id=tagged).commit()
    program.check()


def at(program: Program, snapshot_id: int) -> list[int]:
    """What Amoro's rules read when main of the base store is at this snapshot."""
    base, change = program.keyed.stores()
    metadata = json.loads(Path(base.metadata_location.removeprefix("file://")).read_text())
    metadata["current-snapshot-id"] = metadata["refs"]["main"]["snapshot-id"] = snapshot_id
    made = Path(base.metadata_location.removeprefix("file://")).with_name("at.metadata.json")
    made.write_text(json.dumps(metadata))
    return sorted(each["id"] for each in amoro_rows(f"file://{made}", change.metadata_location))


def test_a_record_stays_when_a_request_without_an_answer_was_followed_by_nothing_to_do(program: Program) -> None:
    """The request may still land, and the manifests that it wrote belong to the record."""
    program.upsert(row(1))
    assert program.services.compact_tables.compact(TABLE, FULL).committed
    program.pass_time(60)

    def swallowed(swap: object) -> None:
        expire_changes(Catalogs(program.services.stores.catalogs.entry), TABLE)
        raise CommitStateUnknownException("gateway timeout")

    Faulty(program.services.catalogs.catalog("lake"), swallowed)
    (done,) = program.services.commit_upkeep.carry_out(TABLE, CHANGES)
    assert done.outcome is not None
    assert (done.outcome.is_nothing, done.outcome.unanswered) == (True, True)
    assert [record.record_id for record in program.services.stores.upkeep.commits(TABLE)] == [done.record.record_id if done.record else ""]
