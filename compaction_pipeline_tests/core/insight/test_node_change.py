"""The files that compacted rows had before, and the files that they have now."""

from __future__ import annotations

from dataclasses import replace

from compaction_pipeline.core.insight.node_change import FileGroup, before_and_after
from compaction_pipeline.core.queue.task import CompactionTask
from compaction_pipeline.core.tables.data_file import FileContent, LiveFile, OutputFile
from compaction_pipeline.core.work.kinds import TaskAction
from compaction_pipeline.core.work.result import MergeResult
from compaction_pipeline_tests.defs.values import partition, task
from compaction_pipeline_tests.works import as_kind


def delete(path: str, size: int = 10) -> LiveFile:
    return LiveFile(path, FileContent.POSITION_DELETES, 1, partition(1), size, 1, 1)


def written(path: str, content: FileContent = FileContent.DATA, size: int = 100) -> OutputFile:
    return OutputFile(path, content, 1, partition(1), size, 100)


def worked(
    action: TaskAction, inputs: int, deletes: list[LiveFile], outputs: list[OutputFile], converts: tuple[str, ...] = ()
) -> CompactionTask:
    files = tuple(LiveFile(f"d{i}", FileContent.DATA, 1, partition(1), 1000, 1, 1) for i in range(inputs))
    plain = task()
    work = as_kind(plain.work, action, inputs=files, deletes=tuple(deletes), converts=converts)
    return replace(plain, work=work, result=MergeResult("t1", "a1", tuple(outputs)))


def test_a_merge_leaves_its_outputs_without_deletes() -> None:
    merged = worked(TaskAction.MERGE, 3, [delete("p1"), delete("p2")], [written("o1")])
    assert before_and_after([merged]) == (FileGroup(3, 2, 3020), FileGroup(1, 0, 100))


def test_a_delete_file_of_two_tasks_counts_once() -> None:
    shared = delete("p1")
    tasks = [worked(TaskAction.MERGE, 2, [shared], [written(f"o{i}")]) for i in range(2)]
    assert before_and_after(tasks) == (FileGroup(4, 1, 4010), FileGroup(2, 0, 200))


def test_a_conversion_keeps_its_data_files_and_the_deletes_that_it_does_not_replace() -> None:
    output = written("new", FileContent.POSITION_DELETES, 5)
    converted = worked(TaskAction.CONVERT, 2, [delete("e1"), delete("p1")], [output], converts=("e1",))
    assert before_and_after([converted]) == (FileGroup(2, 2, 2020), FileGroup(2, 2, 2015))


def test_dangling_deletes_are_gone_afterwards() -> None:
    dropped = worked(TaskAction.DROP_DELETES, 0, [delete("p1"), delete("p2")], [])
    assert before_and_after([dropped]) == (FileGroup(0, 2, 20), FileGroup(0, 0, 0))
