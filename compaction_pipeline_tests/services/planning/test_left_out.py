"""`self-optimizing.filter` over real tables: it says which partitions are compacted, and never which rows there are."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record

from compaction_pipeline.core.fragmentation.health import HealthStatus
from compaction_pipeline.core.fragmentation.verdict import PlanReasonCode
from compaction_pipeline.core.planning.plan import PlanRequest
from compaction_pipeline.core.queue.task import TaskStatus
from compaction_pipeline.core.tables.data_file import FileContent
from compaction_pipeline.core.work.kinds import CompactionType
from compaction_pipeline.demo.row_delta import row_delta
from compaction_pipeline_tests.iceberg.lake import LakeTable
from compaction_pipeline_tests.keyed.program import TABLE, Program
from compaction_pipeline_tests.keyed.written import row
from compaction_pipeline_tests.services.house import House

_BY_NAME = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "name"))
_KEY = "self-optimizing.filter"


def two_partitions(house: House, condition: str, files: int = 12) -> LakeTable:
    """A table with small files in the partitions `a` and `b`, and this filter. The state database knows it."""
    table = house.lake.table("t", spec=_BY_NAME, properties={_KEY: condition})
    write(table, *range(files))
    house.services.explore_catalogs.explore()
    house.services.one_table.refresh(table.identifier)
    return table


def write(table: LakeTable, *ids: int) -> None:
    """One file in each partition for each id."""
    row_delta(table.table, [table.data_file([{"id": one, "name": name}], Record(name)) for one in ids for name in "ab"])


def set_filter(table: LakeTable, condition: str) -> None:
    table.table.refresh()
    with table.table.transaction() as transaction:
        transaction.set_properties({_KEY: condition})


def files_of(table: LakeTable) -> dict[str, int]:
    counted = dict.fromkeys("ab", 0)
    for file in table.files():
        if file.content is FileContent.DATA:
            counted[str(file.partition[0].value)] += 1
    return counted


def test_only_partitions_that_the_filter_lets_in_are_compacted(house: House) -> None:
    table = two_partitions(house, "name = 'a'")
    before = sorted(map(repr, table.rows()))
    compaction = house.services.compact_tables.compact(table.identifier)
    assert [str(task.work.node) for task in compaction.tasks] == ["name=a"]
    assert files_of(table) == {"a": 1, "b": 12}
    assert sorted(map(repr, table.rows())) == before
    # The figures after the plan are those of the whole table.
    assert (compaction.plan.predicted_files, compaction.plan.predicted_delete_files) == (13, 0)
    told = {str(node.node): node for node in house.services.read_tables.table(table.identifier).nodes}
    assert told["name=b"].health is HealthStatus.HEALTHY
    assert told["name=b"].reason == "'self-optimizing.filter' leaves it out: name = 'a'"


def test_a_plan_of_nodes_that_are_all_left_out_says_so(house: House) -> None:
    table = two_partitions(house, "name > 'c'")
    for request in (None, PlanRequest((CompactionType.MAJOR,), force=True)):
        compaction = house.services.compact_tables.compact(table.identifier, request)
        assert (compaction.tasks, compaction.plan.reason.code) == ((), PlanReasonCode.DISABLED)
        assert "'self-optimizing.filter' leaves it out: name > 'c'" in compaction.plan.reason.text
    assert files_of(table) == {"a": 12, "b": 12}


def test_a_person_who_names_a_partition_and_a_type_gets_it(house: House) -> None:
    table = two_partitions(house, "name = 'a'")
    [left_out] = [node.node for node in house.services.stores.tables.nodes(table.identifier) if str(node.node) == "name=b"]
    only = frozenset({left_out})
    unforced = house.services.compact_tables.compact(table.identifier, PlanRequest(nodes=only))
    assert (unforced.tasks, unforced.plan.reason.code) == ((), PlanReasonCode.DISABLED)
    house.services.compact_tables.compact(table.identifier, PlanRequest((CompactionType.MINOR,), only, force=True))
    assert files_of(table) == {"a": 12, "b": 1}


def test_ticks_read_nothing_of_what_the_filter_leaves_out_until_it_changes(house: House) -> None:
    table = two_partitions(house, "name = 'c'")
    plans, ticks = house.services.plan_tables, house.services.sweep_tables
    with house.services.stores.files.for_a_while(files=lambda *_: pytest.fail("files were read for nothing")):
        assert plans.plan(table.identifier).plan.reason.code is PlanReasonCode.DISABLED
        house.pass_time(7 * 86_400)
        assert house.services.tables_in_line.worth_planning() == []
        write(table, 100)
        ticks.sweep(None, timedelta(minutes=1))
        ticks.plan_due(house.services.tables_in_line.worth_planning(), timedelta(minutes=1))
        assert house.services.tables_in_line.worth_planning() == []
    assert {node.health for node in house.services.read_tables.table(table.identifier).nodes} == {HealthStatus.HEALTHY}
    set_filter(table, "name = 'b'")
    ticks.sweep(None, timedelta(minutes=1))
    ticks.plan_due(house.services.tables_in_line.worth_planning(), timedelta(minutes=1))
    assert [str(task.work.node) for task in house.services.stores.tasks.tasks(table.identifier)] == ["name=b"]


def test_checks_do_not_ask_for_what_the_owner_leaves_out(house: House) -> None:
    table = two_partitions(house, "name = 'c'")
    assert not house.services.plan_tables.due_now(table.identifier).tasks
    house.services.plan_tables.plan(table.identifier)
    house.pass_time(86_400)
    for result in house.services.judge_compaction.judge():
        assert result.passed, result


def test_a_filter_that_is_not_understood_stops_the_table_and_is_told(house: House) -> None:
    table = two_partitions(house, "name LIKE 'a%'")
    found = house.services.read_tables.table(table.identifier).overview
    assert found.health is HealthStatus.WAITING
    assert f"'{_KEY}' is \"name LIKE 'a%'\" but must be" in found.reason
    compaction = house.services.compact_tables.compact(table.identifier)
    assert (compaction.tasks, compaction.plan.reason.code) == ((), PlanReasonCode.INVALID_PROPERTY)
    assert "LIKE is not supported" in compaction.plan.reason.text
    assert house.services.plan_tables.due_now(table.identifier).reason.code is PlanReasonCode.INVALID_PROPERTY
    set_filter(table, "name >= 'a' AND name < 'b'")
    house.services.compact_tables.compact(table.identifier)
    assert files_of(table) == {"a": 1, "b": 12}
    house.services.one_table.look_again(table.identifier)
    assert house.services.read_tables.table(table.identifier).overview.health is HealthStatus.HEALTHY


def test_a_filter_of_the_catalog_counts_for_its_tables(tmp_path: Path) -> None:
    sql = {"type": "sql", "uri": f"sqlite:///{tmp_path}/c.db", "warehouse": f"file://{tmp_path}/wh", "init_catalog_tables": "true"}
    house = House(tmp_path, properties={**sql, f"table.{_KEY}": "name in ('b', 'c')"})
    table = house.lake.table("t", spec=_BY_NAME)
    write(table, *range(12))
    house.services.explore_catalogs.explore()
    house.services.compact_tables.compact(table.identifier)
    assert files_of(table) == {"a": 12, "b": 1}


def test_a_delete_of_every_partition_stays_while_a_partition_is_left_out(house: House) -> None:
    """An equality delete of the unpartitioned spec reaches rows of both partitions. Merging one of them must not drop it."""
    table = house.lake.table("t", properties={_KEY: "name = 'a'"})
    with table.table.update_spec() as update:
        update.add_identity("name")
    write(table, *range(12))
    table.delete_ids(3, spec_id=0)
    before = sorted(map(repr, table.rows()))
    house.services.explore_catalogs.explore()
    house.services.compact_tables.compact(table.identifier)
    assert files_of(table) == {"a": 1, "b": 12}
    assert len(table.paths(FileContent.EQUALITY_DELETES)) == 1
    assert sorted(map(repr, table.rows())) == before
    set_filter(table, "name in ('a', 'b')")
    house.services.compact_tables.compact(table.identifier, PlanRequest(force=True))
    assert files_of(table) == {"a": 1, "b": 1}
    assert not table.paths(FileContent.EQUALITY_DELETES)
    assert sorted(map(repr, table.rows())) == before


def test_ticks_leave_partitions_out_where_a_delete_reaches_every_partition(house: House) -> None:
    """Such a delete has every node planned together. A tick looks only at nodes that changed, and leaves out others too."""
    table = house.lake.table("t", properties={_KEY: "name = 'a'"})
    with table.table.update_spec() as update:
        update.add_identity("name")
    write(table, *range(12))
    table.delete_ids(3, spec_id=0)
    ticks = house.services.sweep_tables
    house.services.explore_catalogs.explore()
    house.services.compact_tables.compact(table.identifier)
    assert files_of(table) == {"a": 1, "b": 12}
    table.table.refresh()
    row_delta(table.table, [table.data_file([{"id": one, "name": "a"}], Record("a")) for one in range(20, 32)])
    for _ in range(2):
        house.pass_time(3_600)
        ticks.sweep(None, timedelta(minutes=1))
        ticks.plan_due(house.services.tables_in_line.worth_planning(), timedelta(minutes=1))
        tasks = house.services.stores.tasks.tasks(table.identifier)
        assert {str(task.work.node) for task in tasks} == {"name=a"}
        told = {str(node.node): node.reason for node in house.services.read_tables.table(table.identifier).nodes}
        assert told["name=b"] == "'self-optimizing.filter' leaves it out: name = 'a'"
    assert len([task for task in tasks if task.status is TaskStatus.PENDING]) == 1


def test_partitions_of_a_keyed_table_are_left_out_too(tmp_path: Path) -> None:
    program = Program(tmp_path, PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "region")), key=("id", "region"))
    with program.keyed.stores()[0].transaction() as transaction:
        transaction.set_properties({_KEY: "region = 'a'"})
    for number in range(14):
        program.upsert(row(1, f"v{number}", "a"), row(2, f"v{number}", "b"))
    compaction = program.services.compact_tables.compact(TABLE)
    assert {task.work.node.partition[0].value for task in compaction.tasks} == {"a"}
    program.check()
    told = {node.node.partition[0].value: node.reason for node in program.services.read_tables.table(TABLE).nodes}
    assert told["b"] == "'self-optimizing.filter' leaves it out: region = 'a'"
    named = frozenset(node.node for node in program.services.stores.tables.nodes(TABLE) if node.node.partition[0].value == "b")
    forced = program.services.compact_tables.compact(TABLE, PlanRequest((CompactionType.MAJOR,), named, force=True))
    assert {task.work.node.partition[0].value for task in forced.tasks} == {"b"}
    program.check()
