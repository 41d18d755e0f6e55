"""Small tasks are merged in this process until Spark has to start. There a merge can be canceled too."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Event

import pytest

from compaction_pipeline.core.errors import StorageUnavailable
from compaction_pipeline.core.ids import AttemptId, TaskId
from compaction_pipeline.core.queue.task import CompactionTask
from compaction_pipeline.core.tables.table import TableLayout
from compaction_pipeline.core.work.merge_input import MergeInput
from compaction_pipeline.core.work.result import MergeResult
from compaction_pipeline.core.work.small_tasks import SMALL_BYTES, START
from compaction_pipeline.core.work.work import Work
from compaction_pipeline.merging.engine import InProcessMergeEngine
from compaction_pipeline.merging.small_first import SmallFirstEngine
from compaction_pipeline_tests.merging.files import Table
from compaction_pipeline_tests.object_store import Fault, ObjectStore, object_store

LONG = 60
"""The limit in seconds for an event that must happen. No test waits that long unless it fails."""


class Spark(InProcessMergeEngine):
    """Stands for the engine on Spark."""

    def __init__(self, error: Exception | None = None) -> None:
        super().__init__()
        self.error = error
        self.starts = 0
        self.merged: list[str] = []
        self.asked_to_cancel: list[str] = []

    def ready(self) -> None:
        self.starts += 1
        if self.error is not None:
            raise self.error

    def merge(self, tasks: Sequence[MergeInput[Work]], file_io: Mapping[str, str]) -> Iterator[MergeResult]:
        self.merged += [task.task_id for task in tasks]
        yield from super().merge(tasks, file_io)

    def cancel(self, attempt_id: AttemptId) -> None:
        self.asked_to_cancel.append(attempt_id)


def small(folder: Path, name: str = "small") -> tuple[CompactionTask, TableLayout]:
    table = Table(folder / name)
    for start in (0, 5):
        table.append([{"id": start + index, "name": "x"} for index in range(5)])
    return replace(table.task(), task_id=TaskId(name), attempt_id=f"{name}-1"), table.layout()


def on_store(task: CompactionTask, layout: TableLayout, store: ObjectStore) -> tuple[CompactionTask, TableLayout]:
    """The same task, with its files on the store."""
    moved = []
    for file in task.work.inputs:
        key = f"small/in/{Path(file.path).name}"
        store.objects[key] = Path(file.path).read_bytes()
        moved.append(replace(file, path=store.url(key)))
    return replace(task, work=replace(task.work, inputs=tuple(moved))), replace(layout, location=store.url("small"))


def large(task: CompactionTask) -> CompactionTask:
    """The same task, as if its first file were large. A local file is opened whatever its size is said to be."""
    first, *others = task.work.inputs
    inputs = (replace(first, file_size_bytes=SMALL_BYTES), *others)
    return replace(task, task_id=TaskId("large"), work=replace(task.work, inputs=inputs))


def engine_with(spark: Spark, runs: Callable[[], bool] = lambda: False, seconds: Callable[[], float] = lambda: 0.0) -> SmallFirstEngine:
    return SmallFirstEngine(lambda: spark, runs, seconds)


def test_a_small_task_needs_no_spark_and_a_large_one_starts_it_for_all_that_follow(tmp_path: Path) -> None:
    spark = Spark()
    engine = engine_with(spark)
    task, layout = small(tmp_path)
    assert not engine.must_start(None)
    assert not engine.must_start(task)
    [result] = engine.merge([task.merge_input(layout)], {})
    assert (result.error, result.rows_written, spark.starts, spark.merged) == (None, 10, 0, [])
    assert engine.must_start(large(task))
    engine.ready()
    [_] = engine.merge([large(task).merge_input(layout)], {})
    assert (spark.starts, spark.merged) == (1, ["large"])
    assert engine.must_start(None), "a session that died is started again before a poll"
    assert not engine.must_start(task)
    [result] = engine.merge([task.merge_input(layout)], {})
    assert (result.error, spark.merged) == (None, ["large", "small"])


def test_small_tasks_that_took_as_long_as_a_start_of_spark_start_it(tmp_path: Path) -> None:
    task, layout = small(tmp_path)
    times = iter([0.0, START.total_seconds() / 2, 100.0, 100.0 + START.total_seconds() / 2])
    engine = engine_with(Spark(), seconds=lambda: next(times))
    list(engine.merge([task.merge_input(layout)], {}))
    assert not engine.must_start(task)
    list(engine.merge([task.merge_input(layout)], {}))
    assert engine.must_start(task)


def test_a_spark_that_does_not_start_leaves_small_tasks_here(tmp_path: Path) -> None:
    task, layout = small(tmp_path)
    engine = engine_with(Spark(StorageUnavailable("no Java")))
    with pytest.raises(StorageUnavailable, match="no Java"):
        engine.ready()
    assert not engine.must_start(task)
    assert [result.error for result in engine.merge([task.merge_input(layout)], {})] == [None]


def test_a_session_of_another_part_of_the_program_is_used(tmp_path: Path) -> None:
    task, layout = small(tmp_path)
    spark = Spark()
    engine = engine_with(spark, runs=lambda: True)
    assert engine.must_start(None)
    engine.ready()
    assert [result.error for result in engine.merge([task.merge_input(layout)], {})] == [None]
    assert spark.merged == ["small"]


def test_a_canceled_merge_ends_before_its_next_file_and_leaves_nothing(tmp_path: Path) -> None:
    task, layout = small(tmp_path)
    opened, let_go = Event(), Event()

    def wait(method: str, key: str) -> Fault | None:
        if method == "GET":
            opened.set()
            assert let_go.wait(LONG)
        return None

    engine = engine_with(Spark())
    with object_store() as store, ThreadPoolExecutor(1) as slot:
        stored, layout = on_store(task, layout, store)
        before = set(store.objects)
        store.fault = wait
        merge = slot.submit(lambda: list(engine.merge([stored.merge_input(layout)], store.properties)))
        assert opened.wait(LONG)
        engine.cancel(AttemptId("other-1"))
        engine.cancel(AttemptId("small-1"))
        let_go.set()
        [result] = merge.result(LONG)
        assert result.error == "the merge was canceled"
        assert set(store.objects) == before
        [result] = engine.merge([replace(stored, attempt_id="small-2").merge_input(layout)], store.properties)
        assert result.error is None


def test_a_merge_that_waits_for_a_busy_store_is_canceled(tmp_path: Path) -> None:
    task, layout = small(tmp_path)
    busy = Event()

    def refuse(method: str, key: str) -> Fault | None:
        busy.set()
        return Fault("status", 503, "SlowDown")

    engine = engine_with(Spark())
    with object_store() as store, ThreadPoolExecutor(1) as slot:
        stored, layout = on_store(task, layout, store)
        store.fault = refuse
        merge = slot.submit(lambda: list(engine.merge([stored.merge_input(layout)], store.properties)))
        assert busy.wait(LONG)
        engine.cancel(AttemptId("small-1"))
        [result] = merge.result(LONG)
    assert result.error == "the merge was canceled"


def test_one_task_at_a_time_is_merged_here_and_spark_takes_over_when_it_hangs(tmp_path: Path) -> None:
    (first, layout), (second, other_layout) = small(tmp_path, "first"), small(tmp_path, "second")
    spark = Spark()
    engine = SmallFirstEngine(lambda: spark, lambda: False, lambda: 0.0, longest_turn_seconds=0.01)
    began, let_go = Event(), Event()

    class Hanging(InProcessMergeEngine):
        def merge(self, tasks: Sequence[MergeInput[Work]], file_io: Mapping[str, str]) -> Iterator[MergeResult]:
            began.set()
            assert let_go.wait(LONG)
            yield from super().merge(tasks, file_io)

    engine._here = Hanging()
    with ThreadPoolExecutor(1) as slot:
        hangs = slot.submit(lambda: list(engine.merge([first.merge_input(layout)], {})))
        assert began.wait(LONG)
        [result] = engine.merge([second.merge_input(other_layout)], {})
        assert (result.error, spark.merged) == (None, ["second"])
        let_go.set()
        assert [result.error for result in hangs.result(LONG)] == [None]
    engine.cancel(AttemptId("second-1"))
    assert spark.asked_to_cancel == ["second-1"]
