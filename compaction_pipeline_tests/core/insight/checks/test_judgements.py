"""The judgement of each check, once passed and once failed, on plain values."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from compaction_pipeline.core.commit.record import RECORD_ID_PROPERTY
from compaction_pipeline.core.insight.checks.commits import commits_on_time, disagreement
from compaction_pipeline.core.insight.checks.merges import rows_preserved, target_file_size
from compaction_pipeline.core.insight.checks.small_files import small_files_left
from compaction_pipeline.core.queue.task import CompactionTask, TaskAttempt, TaskStatus
from compaction_pipeline.core.tables.table import SnapshotSummary
from compaction_pipeline.core.work.ends import EndReason
from compaction_pipeline.core.work.kinds import TaskAction
from compaction_pipeline.core.work.work import ChangeSpan
from compaction_pipeline_tests.core.insight.checks.judged import judged_node
from compaction_pipeline_tests.defs.values import MIB, NOW, ORDERS, ago, head, node_state, output, record, snapshot, task
from compaction_pipeline_tests.works import as_kind


def attempt(task_id: str, ended_at: datetime, end_reason: EndReason) -> TaskAttempt:
    return TaskAttempt("a1", task_id, 1, "run", ended_at, ended_at, end_reason, "the rows written are not the rows read")


def ours(snapshot_id: int, record_id: str = "r1", **summary: str) -> SnapshotSummary:
    found = snapshot(snapshot_id, ago(minutes=1), **summary)
    return replace(found, summary={**found.summary, RECORD_ID_PROPERTY: record_id})


def test_a_digest_mismatch_is_red_until_its_node_succeeds() -> None:
    bad = (task("t9", status=TaskStatus.FAILED), [attempt("t9", ago(minutes=5), EndReason.DIGEST_MISMATCH)])
    before = rows_preserved([node_state(1, last_done=ago(minutes=6)), node_state(2, last_done=ago(days=1))], [bad])
    after = rows_preserved([node_state(1, last_done=ago(minutes=4)), node_state(2)], [bad])
    assert not before.passed
    assert "1 of 2 nodes fail" in before.text
    assert "t9" in before.text
    assert after.passed


def test_a_good_node_never_hides_a_bad_one() -> None:
    bad = (
        task("t9", 1, TaskStatus.FAILED),
        [attempt("t9", ago(minutes=5), EndReason.DIGEST_MISMATCH), attempt("t9", ago(minutes=4), EndReason.LOST)],
    )
    good = (task("t10", 2, TaskStatus.PENDING), [attempt("t10", ago(minutes=5), EndReason.FAILED)])
    judged = rows_preserved([node_state(1), node_state(2, last_done=ago(minutes=1))], [good, bad])
    assert [failure.node for failure in judged.failures] == [bad[0].work.node]


def test_a_failure_without_mismatch_says_nothing_about_rows() -> None:
    assert rows_preserved([node_state(1)], [(task(status=TaskStatus.FAILED), [attempt("t1", ago(minutes=5), EndReason.FAILED)])]).passed


def test_small_data_and_small_delete_files_are_counted_each_alone() -> None:
    nodes = [judged_node(node_state(1, small_data_files=11, small_delete_files=11))]
    assert small_files_left(nodes, NOW).passed
    nodes.append(judged_node(node_state(2, small_delete_files=12)))
    nodes.append(judged_node(node_state(3, small_data_files=40)))
    judged = small_files_left(nodes, NOW)
    assert (judged.judged, len(judged.failures)) == (3, 2)
    assert "40 small data files" in judged.failures[0].reason
    assert "12 small delete files" in judged.failures[1].reason


def test_one_remainder_per_task_is_the_right_size() -> None:
    assert target_file_size([task(outputs=[output(128 * MIB), output(3 * MIB)])]).passed
    assert target_file_size([task(outputs=[output(130 * MIB)])]).passed


def test_two_undersized_outputs_of_one_task_are_red() -> None:
    judged = target_file_size([task(outputs=[output(3 * MIB), output(2 * MIB), output(128 * MIB)])])
    assert "wrote 2 undersized files of 3" in judged.text


def merged_to_base(*names: str, size: int = 3 * MIB, action: TaskAction = TaskAction.TO_BASE) -> CompactionTask:
    files = [replace(output(size), path=f"s3://lake/{name}.parquet") for name in names]
    of_table = task(outputs=files)
    return replace(of_table, work=as_kind(of_table.work, action, changes=ChangeSpan((), (), None, 0, 1)))


def test_a_merge_to_base_may_leave_one_undersized_file_for_each_tree_node() -> None:
    judged = target_file_size([merged_to_base("4-B-9-00000-0-a-00001", "5-B-9-00000-0-a-00002", "6-B-9-00000-0-a-00003")])
    assert (judged.passed, judged.judged) == (True, 1)
    assert "no recent merge" not in judged.text
    judged = target_file_size([merged_to_base("4-B-9-00000-0-a-00001", "5-B-9-00000-0-a-00002", "5-B-9-00000-0-a-00003")])
    assert "wrote 2 undersized files of 2" in judged.text
    assert not target_file_size([merged_to_base("4-B-9-00000-0-a-00001", size=500 * MIB)]).passed


def test_rewritten_changes_are_small_by_intent() -> None:
    judged = target_file_size([merged_to_base("4-I-9-00000-0-a-00001", "4-ED-9-00000-0-a-00002", action=TaskAction.REWRITE_CHANGES)])
    assert (judged.passed, judged.judged) == (True, 0)


def test_an_oversized_output_is_red_until_the_node_is_merged_again() -> None:
    bad = task("t1", outputs=[output(500 * MIB)], plan_id="p1")
    good = task("t2", outputs=[output(128 * MIB)], plan_id="p2")
    assert not target_file_size([bad]).passed
    assert target_file_size([good, bad]).passed  # newest first


def test_a_commit_is_late_after_twice_its_interval_and_never_within_a_minute() -> None:
    def judged(age_seconds: float, interval_seconds: float) -> bool:
        prepared = task(status=TaskStatus.PREPARED)
        return commits_on_time([(prepared, ago(seconds=age_seconds))], {ORDERS: timedelta(seconds=interval_seconds)}, NOW).passed

    assert judged(599, 300)
    assert not judged(601, 300)
    assert judged(59, 1)
    assert not judged(61, 1)


def test_the_oldest_prepared_task_of_a_table_decides() -> None:
    tasks = [(task(f"t{age}", status=TaskStatus.PREPARED), ago(seconds=age)) for age in (5, 700, 20)]
    judged = commits_on_time(tasks, {ORDERS: timedelta(seconds=300)}, NOW)
    assert "t700" in judged.text
    assert "1 of 1 tables fail" in judged.text


def test_a_record_that_agrees_with_the_table_passes() -> None:
    assert disagreement(record(), head(ours(8, total_data_files="3", total_delete_files="0"))) is None


def test_a_record_whose_snapshot_was_rolled_back_is_red() -> None:
    assert "not in the history of main" in (disagreement(record(), head(snapshot(5, ago(days=1)))) or "")


def test_a_record_whose_snapshot_expired_is_not_judged() -> None:
    assert disagreement(record(ended_at=ago(days=3)), head(snapshot(50, ago(days=1)))) is None


def test_a_record_whose_snapshot_carries_another_id_or_other_files_is_red() -> None:
    assert "carries record id r2" in (disagreement(record(), head(ours(8, "r2"))) or "")
    assert "holds 4 data files" in (disagreement(record(), head(ours(8, total_data_files="4"))) or "")


def test_nothing_to_judge_passes_and_says_so() -> None:
    assert commits_on_time([], {}, NOW).text == "no tables to judge yet"
