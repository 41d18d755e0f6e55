"""Which merges of change files with each other go into the change store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from compaction_pipeline.core.commit.candidates import Candidates
from compaction_pipeline.core.commit.head import HeadFiles, HeadLayout
from compaction_pipeline.core.commit.rewrite_decision import by_store, decide_rewrites
from compaction_pipeline.core.ids import TaskId
from compaction_pipeline.core.queue.task import CompactionTask, TaskStatus
from compaction_pipeline.core.tables.data_file import FileContent, LiveFile
from compaction_pipeline.core.tables.keyed.tree import DataTreeNode
from compaction_pipeline.core.tables.node import PartitionValue, TableNode
from compaction_pipeline.core.work.kinds import CompactionType, TaskAction
from compaction_pipeline.core.work.result import MergeResult
from compaction_pipeline_tests.builders import task as task_builder
from compaction_pipeline_tests.works import task_work

NODE = TableNode(0, (), DataTreeNode(1, 0))
LAYOUT = HeadLayout(frozenset({0}), {0: frozenset({1})}, last_sequence_number=100)


def change(name: str, sequence: int = 5, rows: int = 10) -> LiveFile:
    """A change file. `name` is its node, its type and its transaction, and a text that makes it another file."""
    node, kind, transaction, *text = name.split("-")
    path = f"s3://lake/{node}-{kind}-{transaction}-00000-0-op{''.join(text)}-00001.parquet"
    return LiveFile(path, FileContent.DATA, 0, (), 1_000, rows, sequence)


INSERTS, DELETES = (change("2-I-0", 3), change("2-I-0-b", 5)), (change("2-ED-0", 4), change("2-ED-0-b", 5))
OUTPUTS = (change("2-I-0-new", rows=15), change("2-ED-0-new", rows=12))


def named(name: str, **changes: object) -> LiveFile:
    return replace(change(name), **changes)  # type: ignore[arg-type]


def rewrite(task_id: str = "t1", inputs: Sequence[LiveFile] = (*INSERTS, *DELETES), **changes: object) -> CompactionTask:
    work = task_work(NODE, CompactionType.MINOR, TaskAction.REWRITE_CHANGES, tuple(inputs), (), 0, 1 << 27, 1 << 24)
    result = MergeResult(TaskId(task_id), "a1")  # type: ignore[arg-type]
    return task_builder(task_id, work=work, status=TaskStatus.PREPARED, **{"result": result, **changes})  # type: ignore[arg-type]


def conflict(
    live: Sequence[LiveFile] = (*INSERTS, *DELETES), outputs: Sequence[LiveFile] = OUTPUTS, task: CompactionTask | None = None
) -> str | None:
    """Why the one task is left out; None when it goes in."""
    one = task or rewrite()
    decision = decide_rewrites(Candidates([one], {one.task_id: outputs}, {}), HeadFiles(live, LAYOUT))
    assert decision.survivors == (() if decision.conflicts else (one,))
    return decision.conflicts.get(one.task_id)


def test_a_merge_whose_files_are_live_goes_in() -> None:
    assert conflict() is None
    assert conflict((*INSERTS, *DELETES, change("2-I-0-more", 9), change("2-ED-0-more", 9))) is None
    # Every insert may have been outdone.
    assert conflict(outputs=OUTPUTS[1:]) is None


@pytest.mark.parametrize("gone", [*INSERTS, *DELETES])
def test_a_file_that_is_gone_was_taken_by_another_merge(gone: LiveFile) -> None:
    reason = conflict([file for file in (*INSERTS, *DELETES) if file != gone])
    assert reason == f"change file {gone.path} is no longer live: another merge took it, or it was removed"


def test_a_file_that_is_live_twice_is_left_alone() -> None:
    assert "is live more than once" in (conflict((*INSERTS, *DELETES, DELETES[0])) or "")


@pytest.mark.parametrize("sequence", [2, 4])
def test_a_file_that_got_another_sequence_number_is_another_file(sequence: int) -> None:
    reason = conflict((replace(INSERTS[0], data_sequence_number=sequence), INSERTS[1], *DELETES))
    assert f"has the data sequence number {sequence}, but it was planned with 3" in (reason or "")


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (named("3-I-0-new"), "does not say that it holds changes of its node"),
        (named("2-B-0-new"), "does not say that it holds changes of its node"),
        (named("0-I-0-new"), "does not say that it holds changes of its node"),
        (named("2-I-4-new"), "tells a transaction, but its rows have several"),
        (named("2-I-0-new", spec_id=1), "is of another partition than its task"),
        (named("2-I-0-new", partition=(PartitionValue("region", "string", "eu"),)), "is of another partition than its task"),
        (named("2-I-0-new", record_count=21), "its outputs of type I hold 21 rows, but its inputs hold 20"),
        (named("2-ED-0-other", record_count=9), "its outputs of type ED hold 21 rows, but its inputs hold 20"),
    ],
)
def test_an_output_that_is_not_what_it_replaces_is_refused(wrong: LiveFile, reason: str) -> None:
    assert reason in (conflict(outputs=(wrong, OUTPUTS[1])) or "")


def test_deletes_never_all_go() -> None:
    assert "it read deletes and wrote none" in (conflict(outputs=OUTPUTS[:1]) or "")
    assert conflict(INSERTS, OUTPUTS[:1], rewrite(inputs=INSERTS)) is None


@pytest.mark.parametrize(
    ("stray", "reason"),
    [
        (change("3-I-0"), "the name of its input"),
        (change("2-B-0"), "the name of its input"),
        (named("2-I-0-x", spec_id=1), "2-I-0-00000-0-opx-00001.parquet is of another partition"),
    ],
)
def test_an_input_of_another_place_is_refused(stray: LiveFile, reason: str) -> None:
    assert reason in (conflict((*INSERTS, stray), OUTPUTS[:1], rewrite(inputs=(*INSERTS, stray))) or "")


def test_a_task_without_a_result_or_of_another_store_is_refused() -> None:
    assert conflict(task=rewrite(result=None)) == "it has no result: it was not merged"
    assert "changes the table itself" in (conflict(task=task_builder("t1")) or "")


def test_of_two_tasks_with_one_file_the_first_goes_in() -> None:
    first, second = rewrite("t1", INSERTS), rewrite("t2", (INSERTS[1], *DELETES))
    outputs = {first.task_id: OUTPUTS[:1], second.task_id: OUTPUTS[1:]}
    decision = decide_rewrites(Candidates([first, second], outputs, {}), HeadFiles((*INSERTS, *DELETES), LAYOUT))
    assert decision.survivors == (first,)
    assert decision.conflicts == {"t2": f"{INSERTS[1].path} is an input of task t1 too"}


def test_outputs_that_do_not_fit_the_head_are_not_looked_at() -> None:
    # Nobody can ask for the outputs: there are none.
    decision = decide_rewrites(Candidates([rewrite()], {}, {TaskId("t1"): "its output is missing"}), HeadFiles((), LAYOUT))
    assert decision.conflicts == {"t1": "its output is missing"}


def test_each_commit_takes_the_tasks_of_one_store() -> None:
    tasks = [task_builder("a"), rewrite("b"), task_builder("c"), rewrite("d")]
    assert by_store(tasks, None) == [["b", "d"], ["a", "c"]]
    assert by_store(tasks, [TaskId("a"), TaskId("b")]) == [["b"], ["a"]]
    assert by_store(tasks, [TaskId("a")]) == [["a"]]
    assert by_store(tasks[::2], None) == [["a", "c"]]
    assert by_store(tasks, [TaskId("x")]) == [[]]
    assert by_store([], None) == [[]]
