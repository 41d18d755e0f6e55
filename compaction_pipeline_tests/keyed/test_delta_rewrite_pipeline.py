"""The whole program on keyed tables with delta-rewrite: a MINOR merges change files with each other."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from pyiceberg.exceptions import CommitStateUnknownException
from pyiceberg.types import StringType

from compaction_pipeline.core.commit.record import RecordStatus
from compaction_pipeline.core.errors import StorageUnavailable
from compaction_pipeline.core.fragmentation.verdict import PlanReasonCode
from compaction_pipeline.core.planning.plan import PlanRequest
from compaction_pipeline.core.queue.task import TaskStatus
from compaction_pipeline.core.tables.data_file import OutputFile
from compaction_pipeline.core.work.kinds import CompactionType, TaskAction
from compaction_pipeline.iceberg.keyed.replace_changes import replace_changes
from compaction_pipeline.iceberg.keyed.stores import load_stores
from compaction_pipeline.iceberg.rewrite_files import Transaction
from compaction_pipeline_tests.keyed.program import (
    MAJOR,
    MINOR,
    TABLE,
    Program,
    change_files,
    files_of_change_store,
    merge_planned,
    raising,
)
from compaction_pipeline_tests.keyed.written import BY_REGION, row
from compaction_pipeline_tests.reference_reader import bag_difference
from compaction_pipeline_tests.services.serving import serving


def copied(output: OutputFile) -> OutputFile:
    """A copy of the file with a name that no task has."""
    path = Path(output.path.removeprefix("file://"))
    node, kind = path.name.split("-")[:2]
    copy = path.parent / f"{node}-{kind}-0-00000-7-copy-00001.parquet"
    copy.write_bytes(path.read_bytes())
    return replace(output, path=f"file://{copy}")


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(tmp_path, delta_rewrite=True)


def test_a_minor_merges_change_files_and_leaves_the_base_store_alone(program: Program) -> None:
    for number in range(13):
        program.upsert(row(1, f"a{number}"), row(2, f"b{number}"), row(10 + number))
    program.delete(2, 10)
    before = change_files(program)
    compaction = program.services.compact_tables.compact(TABLE)
    (record,) = compaction.records
    assert (record.status, record.types) == (RecordStatus.COMMITTED, (CompactionType.MINOR,)), compaction.reason
    program.check()
    assert program.keyed.stores()[0].current_snapshot() is None
    assert change_files(program) < before / 3
    figures = program.figures()
    assert (figures.data_files + figures.delete_files) == change_files(program)
    # The record tells what readers open.
    told = record.figures
    assert (told.files_after + told.delete_files_after, told.files_before + told.delete_files_before) == (change_files(program), before)
    assert told.delete_files_after == figures.delete_files
    assert told.files_after - told.files_before == told.output_files - told.input_files < 0
    assert told.delete_files_after - told.delete_files_before == told.delete_files_added - told.delete_files_dropped < 0
    again = program.services.compact_tables.compact(TABLE)
    assert (again.records, again.plan.reason.code) == ((), PlanReasonCode.NOT_FRAGMENTED)


def test_ticks_merge_the_change_files_of_a_busy_table(program: Program) -> None:
    ticks = program.services.sweep_tables
    program.services.explore_catalogs.explore()
    opened = []
    for number in range(60):
        program.upsert(*(row(each, f"v{number}") for each in range(number, number + 8)))
        if number % 12 == 11:
            program.pass_time(400)
            ticks.sweep(None, timedelta(minutes=1))
            ticks.plan_due(program.services.tables_in_line.worth_planning(), timedelta(minutes=1))
            assert not program.services.compact_tables.carry_out({}, serving(until=lambda: False, linger=timedelta(0))).drained.failed
            program.pass_time(400)
            list(program.services.commit_due.commit())
            program.check()
            opened.append(program.figures().files)
    tasks = program.services.stores.tasks.tasks(TABLE)
    assert {(task.status, task.work.action) for task in tasks} == {(TaskStatus.COMMITTED, TaskAction.REWRITE_CHANGES)}
    # A merged file is taken again only by as many new bytes, so some stay beside the newest one.
    assert max(opened) <= 4 * 2 * 4
    # Each node of four has had an insert file and a delete file of nearly every commit.
    assert sum(len(task.work.inputs) for task in tasks) > 300


def test_a_major_moves_merged_changes_into_the_base_store(program: Program) -> None:
    for number in range(13):
        program.upsert(row(1, f"a{number}"), row(10 + number))
    program.services.compact_tables.compact(TABLE, MINOR)
    program.upsert(row(1, "late"))
    compaction = program.services.compact_tables.compact(TABLE, MAJOR)
    assert [record.status for record in compaction.records] == [RecordStatus.COMMITTED], compaction.reason
    program.check()
    assert program.figures().small_files == 0
    # Its changes are in the base store now, so there is nothing to merge with each other.
    assert not program.services.compact_tables.compact(TABLE, MINOR).records


def test_a_minor_of_one_node_leaves_the_others_alone(program: Program) -> None:
    for number in range(6):
        program.upsert(*(row(each, f"v{number}") for each in range(8)))
    program.refresh()
    nodes = {state.node: state.metrics.files for state in program.services.stores.tables.nodes(TABLE)}
    chosen = next(iter(nodes))
    compaction = program.services.compact_tables.compact(TABLE, PlanRequest((CompactionType.MINOR,), frozenset([chosen]), force=True))
    assert [record.status for record in compaction.records] == [RecordStatus.COMMITTED], compaction.reason
    program.check()
    program.refresh()
    after = {state.node: state.metrics.files for state in program.services.stores.tables.nodes(TABLE)}
    assert after == {**nodes, chosen: 2}
    assert nodes[chosen] > 8


def test_tasks_of_both_stores_are_committed_one_store_after_the_other(tmp_path: Path) -> None:
    program = Program(tmp_path, BY_REGION, ("id", "region"), delta_rewrite=True)
    for number in range(4):
        program.keyed.write(*(("INSERT", row(each + 8 * number, "v", region)) for each in range(8) for region in ("eu", "us")))
    program.refresh()
    nodes = [state.node for state in program.services.stores.tables.nodes(TABLE)]
    for region, kind in (("eu", CompactionType.MINOR), ("us", CompactionType.MAJOR)):
        chosen = frozenset(node for node in nodes if node.partition[0].value == region)
        program.services.plan_tables.plan(TABLE, PlanRequest((kind,), chosen, force=True), unlimited=True)
    merge_planned(program)
    commit = program.services.commit_tables.commit(TABLE)
    assert commit.record is not None
    assert [(one.status, one.types) for one in (*commit.settled, commit.record)] == [
        (RecordStatus.COMMITTED, (CompactionType.MINOR,)),
        (RecordStatus.COMMITTED, (CompactionType.MAJOR,)),
    ]
    rows = [row(number, "v", region) for number in range(32) for region in ("eu", "us")]
    program.keyed.check(rows)
    assert program.services.commit_tables.commit(TABLE).record is None


def test_a_merge_of_change_files_that_another_program_removed_is_a_conflict(program: Program) -> None:
    for number in range(4):
        program.upsert(*(row(each, f"v{number}") for each in range(8)))
    program.refresh()
    program.services.plan_tables.plan(TABLE, MINOR, unlimited=True)
    merge_planned(program)
    before = files_of_change_store(program)
    planned = program.services.stores.tasks.tasks(TABLE, (TaskStatus.PREPARED,))
    taken = planned[0].work.inputs
    stores = load_stores(program.keyed.catalog, ("db", "t"))
    outputs = planned[0].result.outputs if planned[0].result is not None else ()
    # Another process commits the same merge first, under no record.
    copies = [copied(output) for output in outputs]
    replace_changes(stores, taken, copies, lambda seconds: None)
    record = program.services.commit_tables.commit(TABLE).record
    assert record is not None
    assert list(record.conflicts) == [planned[0].task_id]
    assert "is no longer live: another merge took it" in record.conflicts[planned[0].task_id]
    program.check()
    assert len(record.committed_task_ids) == len(planned) - 1
    # Nothing of the merge that came too late stays on storage.
    gone = {output.path for output in outputs}
    assert gone & before
    assert not gone & files_of_change_store(program)


@pytest.mark.parametrize("arrives", [True, False])
def test_a_commit_to_the_change_store_without_an_answer_is_settled(
    program: Program, arrives: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(4):
        program.upsert(*(row(each, f"v{number}") for each in range(8)))
    program.refresh()
    program.services.plan_tables.plan(TABLE, MINOR, unlimited=True)
    merge_planned(program)
    real = Transaction.commit

    def lost(self: Transaction) -> None:
        if arrives:
            real(self)
        raise CommitStateUnknownException("no answer")

    with monkeypatch.context() as patched:
        patched.setattr(Transaction, "commit", lost)
        patched.setattr("compaction_pipeline.iceberg.commit.compaction.has_landed", raising(StorageUnavailable("no look")))
        record = program.services.commit_tables.commit(TABLE).record
    assert record is not None
    assert record.status is RecordStatus.UNKNOWN
    program.check()
    (settled,) = program.services.commit_tables.settle(TABLE)
    assert (settled.status, len(settled.committed_task_ids)) == (RecordStatus.COMMITTED, len(settled.task_ids))
    program.check()
    assert change_files(program) <= 8
    assert program.services.commit_tables.commit(TABLE).record is None


@pytest.mark.parametrize("change", ["add", "drop", "rename"])
def test_columns_that_change_between_plan_and_commit_lose_no_value(program: Program, change: str) -> None:
    for number in range(4):
        program.upsert(*(row(each, f"v{number}") for each in range(8)))
    program.refresh()
    program.services.plan_tables.plan(TABLE, MINOR, unlimited=True)
    for store in program.keyed.stores():
        with store.update_schema() as update:
            if change == "add":
                update.add_column("late", StringType())
            elif change == "drop":
                update.delete_column("score")
            else:
                update.rename_column("v", "text")
    before = program.keyed.table.scan().to_arrow().to_pylist()
    merge_planned(program)
    record = program.services.commit_tables.commit(TABLE).record
    assert record is not None
    assert record.status is RecordStatus.COMMITTED, record.reason
    assert bag_difference(program.keyed.table.scan().to_arrow().to_pylist(), before) == ""
    assert {each["text" if change == "rename" else "v"] for each in before} == {"v3"}
    # A plan of the new columns goes on with what was merged.
    program.refresh()
    compaction = program.services.compact_tables.compact(TABLE, MAJOR)
    assert [one.status for one in compaction.records] == [RecordStatus.COMMITTED], compaction.reason
    assert bag_difference(program.keyed.table.scan().to_arrow().to_pylist(), before) == ""


@pytest.mark.parametrize("is_on", [True, False])
def test_files_that_nobody_needs_are_found_in_the_change_store(is_on: bool, program: Program) -> None:
    for number in range(4):
        program.upsert(*(row(each, f"v{number}") for each in range(8)))
    program.refresh()
    program.services.plan_tables.plan(TABLE, MINOR, unlimited=True)
    merge_planned(program)
    tasks = program.services.stores.tasks.tasks(TABLE, (TaskStatus.PREPARED,))
    outputs = {output.path for task in tasks if task.result is not None for output in task.result.outputs}
    if not is_on:
        # What was merged before is still there, and live files of the change store are still live.
        with program.keyed.stores()[0].transaction() as transaction:
            transaction.set_properties({"compaction.delta-rewrite.enabled": "false"})
    committer = program.services.committer
    found = committer.leftovers(TABLE, [task.task_id for task in tasks])
    assert set(found) == outputs
    # A plan of another table must not delete them, and live files stay.
    live = [str(path) for path in program.keyed.stores()[1].inspect.data_files()["file_path"].to_pylist()]
    assert committer.delete_orphans(TABLE, "another-uuid", found) == ()
    assert set(committer.delete_orphans(TABLE, tasks[0].table_uuid, [*found, *live])) == outputs
    program.check()


def test_a_table_that_amoro_may_compact_is_not_touched(program: Program) -> None:
    for _ in range(13):
        program.upsert(row(1))
    with program.keyed.stores()[0].transaction() as transaction:
        transaction.set_properties({"self-optimizing.enabled": "true"})
    compaction = program.services.compact_tables.compact(TABLE)
    assert (compaction.records, compaction.plan.reason.code) == ((), PlanReasonCode.INVALID_PROPERTY)
    assert "'self-optimizing.enabled' is true but must be false" in compaction.plan.reason.text


def test_our_own_switch_stops_the_table(program: Program) -> None:
    for _ in range(13):
        program.upsert(row(1))
    with program.keyed.stores()[0].transaction() as transaction:
        transaction.set_properties({"compaction.enabled": "false"})
    assert program.services.compact_tables.compact(TABLE).plan.reason.text.startswith("'compaction.enabled' is false")
