"""What a commit of changes to the base store promises: no reader sees another row, whatever happens to both stores meanwhile."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pyarrow as pa
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.table.snapshots import Operation
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import StringType

from compaction_pipeline.core.commit.ports import CommitState
from compaction_pipeline.core.errors import TableRefused
from compaction_pipeline.core.queue.task import CompactionTask
from compaction_pipeline.core.tables.data_file import FileContent
from compaction_pipeline.core.tables.keyed.key_hash import key_hash
from compaction_pipeline.core.tables.keyed.tree import DataTreeNode
from compaction_pipeline.core.tables.node import PartitionValue
from compaction_pipeline.core.tables.table import CatalogEntry
from compaction_pipeline.core.work.kinds import TaskAction
from compaction_pipeline.demo.row_delta import row_delta
from compaction_pipeline.demo.write_files import write_parquet_file
from compaction_pipeline.iceberg.catalogs.open_catalogs import Catalogs
from compaction_pipeline.iceberg.commit.committer import IcebergCommitter
from compaction_pipeline.iceberg.rewrite_files import CommitStep, SnapshotChange, Transaction
from compaction_pipeline_tests.keyed.base_commits import TABLE, BaseCommits, span_of, with_span
from compaction_pipeline_tests.keyed.change_logs import row
from compaction_pipeline_tests.reference_reader import Row
from compaction_pipeline_tests.rest_catalog import rest_server
from compaction_pipeline_tests.works import as_kind

OTHER = (PartitionValue("region", "string", "mars"),)
BY_REGION = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "region"), spec_id=0)


@pytest.fixture
def log(tmp_path: Path) -> BaseCommits:
    return BaseCommits(tmp_path)


@pytest.fixture
def regions(tmp_path: Path) -> BaseCommits:
    return BaseCommits(tmp_path, BY_REGION)


def filled(log: BaseCommits) -> list[Row]:
    """Base rows 1 to 4 in two files, and changes that update 1, delete 3 and insert 5. Returns the rows that live."""
    log.commit(log.changes(1, "I", 0, [(row(0), 1)]))
    log.commit_base(
        log.base_rows(1, 1, [row(1), row(2)], name="1-B-1-00000-0-1-one"),
        log.base_rows(1, 1, [row(3), row(4)], name="1-B-1-00000-0-1-two"),
        sequences={"": 1},
    )
    log.commit(log.changes(1, "ED", 0, [(row(1), 1), (row(3), 3)]), log.changes(1, "I", 0, [(row(1, v="new"), 2), (row(5), 4)]))
    expected = [row(1, v="new"), row(2), row(4), row(5)]
    log.check(expected)
    return expected


def on(step: str, act: Callable[[], Any]) -> Callable[[str], None]:
    """Act at the first time that a step is reached."""
    done: list[str] = []

    def reached(now: str) -> None:
        if now == step and not done:
            done.append(now)
            act()

    return reached


def racing(log: BaseCommits, on_step: Callable[[str], None]) -> IcebergCommitter:
    return IcebergCommitter(log.catalogs, on_step=on_step, sleep=lambda seconds: None)


def fault(log: BaseCommits, *plans: Callable[[Callable[[], Any]], Any]) -> None:
    """Cause faults in the first commits that the product's catalog is asked for."""
    catalog = log.catalogs.catalog("lake")
    real, left = catalog.commit_table, list(plans)

    def commit_table(table: Any, requirements: Any, updates: Any) -> Any:
        return left.pop(0)(lambda: real(table, requirements, updates)) if left else real(table, requirements, updates)

    # The catalog is this test's own.
    catalog.commit_table = commit_table


def answer_lost(swap: Callable[[], Any]) -> Any:
    swap()
    raise ConnectionResetError("peer went away")


def request_lost(swap: Callable[[], Any]) -> Any:
    raise CommitStateUnknownException("gateway timeout")


# ---- what is committed


def test_changes_move_into_the_base_store_and_no_reader_sees_another_row(log: BaseCommits) -> None:
    expected = filled(log)
    (task,) = log.plan()
    outcome = log.commit_tasks(task)
    assert (outcome.state, outcome.committed, outcome.conflicts) == (CommitState.COMMITTED, (task.task_id,), {})
    log.check(expected)
    assert log.sequences() == {(): log.sequence}
    assert task.result is not None
    assert log.base_paths() == [task.result.outputs[0].path]
    assert (outcome.figures.files_before, outcome.figures.files_after, outcome.figures.input_files, outcome.figures.output_files) == (
        2,
        1,
        2,
        1,
    )
    # The changes are done: further ones apply to what was written.
    log.commit(log.changes(1, "ED", 0, [(row(2), 1)]))
    log.check([values for values in expected if values["id"] != 2])


def test_the_commit_is_one_overwrite_snapshot_with_flags_and_its_statistics(log: BaseCommits) -> None:
    filled(log)
    before = log.base.refresh().metadata
    log.commit_tasks(*log.plan(mark=[log.base_paths()[1]]))
    metadata = log.base.refresh().metadata
    (snapshot,) = [one for one in metadata.snapshots if before.snapshot_by_id(one.snapshot_id) is None]
    assert snapshot.summary is not None
    assert snapshot.summary.operation is Operation.OVERWRITE
    flags = {key: value for key, value in snapshot.summary.additional_properties.items() if key.endswith(".exist")}
    assert flags == {"optimized-sequence.exist": "true", "base-optimized-time.exist": "true"}
    *older, statistics = metadata.statistics
    assert older == before.statistics, "the statistics of older snapshots stay"
    assert statistics.snapshot_id == snapshot.snapshot_id
    assert statistics.statistics_path == f"{log.base.location()}/data/puffin/{snapshot.snapshot_id}-record-1.puffin"
    about = [(blob.type, blob.snapshot_id, blob.sequence_number, blob.fields) for blob in statistics.blob_metadata]
    kinds = ("optimized-sequence", "base-optimized-time")
    assert about == [(kind, snapshot.snapshot_id, snapshot.sequence_number, []) for kind in kinds]
    content = log.base.io.new_input(statistics.statistics_path).open().read()
    assert len(content) == statistics.file_size_in_bytes
    assert b'{"":2}' in content
    assert json.dumps({"": snapshot.timestamp_ms}).replace(" ", "").encode() in content


def test_marked_files_stay_and_get_position_deletes(log: BaseCommits) -> None:
    expected = filled(log)
    one, two = log.base_paths()
    (task,) = log.plan(mark=[two])
    outcome = log.commit_tasks(task)
    assert outcome.state is CommitState.COMMITTED
    assert two in log.base_paths()
    assert one not in log.base_paths()
    assert outcome.figures.delete_files_added == 1
    log.check(expected)


def test_new_positions_of_a_marked_file_take_the_place_of_older_ones(log: BaseCommits) -> None:
    filled(log)
    one, two = log.base_paths()
    log.delete_rows(two, 1)
    (task,) = log.plan(mark=[one, two])
    assert len(task.work.converts) == 1
    # A delete of another writer lands after the plan. Nobody has read it, so it stays.
    log.delete_rows(one, 1)
    expected = log.judged()
    outcome = log.commit_tasks(task)
    assert outcome.state is CommitState.COMMITTED
    assert (outcome.figures.delete_files_dropped, outcome.figures.delete_files_after) == (1, 3)
    log.check(expected)


def test_older_positions_stay_where_the_new_ones_may_lack_them(log: BaseCommits) -> None:
    filled(log)
    log.delete_rows(log.base_paths()[1], 1)
    expected = log.judged()
    log.repeats_positions = False
    (task,) = log.plan(mark=log.base_paths())
    assert task.work.converts
    outcome = log.commit_tasks(task)
    assert (outcome.state, outcome.figures.delete_files_dropped) == (CommitState.COMMITTED, 0)
    log.check(expected)


def test_new_positions_that_are_fewer_than_all_older_ones_replace_none(log: BaseCommits) -> None:
    log.commit(log.changes(1, "I", 0, [(row(9), 1)]))
    log.commit_base(log.base_rows(1, 1, [row(number) for number in range(6)]), sequences={"": 1})
    (path,) = log.base_paths()
    for position in (1, 2):
        log.delete_rows(path, position)
    log.commit(log.changes(1, "ED", 0, [(row(3), 1), (row(4), 2)]))
    expected = log.judged()
    # There are as many as in both older files together, and more than in each of them.
    log.repeats_positions = False
    outcome = log.commit_tasks(*log.plan(mark=[path]))
    assert (outcome.state, outcome.figures.delete_files_dropped) == (CommitState.COMMITTED, 0)
    log.check(expected)


@pytest.mark.parametrize("how", ["rewritten", "marked", "alone"])
@pytest.mark.parametrize("act", ["removed", "rolled back"])
def test_a_position_delete_that_is_taken_back_is_a_conflict(how: str, act: str, log: BaseCommits) -> None:
    log.commit(log.changes(1, "I", 0, [(row(9), 1)]))
    log.commit_base(log.base_rows(1, 1, [row(number) for number in range(6)]), sequences={"": 1})
    before = log.base.refresh().metadata.current_snapshot_id
    assert before is not None
    log.delete_rows(log.base_paths()[0], 1)
    if how != "alone":
        log.commit(log.changes(1, "ED", 0, [(row(4), 1)]))
    tasks = log.plan(base_alone=how == "alone", mark=log.base_paths() if how == "marked" else ())
    if act == "removed":
        change = Transaction(log.base.refresh())
        change.stage(SnapshotChange(Operation.OVERWRITE, [], [file for file in log.base_files() if not file.is_data]))
        change.commit()
    else:
        with log.base.refresh().manage_snapshots() as manage:
            manage.rollback_to_snapshot(before)
    expected = log.judged()
    assert 1 in {each["id"] for each in expected}
    (reason,) = log.commit_tasks(*tasks).conflicts.values()
    assert "which is no longer live" in reason
    log.check(expected)


def test_delete_files_that_only_applied_to_rewritten_files_go_and_others_stay(log: BaseCommits) -> None:
    filled(log)
    one, two = log.base_paths()
    log.commit_base(deleted={one: [1]}, sequences={"": 1})
    # It names two data files, so the new positions of one of them cannot take its place.
    log.commit_base(deleted={one: [1], two: [1]}, sequences={"": 1})
    expected = [row(1, v="new"), row(5)]
    log.check(expected)
    outcome = log.commit_tasks(*log.plan(mark=[two]))
    assert (outcome.state, outcome.figures.delete_files_dropped) == (CommitState.COMMITTED, 1)
    assert (outcome.figures.delete_files_before, outcome.figures.delete_files_after) == (2, 2)
    log.check(expected)


def test_the_first_changes_go_into_an_empty_base_store(log: BaseCommits) -> None:
    log.commit(log.changes(1, "I", 0, [(row(1), 1), (row(2), 2)]), log.changes(1, "ED", 0, [(row(2), 3)]))
    outcome = log.commit_tasks(*log.plan())
    assert outcome.state is CommitState.COMMITTED
    log.check([row(1)])
    assert log.sequences() == {(): 1}
    again = log.plan()
    assert again == []


def test_changes_without_a_living_row_only_move_the_sequence(log: BaseCommits) -> None:
    log.commit(log.changes(1, "I", 0, [(row(1), 1)]), log.changes(1, "ED", 0, [(row(1), 2)]))
    (task,) = log.plan()
    assert task.result is not None
    assert task.result.outputs == ()
    fault(log, answer_lost)
    assert log.commit_tasks(task).committed == (task.task_id,)
    assert log.committer.settle(TABLE, "record-1", [task]).committed == (task.task_id,)
    assert log.sequences() == {(): 1}
    log.check([])


def test_a_group_that_only_removes_files_is_found_when_its_record_is_settled(log: BaseCommits) -> None:
    log.commit(log.changes(1, "I", 0, [(row(0), 1)]))
    log.commit_base(log.base_rows(1, 1, [row(1)]), sequences={"": 1})
    log.commit(log.changes(1, "ED", 0, [(row(1), 1)]))
    (task,) = log.plan()
    assert task.result is not None
    assert (task.result.outputs, len(task.work.rewritten)) == ((), 1)
    assert log.commit_tasks(task).committed == (task.task_id,)
    assert log.committer.settle(TABLE, "record-1", [task]).committed == (task.task_id,)
    log.check([])


def test_two_groups_without_files_are_told_apart_when_a_record_is_settled(regions: BaseCommits) -> None:
    log = regions
    pair = [(row(1, "eu"), 1)], [(row(1, "eu"), 2)]
    log.commit(log.changes(1, "I", 0, pair[0]), log.changes(1, "ED", 0, pair[1]))
    log.commit(log.changes(1, "I", 0, [(row(1, "us"), 1)]), log.changes(1, "ED", 0, [(row(1, "us"), 2)]))
    first, second = log.plan()
    assert log.commit_tasks(first).committed == (first.task_id,)
    settled = log.committer.settle(TABLE, "record-1", [first, second])
    assert (settled.committed, list(settled.conflicts)) == ((first.task_id,), [second.task_id])


def test_deletes_above_the_cut_reach_the_rows_that_were_merged(log: BaseCommits) -> None:
    log.commit(log.changes(1, "I", 0, [(row(1), 1), (row(2), 2)]))
    log.commit(log.changes(1, "ED", 0, [(row(1), 1)]))
    log.commit_tasks(*log.plan(up_to=1))
    log.check([row(2)])
    log.commit_tasks(*log.plan(), record="record-2")
    log.check([row(2)])
    assert log.sequences() == {(): 2}


def test_a_rest_catalog_gets_the_statistics_in_the_same_request(log: BaseCommits) -> None:
    expected = filled(log)
    tasks = log.plan()
    with rest_server(log.catalog) as server:
        properties = {"type": "rest", "uri": server.uri, "credential": "id:secret", "oauth2-server-uri": f"{server.uri}/v1/oauth/tokens"}
        committer = IcebergCommitter(Catalogs(lambda name: CatalogEntry(name, properties)), sleep=lambda seconds: None)
        outcome = log.commit_tasks(*tasks, committer=committer)
        assert server.count("POST /v1/namespaces/db/tables/t") == 1
    assert outcome.state is CommitState.COMMITTED
    log.check(expected)
    assert log.sequences() == {(): log.sequence}


# ---- the sequences of other partitions


def test_partitions_go_in_together_and_those_without_work_keep_their_numbers(regions: BaseCommits) -> None:
    log = regions
    log.commit()
    log.commit(log.changes(1, "I", 0, [(row(1, "eu"), 1)]), log.changes(1, "I", 0, [(row(2, "l'été"), 1)]))
    log.commit_base(log.base_rows(1, 1, [row(9, "old")]), sequences={"region=old": 1, "region=eu": 0})
    tasks = log.plan()
    assert len(log.commit_tasks(*tasks).committed) == 2
    log.check([row(1, "eu"), row(2, "l'été"), row(9, "old")])
    assert sorted(log.sequences().values()) == [1, 2, 2]
    blob = log.base.io.new_input(log.base.refresh().metadata.statistics[-1].statistics_path).open().read()
    assert b'"region=l%27%C3%A9t%C3%A9":2' in blob


def test_the_numbers_of_old_versions_move_into_the_statistics_file(regions: BaseCommits) -> None:
    log = regions
    log.commit(log.changes(1, "I", 0, [(row(1, "eu"), 1)]))
    log.commit_base(log.base_rows(1, 1, [row(1, "eu")]), log.base_rows(1, 1, [row(2, "us")]))
    legacy = {"region=eu": {"max-txId": "1", "base-op-time": "1700"}, "region=us": {"max-txId": "1", "base-op-time": "1800"}}
    with log.base.transaction() as transaction:
        transaction.set_properties({"table.partition-properties": json.dumps(legacy)})
    log.commit(log.changes(1, "ED", 0, [(row(1, "eu"), 1)]), log.changes(1, "I", 0, [(row(1, "eu", "new"), 2)]))
    outcome = log.commit_tasks(*log.plan())
    assert outcome.state is CommitState.COMMITTED
    assert sorted(log.sequences().values()) == [1, 2]
    blob = log.base.io.new_input(log.base.refresh().metadata.statistics[-1].statistics_path).open().read()
    assert b'"region=us":1800' in blob
    log.check([row(1, "eu", "new"), row(2, "us")])


def test_one_partition_conflicts_and_the_other_lands(regions: BaseCommits) -> None:
    log = regions
    log.commit(log.changes(1, "I", 0, [(row(1, "eu"), 1)]), log.changes(1, "I", 0, [(row(2, "us"), 1)]))
    eu, us = log.plan("region=eu") + log.plan("region=us")
    log.commit_tasks(*log.plan("region=eu"), record="other")
    outcome = log.commit_tasks(eu, us)
    assert (outcome.committed, list(outcome.conflicts)) == ((us.task_id,), [eu.task_id])
    assert "the optimized sequence of its partition is 1, but None was planned with" in outcome.conflicts[eu.task_id]
    log.check([row(1, "eu"), row(2, "us")])


# ---- all or none


def test_a_partition_goes_in_with_all_its_tasks_or_with_none(log: BaseCommits) -> None:
    log.commit(log.changes(2, "I", 0, [(row(1), 1)]), log.changes(3, "I", 0, [(row(2), 1)]))
    one, two = log.plan(nodes=(2, 3))
    alone = log.commit_tasks(one)
    assert alone.state is CommitState.NOTHING
    assert "1 tasks of its partition are to be committed, but 2 were planned" in alone.conflicts[one.task_id]
    assert two.result is not None
    Path(two.result.outputs[0].path.removeprefix("file://")).rename(log.folder / "hidden")
    outcome = log.commit_tasks(one, two)
    assert outcome.state is CommitState.NOTHING
    assert "missing on storage" in outcome.conflicts[two.task_id]
    assert f"task {two.task_id}, which merges changes of the same partition" in outcome.conflicts[one.task_id]
    log.check([row(1), row(2)])
    (log.folder / "hidden").rename(two.result.outputs[0].path.removeprefix("file://"))
    assert set(log.commit_tasks(one, two).committed) == {one.task_id, two.task_id}
    log.check([row(1), row(2)])


def test_a_group_merges_changes_when_any_of_its_tasks_does(log: BaseCommits) -> None:
    log.commit(log.changes(2, "I", 0, [(row(1), 1)]))
    log.commit_base(log.base_rows(2, 1, [row(1)]), sequences={"": 1})
    log.commit(log.changes(3, "I", 0, [(row(2), 1)]))
    tasks = log.plan(nodes=(2, 3))
    assert [len(task.work.change_files) for task in tasks] == [0, 1]
    assert log.commit_tasks(*tasks).state is CommitState.COMMITTED
    log.check([row(1), row(2)])
    assert log.sequences() == {(): 2}


def test_tasks_of_a_partition_that_were_planned_apart_do_not_go_in(log: BaseCommits) -> None:
    log.commit(log.changes(2, "I", 0, [(row(1), 1)]), log.changes(3, "I", 0, [(row(2), 1)]))
    one, two = log.plan(nodes=(2, 3))
    log.commit(log.changes(1, "ED", 0, [(row(2), 1)]))
    outcome = log.commit_tasks(one, with_span(two, up_to=log.sequence))
    assert outcome.state is CommitState.NOTHING
    assert all("were planned from different snapshots, or for different changes" in reason for reason in outcome.conflicts.values())
    log.check([row(1)])


@pytest.mark.parametrize("record", ["record-1", "another"])
def test_a_group_that_landed_is_not_committed_again(log: BaseCommits, record: str) -> None:
    # The second task writes no row, so its files do not tell that it went in.
    log.commit(log.changes(2, "I", 0, [(row(1), 1)]), log.changes(3, "I", 0, [(row(2), 1)]), log.changes(3, "ED", 0, [(row(2), 2)]))
    tasks = log.plan(nodes=(2, 3))
    log.commit_tasks(*tasks)
    again = log.commit_tasks(*tasks, record=record)
    assert (again.state, set(again.committed)) == (CommitState.COMMITTED, {task.task_id for task in tasks})
    assert len(log.base.refresh().metadata.snapshots) == 1
    log.check([row(1)])


@pytest.mark.parametrize("together", [True, False])
def test_of_two_insert_only_plans_of_one_partition_one_goes_in(log: BaseCommits, together: bool) -> None:
    log.commit(log.changes(1, "I", 0, [(row(1), 1)]))
    (one,), (two,) = log.plan(), log.plan()
    outcomes = [log.commit_tasks(one, two)] if together else [log.commit_tasks(one), log.commit_tasks(two, record="record-2")]
    assert [task_id for outcome in outcomes for task_id in outcome.committed] == [one.task_id]
    assert [task_id for outcome in outcomes for task_id in outcome.conflicts] == [two.task_id]
    log.check([row(1)])


# ---- writers between plan and commit


def test_an_insert_overwrite_between_plan_and_commit_wins(log: BaseCommits) -> None:
    log.commit(log.changes(1, "I", 0, [(row(1), 1)]))
    (task,) = log.plan()
    txid = log.begin()
    log.commit_base(log.base_rows(1, txid, [row(7)]), sequences={"": txid})
    outcome = log.commit_tasks(task)
    assert "its changes may be merged already" in outcome.conflicts[task.task_id]
    log.check([row(7)])


def test_position_deletes_of_a_writer_are_kept(log: BaseCommits) -> None:
    filled(log)
    one, two = log.base_paths()
    rewriting, marking = log.plan() + log.plan(mark=[one, two])
    log.commit_base(deleted={one: [1]}, sequences={"": 1})
    outcome = log.commit_tasks(rewriting)
    assert "it did not apply delete file" in outcome.conflicts[rewriting.task_id]
    # A file that stays takes deletes of others with it.
    assert log.commit_tasks(marking, record="record-2").state is CommitState.COMMITTED
    log.check([row(1, v="new"), row(4), row(5)])


def test_an_input_that_is_gone_is_a_conflict(log: BaseCommits) -> None:
    expected = filled(log)
    rewriting, marking = log.plan() + log.plan(mark=log.base_paths())
    assert len(log.commit_tasks(*log.plan(), record="other").committed) == 1
    with log.base.refresh().manage_snapshots() as manage:
        manage.rollback_to_snapshot(log.base.metadata.snapshots[0].snapshot_id)
    log.check(expected)
    log.base.refresh().delete("id <= 2")
    log.check([row(1, v="new"), row(4), row(5)])
    for task in (rewriting, marking):
        assert "is no longer live" in log.commit_tasks(task, record=f"r-{task.task_id}").conflicts[task.task_id]
    log.check([row(1, v="new"), row(4), row(5)])


def test_a_base_file_that_came_after_the_plan_keeps_its_deletes(log: BaseCommits) -> None:
    filled(log)
    (task,) = log.plan()
    # A reader deletes this row: the change store's delete of row 3 is of a later transaction.
    log.commit_base(log.base_rows(1, 0, [row(3, v="back")], name="spark"), sequences={"": 1})
    log.check([row(1, v="new"), row(2), row(4), row(5)])
    assert "came after the plan" in log.commit_tasks(task).conflicts[task.task_id]
    (again,) = log.plan()
    assert log.commit_tasks(again, record="record-2").state is CommitState.COMMITTED
    log.check([row(1, v="new"), row(2), row(4), row(5)])


def test_a_base_file_that_no_change_can_reach_is_no_conflict(regions: BaseCommits) -> None:
    log = regions
    log.commit(log.changes(2, "I", 0, [(row(1, "eu"), 1)]))
    log.commit(log.changes(2, "ED", 0, [(row(1, "eu"), 1)]))
    (task,) = log.plan(nodes=(2,))
    log.commit_base(
        log.base_rows(3, 0, [row(3, "eu")]), log.base_rows(2, 0, [row(4, "us")]), log.base_rows(2, 2, [row(5, "eu")]), sequences={}
    )
    assert log.commit_tasks(task).state is CommitState.COMMITTED
    log.check([row(3, "eu"), row(4, "us"), row(5, "eu")])


def test_a_file_that_the_plan_left_alone_is_no_conflict(log: BaseCommits) -> None:
    log.commit_base(log.base_rows(1, 0, [row(1), row(2)]), log.base_rows(1, 0, [row(3), row(4)], name="1-B-0-00000-0-9-two"))
    log.commit(log.changes(1, "ED", 0, [(row(4), 1)]))
    (task,) = log.plan(mark=log.base_paths())
    # A plan may know, for example by bounds, that no change deletes rows of the other file.
    inputs = tuple(file for file in task.work.inputs if "two" in file.path)
    assert len(inputs) == 1
    task = with_span(replace(task, work=replace(task.work, inputs=inputs)), marked=(inputs[0].path,))
    assert log.commit_tasks(task).state is CommitState.COMMITTED
    log.check([row(1), row(2), row(3)])


def test_an_equality_delete_of_a_writer_does_not_reach_merged_changes(log: BaseCommits) -> None:
    expected = filled(log)
    (task,) = log.plan()
    keys = pa.table({"id": pa.array([2, 5], pa.int64())})
    delete = write_parquet_file(log.base.refresh(), keys, content=FileContent.EQUALITY_DELETES, equality_ids=[1], name="eq")
    row_delta(log.base, equality_deletes=[(delete, [1])])
    expected = [values for values in expected if values["id"] != 2]
    log.check(expected)
    assert "would delete rows of the changes too" in log.commit_tasks(task).conflicts[task.task_id]
    assert log.commit_tasks(*log.plan(), record="record-2").state is CommitState.COMMITTED
    log.check(expected)


def test_a_change_store_that_was_rolled_back_is_a_conflict(log: BaseCommits) -> None:
    log.commit(log.changes(1, "I", 0, [(row(1), 1)]))
    first = log.change.refresh().metadata.current_snapshot_id
    assert first is not None
    log.commit(log.changes(1, "I", 0, [(row(2), 1)]))
    (task,) = log.plan()
    log.roll_back_changes(first)
    assert "the change store was rolled back" in log.commit_tasks(task).conflicts[task.task_id]
    log.check([row(1)])


def test_further_changes_after_the_plan_are_no_conflict(log: BaseCommits) -> None:
    filled(log)
    (task,) = log.plan()
    log.commit(log.changes(1, "ED", 0, [(row(2), 1)]), log.changes(1, "I", 0, [(row(6), 2)]))
    assert log.commit_tasks(task).state is CommitState.COMMITTED
    log.check([row(1, v="new"), row(4), row(5), row(6)])


def test_a_column_that_only_the_change_store_has_is_a_conflict(log: BaseCommits) -> None:
    log.commit(log.changes(1, "I", 0, [(row(1), 1)]))
    with log.change.refresh().update_schema() as update:
        update.add_column("extra", StringType())
    log.commit(log.changes(1, "I", 0, [({**row(2), "extra": "kept"}, 1)]))
    tasks = log.plan(up_to=1)
    assert "column id 5, which the base store did not have" in log.commit_tasks(*tasks).conflicts[tasks[0].task_id]
    with log.base.refresh().update_schema() as update:
        update.add_column("extra", StringType())
    assert log.commit_tasks(*log.plan(up_to=1), record="record-2").state is CommitState.COMMITTED


def test_the_change_store_is_loaded_before_the_base_store(log: BaseCommits) -> None:
    """In the other order an attempt is built on a base store that is older than what it was checked against."""
    expected = filled(log)
    (task,) = log.plan()
    catalog = log.catalogs.catalog("lake")
    load, loaded = catalog.load_table, []

    def load_table(identifier: Any) -> Any:
        table = load(identifier)
        loaded.append(identifier[-1])
        if loaded == ["t", "t_change_"]:
            log.commit_base(log.base_rows(1, 2, [row(8)]), sequences={"": 1})
        return table

    catalog.load_table = load_table
    outcome = log.commit_tasks(task)
    assert (outcome.state, outcome.attempts) == (CommitState.COMMITTED, 1)
    assert loaded[:3] == ["t", "t_change_", "t"], "the name of the change store, then the change store, then the base store"
    log.check([*expected, row(8)])


# ---- partitions and names


def test_partitions_whose_paths_are_the_same_are_left_alone(regions: BaseCommits) -> None:
    log = regions
    log.commit(log.changes(1, "I", 0, [(row(1, None), 1)]))
    (alone,) = log.plan()
    log.commit(log.changes(1, "I", 0, [(row(2, "null"), 1)]))
    expected = [row(1, None), row(2, "null")]
    for task in (alone, *log.plan()):
        assert "'region=null' is the path of two partitions" in log.commit_tasks(task, record=task.task_id).conflicts[task.task_id]
    log.check(expected)


def test_the_partition_null_alone_goes_in(regions: BaseCommits) -> None:
    log = regions
    log.commit(log.changes(1, "I", 0, [(row(1, None), 1)]))
    assert log.commit_tasks(*log.plan()).state is CommitState.COMMITTED
    log.check([row(1, None)])
    log.commit(log.changes(1, "ED", 0, [(row(1, None), 1)]))
    log.check([])


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("1-B-3-00000-0-1-x", "later deletes would not reach them"),
        ("native", ""),
        ("1-I-1-00000-0-1-x", ""),
        ("1-ED-1-00000-0-1-x", "base rows"),
    ],
)
def test_the_name_of_an_output_says_nothing_wrong(log: BaseCommits, name: str, says: str) -> None:
    log.commit(log.changes(1, "I", 0, [(row(1), 1)]))
    (task,) = log.plan()
    assert task.result is not None
    output = log.base_rows(1, 1, [row(1)], name=name)
    outcome = log.commit_tasks(replace(task, result=replace(task.result, outputs=(output,))))
    assert (says in outcome.conflicts[task.task_id]) if says else outcome.state is CommitState.COMMITTED
    log.check([row(1)])


def test_tasks_of_other_actions_are_left_out(log: BaseCommits) -> None:
    filled(log)
    (task,) = log.plan()
    merge = replace(task, task_id="m1", work=as_kind(task.work, TaskAction.MERGE))
    outcome = log.commit_tasks(task, merge)
    assert (outcome.committed, list(outcome.conflicts)) == ((task.task_id,), ["m1"])
    with pytest.raises(TableRefused, match="keyed"):
        log.commit_tasks(merge, record="record-2")


def test_a_plain_table_takes_no_changes(log: BaseCommits) -> None:
    filled(log)
    tasks = log.plan()
    with log.base.transaction() as transaction:
        transaction.remove_properties("table-format", "mixed-format.table-store")
    with pytest.raises(TableRefused, match="is not a keyed table"):
        log.commit_tasks(*tasks)


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda task: with_span(task, up_to=-1), "from None to -1"),
        (lambda task: replace(task, work=replace(task.work, output_spec_id=1)), "partition spec"),
        (lambda task: replace(task, work=replace(task.work, node=replace(task.work.node, spec_id=1))), "planned for partition spec 1"),
        (
            lambda task: with_span(task, inserts=tuple(replace(file, partition=OTHER) for file in span_of(task).inserts)),
            "another partition",
        ),
        (lambda task: replace(task, result=None), "has no result"),
        (lambda task: replace(task, result=replace(task.result, rows_written=9)), "but its merge wrote 9"),
    ],
)
def test_a_task_that_does_not_add_up_is_a_conflict(log: BaseCommits, spoil: Callable[[CompactionTask], CompactionTask], says: str) -> None:
    log.commit(log.changes(1, "I", 0, [(row(1), 1)]))
    (task,) = log.plan()
    outcome = log.commit_tasks(spoil(task))
    assert outcome.state is CommitState.NOTHING
    assert says in outcome.conflicts[task.task_id]
    log.check([row(1)])


# ---- outcomes


def test_a_lost_race_writes_the_statistics_again_from_the_new_metadata(regions: BaseCommits) -> None:
    log = regions
    log.commit(log.changes(1, "I", 0, [(row(1, "eu"), 1)]), log.changes(1, "I", 0, [(row(2, "us"), 1)]))
    eu, us = log.plan("region=eu"), log.plan("region=us")
    step = on("before-swap", lambda: log.commit_tasks(*us, record="other"))
    outcome = log.commit_tasks(*eu, committer=racing(log, step))
    assert (outcome.state, outcome.attempts) == (CommitState.COMMITTED, 2)
    assert sorted(log.sequences().values()) == [1, 1]
    log.check([row(1, "eu"), row(2, "us")])
    named = {file.statistics_path.rpartition("/")[2] for file in log.base.refresh().metadata.statistics}
    assert log.puffins() == named, "the lost attempt left a statistics file behind"


def test_a_lost_race_against_the_same_partition_is_a_conflict(log: BaseCommits) -> None:
    filled(log)
    (one,), (two,) = log.plan(), log.plan()
    step = on("before-swap", lambda: log.commit_tasks(two, record="other"))
    outcome = log.commit_tasks(one, committer=racing(log, step))
    assert (outcome.state, list(outcome.conflicts)) == (CommitState.NOTHING, [one.task_id])
    log.check([row(1, v="new"), row(2), row(4), row(5)])


def test_a_lost_answer_is_found_in_the_table_with_its_statistics(log: BaseCommits) -> None:
    expected = filled(log)
    (task,) = log.plan()
    fault(log, answer_lost)
    outcome = log.commit_tasks(task)
    assert (outcome.state, outcome.committed) == (CommitState.COMMITTED, (task.task_id,))
    assert log.sequences() == {(): 2}
    log.check(expected)


def test_an_unknown_outcome_keeps_its_statistics_file_and_settles(log: BaseCommits) -> None:
    expected = filled(log)
    (task,) = log.plan()
    before = log.puffins()
    late: list[Callable[[], Any]] = []

    def swallowed(swap: Callable[[], Any]) -> Any:
        late.append(swap)
        return request_lost(swap)

    fault(log, swallowed)
    assert log.commit_tasks(task).state is CommitState.UNKNOWN
    assert len(log.puffins() - before) == 1
    assert log.committer.settle(TABLE, "record-1", [task]).state is CommitState.UNKNOWN
    log.check(expected)
    late[0]()
    assert log.committer.settle(TABLE, "record-1", [task]).committed == (task.task_id,)
    assert log.commit_tasks(task).committed == (task.task_id,)
    assert log.sequences() == {(): 2}
    log.check(expected)


def test_an_attempt_that_lost_leaves_no_statistics_file(log: BaseCommits) -> None:
    expected = filled(log)
    before = log.puffins()

    def lost(swap: Callable[[], Any]) -> Any:
        raise CommitFailedException("too late")

    fault(log, lost)
    outcome = log.commit_tasks(*log.plan())
    assert (outcome.state, outcome.attempts) == (CommitState.COMMITTED, 2)
    assert len(log.puffins() - before) == 1
    log.check(expected)


class Killed(BaseException):
    """Ends an attempt as a killed process does: nothing is cleaned up."""


@pytest.mark.parametrize("step", get_args(CommitStep))
def test_a_commit_that_was_cut_off_is_settled_and_its_files_are_found(log: BaseCommits, step: str) -> None:
    expected = filled(log)
    (task,) = log.plan(mark=[log.base_paths()[1]])

    def die() -> None:
        raise Killed

    with pytest.raises(Killed):
        log.commit_tasks(task, committer=racing(log, on(step, die)))
    log.check(expected)
    landed = step == "after-swap"
    settled = log.committer.settle(TABLE, "record-1", [task])
    left = step in ("after-manifest-list", "before-swap")
    assert settled.state is (CommitState.COMMITTED if landed else CommitState.UNKNOWN if left else CommitState.NOTHING)
    assert log.commit_tasks(task, record="record-1").committed == (task.task_id,)
    log.check(expected)
    log.commit_base(log.base_rows(1, 2, [row(9)]), sequences={"": 2})
    leftovers = log.committer.leftovers(TABLE, [], ["record-1"])
    deleted = log.committer.delete_orphans(TABLE, task.table_uuid, leftovers)
    assert len([path for path in deleted if path.endswith(".puffin")]) == (step == "before-swap")
    log.check([*expected, row(9)])


@pytest.mark.parametrize("step", get_args(CommitStep))
def test_a_record_committed_by_two_processes_at_once_goes_in_once(log: BaseCommits, step: str) -> None:
    expected = filled(log)
    tasks = log.plan()
    outcome = log.commit_tasks(*tasks, committer=racing(log, on(step, lambda: log.commit_tasks(*tasks))))
    assert outcome.committed == (tasks[0].task_id,)
    assert log.sequences() == {(): 2}
    log.check(expected)


# ---- at random


class RandomTable:
    """A table whose changes, plans, writers and commits are drawn at random."""

    def __init__(self, folder: Path, data: st.DataObject) -> None:
        self.log = BaseCommits(folder, BY_REGION)
        self.draw = data.draw
        self.prepared: list[CompactionTask] = []

    def change(self, turn: int, region: str) -> None:
        files = []
        for kind in ("ED", "I"):
            ids = self.draw(st.lists(st.integers(1, 4), max_size=3), label=f"{kind} of {region}")
            node = DataTreeNode.of_id(self.draw(st.sampled_from([1, 2, 3]), label="node"))
            rows = [
                (row(number, region, f"{turn}{kind}"), place)
                for place, number in enumerate(ids)
                if DataTreeNode.of_hash(node.mask, key_hash([number], ["long"])) == node
            ]
            if rows:
                files.append(self.log.changes(node.id, kind, 0, rows))
        if files:
            self.log.commit(*files)

    def plan(self) -> None:
        paths = self.log.base_paths()
        if self.draw(st.integers(1, 3), label="base alone") == 1:
            self.prepared += self.log.plan(base_alone=True)
            return
        marked = self.draw(st.sets(st.sampled_from(paths)), label="marked") if paths else set()
        self.prepared += self.log.plan(up_to=self.draw(st.integers(1, self.log.sequence), label="up to"), mark=marked)

    def write_base(self, turn: int) -> None:
        files = [file for file in self.log.base_files() if file.is_data]
        if files and self.draw(st.booleans(), label="deleted"):
            file = files[self.draw(st.integers(0, len(files) - 1), label="file")]
            self.log.delete_rows(file.path, self.draw(st.integers(0, file.record_count - 1), label="position"))
        if self.draw(st.booleans(), label="appended"):
            transaction = self.draw(st.sampled_from([0, self.log.sequence]), label="transaction")
            self.log.append_base(transaction, [row(self.draw(st.integers(1, 4)), "eu", f"{turn}base")])

    def race(self, turn: int) -> None:
        """Commit some tasks. At some step of it, another process commits some tasks, or the same ones."""
        some = st.lists(st.sampled_from(range(len(self.prepared))), min_size=1, unique=True)
        mine, others = ([self.prepared[number] for number in self.draw(some, label=label)] for label in ("mine", "others"))
        step = self.draw(st.sampled_from(get_args(CommitStep)), label="step")
        other = on(step, lambda: self.log.commit_tasks(*others, record=f"other{turn}"))
        outcome = self.log.commit_tasks(*mine, record=f"mine{turn}", committer=racing(self.log, other))
        event(f"{outcome.state.value}, {len(outcome.conflicts)} conflicts")


@settings(max_examples=max(8, settings.default.max_examples // 5))
@given(data=st.data())
def test_random_changes_plans_and_racing_commits_show_no_other_row(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    table = RandomTable(tmp_path_factory.mktemp("random"), data)
    for turn in range(data.draw(st.integers(2, 6), label="turns")):
        for region in data.draw(st.sampled_from([["eu"], ["us"], ["eu", "us"]]), label="regions"):
            table.change(turn, region)
        if table.log.sequence:
            table.plan()
        table.write_base(turn)
        if table.prepared and data.draw(st.booleans(), label="committed"):
            before = table.log.judged()
            table.race(turn)
            table.log.check(before)
