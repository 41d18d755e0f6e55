"""The whole program on keyed tables: they are found, measured, planned, merged and committed as plain tables are."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from pyiceberg.exceptions import CommitStateUnknownException
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO
from pyiceberg.types import LongType

from compaction_pipeline.core.commit.record import RecordStatus
from compaction_pipeline.core.fragmentation.verdict import PlanReasonCode
from compaction_pipeline.core.planning.plan import PlanRequest
from compaction_pipeline.core.queue.credentials import credentials_end
from compaction_pipeline.core.queue.task import TaskStatus
from compaction_pipeline.core.tables.index import Complete, Empty, Refused
from compaction_pipeline.core.tables.keyed.tree import ROOT
from compaction_pipeline.core.work.kinds import CompactionType
from compaction_pipeline.iceberg.catalogs import load_catalog
from compaction_pipeline.keyed import KeyedTable
from compaction_pipeline.merging.reading.file_access import FileAccess
from compaction_pipeline_tests.keyed.compacted import expire
from compaction_pipeline_tests.keyed.program import CHANGE_STORE, FULL, MAJOR, TABLE, Program, merge_planned, raising
from compaction_pipeline_tests.keyed.written import BY_REGION, Keyed, row
from compaction_pipeline_tests.rest_catalog import rest_server
from compaction_pipeline_tests.services.serving import serving


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(tmp_path)


def test_a_keyed_table_is_compacted(program: Program) -> None:
    for number in range(13):
        program.upsert(row(1, f"a{number}"), row(2, f"b{number}"), row(10 + number))
    program.delete(2, 10)
    before = program.figures()
    compaction = program.services.compact_tables.compact(TABLE)
    assert [record.status for record in compaction.records] == [RecordStatus.COMMITTED], compaction.reason
    program.check()
    told = compaction.records[0].figures
    # Insert files count as data files, and change files with deletes as delete files.
    assert told.of_commit == f"{before.data_files} data files → 4, {before.equality_delete_files} delete files dropped"
    assert told.of_table == f"{before.data_files} data files → 4, {before.equality_delete_files} delete files → 0"
    figures = program.figures()
    assert (figures.equality_delete_files, figures.small_files, figures.data_files) == (0, 0, 4)
    assert not program.services.stores.tasks.tasks(TABLE, (TaskStatus.PENDING, TaskStatus.PREPARED))
    # There is nothing more to do.
    again = program.services.compact_tables.compact(TABLE)
    assert not again.records
    assert again.plan.reason.code is PlanReasonCode.NOT_FRAGMENTED


def test_a_partition_with_a_damaged_file_is_planned_once(program: Program) -> None:
    program.upsert(*(row(number) for number in range(16)))
    program.upsert(*(row(number, "new") for number in range(16)))
    damaged = min(Path(program.keyed.stores()[1].location().removeprefix("file://")).rglob("*.parquet"))
    content = damaged.read_bytes()
    damaged.write_bytes(content[: len(content) // 2])
    compaction = program.services.compact_tables.compact(TABLE, PlanRequest(force=True))
    assert (len(compaction.tasks), len({task.plan_id for task in compaction.tasks}), len(compaction.failed)) == (4, 1, 1)
    assert not [record for record in compaction.records if record.status is RecordStatus.COMMITTED]
    damaged.write_bytes(content)
    program.check()
    compaction = program.services.compact_tables.compact(TABLE, PlanRequest(force=True))
    assert [record.status for record in compaction.records] == [RecordStatus.COMMITTED], compaction.reason
    program.check()


def test_a_merge_reads_no_more_change_files_than_the_table_allows(program: Program) -> None:
    for number in range(12):
        program.upsert(row(number))
    program.allow_change_files(5)
    left = []
    for _ in range(3):
        compaction = program.services.compact_tables.compact(TABLE, PlanRequest(force=True))
        assert [record.status for record in compaction.records] == [RecordStatus.COMMITTED], compaction.reason
        program.check()
        left.append(program.figures().small_files)
    assert left == [7, 2, 0]


def test_a_transaction_with_more_change_files_than_allowed_is_told(program: Program) -> None:
    program.upsert(*(row(number) for number in range(8)))
    program.allow_change_files(2)
    compaction = program.services.compact_tables.compact(TABLE, PlanRequest(force=True))
    assert not compaction.records
    assert "raise 'self-optimizing.max-file-count' of the table" in compaction.plan.reason.text


def test_ticks_compact_a_keyed_table_by_themselves(program: Program) -> None:
    ticks = program.services.sweep_tables
    program.services.explore_catalogs.explore()
    for number in range(14):
        program.upsert(*(row(each, f"v{number}") for each in range(8)))
        ticks.sweep(None, timedelta(minutes=1))
    ticks.plan_due(program.services.tables_in_line.worth_planning(), timedelta(minutes=1))
    drained = program.services.compact_tables.carry_out({}, serving(until=lambda: False, linger=timedelta(0))).drained
    assert not drained.failed
    list(program.services.commit_due.commit())
    assert [record.status for record in program.services.read_records.records(TABLE)] == [RecordStatus.COMMITTED]
    program.check()
    assert program.figures().small_files == 0


def test_a_change_alone_moves_the_table(program: Program) -> None:
    assert isinstance(program.refresh().index.state, Empty)
    program.upsert(row(1))
    state = program.refresh().index.state
    assert isinstance(state, Complete)
    assert program.figures().data_files == 1
    assert TABLE in program.services.refresh_files.unmoved()
    program.upsert(row(2))
    assert TABLE not in program.services.refresh_files.unmoved()
    assert program.figures().data_files == 2


def test_the_change_store_is_never_compacted_alone(program: Program) -> None:
    program.upsert(row(1))
    program.services.explore_catalogs.explore()
    program.services.refresh_files.refresh(CHANGE_STORE)
    assert isinstance(program.services.stores.tables.state(CHANGE_STORE).index.state, Refused)
    # It is listed, but the page to look at first leaves it out.
    assert {overview.table for overview in program.services.read_tables.tables()} == {TABLE, CHANGE_STORE}
    assert {overview.table for overview in program.services.read_status.status().tables} == {TABLE}


def test_the_nodes_of_other_partitions_are_left_alone(tmp_path: Path) -> None:
    program = Program(tmp_path, BY_REGION, ("id", "region"))
    for number in range(14):
        program.upsert(*(row(each, f"v{number}", "eu") for each in range(8)))
    program.upsert(row(100, "x", "us"))
    program.refresh()
    plan = program.services.plan_tables.explain(TABLE)
    assert plan.reason.code is PlanReasonCode.PLANNED
    assert {task.node.partition[0].value for task in plan.tasks} == {"eu"}
    program.services.compact_tables.compact(TABLE)
    program.check()
    by_region = {node.metrics.small_files for node in program.services.stores.tables.nodes(TABLE) if node.node.partition[0].value == "us"}
    assert by_region == {1}


def test_a_node_has_a_key_with_its_tree_node(program: Program) -> None:
    program.upsert(*(row(number) for number in range(40)))
    program.refresh()
    assert {node.key for node in program.services.stores.tables.nodes(TABLE)} == {f"db.t/3-{index}" for index in range(4)}


def test_a_full_of_one_node_takes_its_partition(program: Program) -> None:
    program.upsert(*(row(number) for number in range(40)))
    program.refresh()
    one = next(iter(program.services.stores.tables.nodes(TABLE))).node
    compaction = program.services.compact_tables.compact(TABLE, PlanRequest((CompactionType.FULL,), frozenset({one}), force=True))
    assert compaction.records
    program.check()
    assert program.figures().small_files == 0
    assert all(CompactionType.FULL in node.last_done for node in program.services.stores.tables.nodes(TABLE))


def test_a_full_without_changes_drops_the_position_deletes_and_then_has_nothing_to_do(tmp_path: Path) -> None:
    program = Program(tmp_path, buckets=1)
    with program.keyed.stores()[0].transaction() as transaction:
        transaction.set_properties({"self-optimizing.target-size": "20000", "self-optimizing.fragment-ratio": "100"})
    program.upsert(*(row(number) for number in range(200)))
    program.services.compact_tables.compact(TABLE, FULL)
    for number in range(3):
        program.delete(number)
        program.services.compact_tables.compact(TABLE, MAJOR)
        # The new position deletes have those of before.
        assert (program.figures().data_files, program.figures().position_delete_files) == (1, 1)
        program.check()
    compact = program.services.compact_tables.compact
    compaction = compact(TABLE, FULL)
    assert [record.status for record in compaction.records] == [RecordStatus.COMMITTED], compaction.reason
    program.check()
    assert (program.figures().data_files, program.figures().delete_files) == (1, 0)
    again = compact(TABLE, FULL)
    assert not again.records
    assert again.plan.reason.code is PlanReasonCode.NO_GAIN
    assert again.plan.reason.text.endswith("a rewrite of its base files would gain nothing")


def test_a_partition_is_not_planned_twice(program: Program) -> None:
    for number in range(13):
        program.upsert(*(row(each, f"v{number}") for each in range(8)))
    program.refresh()
    plans = program.services.plan_tables
    first = plans.plan(TABLE)
    assert first.tasks
    program.pass_time(3600)
    for number in range(13):
        program.upsert(*(row(each, f"w{number}") for each in range(8)))
    program.refresh()
    second = plans.plan(TABLE)
    assert not second.tasks
    assert second.plan.reason.code is PlanReasonCode.FILES_IN_USE
    # A person's plan takes the place of tasks that nobody has begun.
    third = plans.plan(TABLE, FULL, unlimited=True)
    assert {task.status for task in program.services.stores.tasks.tasks(TABLE) if task.plan_id == first.tasks[0].plan_id} == {
        TaskStatus.CANCELED
    }
    assert third.tasks
    program.services.compact_tables.compact(TABLE)
    program.check()


def test_a_table_without_its_change_store_is_refused_and_not_forgotten(program: Program) -> None:
    program.upsert(row(1))
    program.refresh()
    program.keyed.catalog.rename_table("db.t_change_", "db.away")
    assert "its change store cannot be found" in (program.refresh().refusal or "")
    program.keyed.catalog.rename_table("db.away", "db.t_change_")
    assert program.refresh().refusal is None


def test_a_table_that_becomes_plain_begins_anew(program: Program) -> None:
    program.upsert(*(row(number) for number in range(40)))
    program.services.compact_tables.compact(TABLE, FULL)
    properties = program.keyed.catalog.load_table("db.t").properties
    with program.keyed.catalog.load_table("db.t").transaction() as transaction:
        transaction.remove_properties(*(key for key in properties if key.startswith(("table-format", "mixed-format"))))
    program.refresh()
    (node,) = program.services.stores.tables.nodes(TABLE)
    assert (node.node.tree, node.metrics.data_files) == (ROOT, 4)


def test_a_table_whose_change_store_is_encrypted_is_refused(program: Program) -> None:
    program.upsert(row(1))
    change = program.keyed.catalog.load_table("db.t_change_")
    assert program.refresh().refusal is None
    with change.transaction() as transaction:
        transaction.set_properties({"encryption.key-id": "k"})
    assert "in its change store" in (program.refresh().refusal or "")


def test_a_commit_without_an_answer_does_not_stop_the_table_for_ever(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(13):
        program.upsert(row(1, f"a{number}"), row(10 + number))
    program.refresh()
    program.services.plan_tables.plan(TABLE)
    merge_planned(program)
    catalog = program.services.catalogs.catalog("lake")
    with monkeypatch.context() as lost:
        lost.setattr(catalog, "commit_table", raising(CommitStateUnknownException("gateway timeout")))
        first = program.services.commit_tables.commit(TABLE)
    assert first.record is not None
    assert first.record.status is RecordStatus.UNKNOWN
    # The request never arrives. The change store's snapshot of the plan is expired meanwhile, and nobody writes to the base store.
    planned = program.keyed.stores()[1].current_snapshot()
    assert planned is not None
    program.upsert(row(1, "z"), row(99))
    expire(program.keyed.stores()[1], planned.snapshot_id)
    program.pass_time(3600)
    program.services.commit_tables.settle()
    assert program.services.read_records.records(TABLE)[0].status is RecordStatus.FAILED
    program.check()
    assert [record.status for record in program.services.compact_tables.compact(TABLE, FULL).records] == [RecordStatus.COMMITTED]
    program.check()
    assert program.figures().small_files == 0


def test_a_plan_waits_until_a_new_column_is_known(program: Program) -> None:
    for number in range(13):
        program.upsert(row(1, f"a{number}"), row(10 + number))
    program.refresh()
    for store in program.keyed.stores():
        with store.update_schema() as update:
            update.add_column("more", LongType())
    plans = program.services.plan_tables
    assert plans.plan(TABLE).plan.reason.code is PlanReasonCode.BEING_READ
    program.refresh()
    assert plans.plan(TABLE).tasks
    merge_planned(program)
    done = program.services.commit_tables.commit(TABLE)
    assert done.record is not None
    assert done.record.status is RecordStatus.COMMITTED
    assert {each["id"] for each in program.keyed.table.scan().to_arrow().to_pylist()} == set(program.rows)


def test_a_partition_is_committed_whole_when_only_some_of_its_tasks_are_asked_for(program: Program) -> None:
    for number in range(13):
        program.upsert(*(row(each, f"v{number}") for each in range(8)))
    program.refresh()
    tasks = program.services.plan_tables.plan(TABLE).tasks
    assert len(tasks) > 2
    merge_planned(program)
    done = program.services.commit_tables.commit(TABLE, [task.task_id for task in tasks[:2]])
    assert done.record is not None
    assert (done.record.status, len(done.record.committed_task_ids)) == (RecordStatus.COMMITTED, len(tasks))
    program.check()


class OneStoreIO(PyArrowFileIO):
    """Opens the files of one store only, as credentials do that a catalog vends for one table."""

    def new_input(self, location: str) -> PyArrowFile:
        if self.properties["client.store"] not in location.split("/"):
            raise PermissionError(f"403: {location} is not below {self.properties['client.store']}")
        return super().new_input(location)


def test_credentials_of_each_store_open_its_files(tmp_path: Path) -> None:
    sql = Keyed(tmp_path / "sql").catalog
    with rest_server(sql) as server:
        server.config_of = {name: {"client.store": name, "py-io-impl": f"{__name__}.OneStoreIO"} for name in ("t", "t_change_")}
        opened = {"type": "rest", "uri": server.uri, "credential": "id:secret", "oauth2-server-uri": f"{server.uri}/v1/oauth/tokens"}
        program = Program(tmp_path, catalog=opened)
        program.keyed.catalog, program.keyed.table = sql, KeyedTable.open(sql, "db.t")
        for number in range(13):
            program.upsert(row(1, f"a{number}"), row(10 + number))
        compaction = program.services.compact_tables.compact(TABLE)
        assert [record.status for record in compaction.records] == [RecordStatus.COMMITTED], compaction.reason
        program.check()
        # With those of one store, the other one's files stay closed.
        with pytest.raises(PermissionError, match="403"):
            FileAccess({"client.store": "t", "py-io-impl": f"{__name__}.OneStoreIO"}, "").size("file:///wh/t_change_/f.parquet")
        rows = KeyedTable.open(load_catalog("lake", **opened), "db.t").scan().to_arrow().to_pylist()
    assert {each["id"] for each in rows} == set(program.rows)


def test_credentials_end_when_those_of_the_change_store_do() -> None:
    assert credentials_end({"change-store.s3.session-token-expires-at-ms": "1000", "s3.session-token-expires-at-ms": "2000"}) == datetime(
        1970, 1, 1, 0, 0, 1, tzinfo=timezone.utc
    )
