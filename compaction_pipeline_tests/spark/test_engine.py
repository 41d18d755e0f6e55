"""The engines give the same results in this process and on Spark. A failed task is a result, and secrets stay out of plans and logs."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import psutil
import pytest

from compaction_pipeline.core.ids import AttemptId
from compaction_pipeline.merging.engine import InProcessMergeEngine
from compaction_pipeline.spark.engine import SparkMergeEngine
from compaction_pipeline.spark.session import SparkSessions, SparkSettings
from compaction_pipeline.spark.session_kind import gc_of, note_gc
from compaction_pipeline_tests.keyed.base_merges import Choices, figures, layout_of_table, run, task_of
from compaction_pipeline_tests.keyed.change_logs import ChangeLog, row
from compaction_pipeline_tests.merging.files import Table
from compaction_pipeline_tests.planted import found_in, found_in_files, planted
from compaction_pipeline_tests.spark.endless_io import endless_io


def _table(folder: Path) -> Table:
    table = Table(folder)
    for start in (0, 5):
        table.append([{"id": start + index, "name": "x"} for index in range(5)])
    return table


def test_a_failed_task_is_a_result_and_the_others_go_on(tmp_path: Path) -> None:
    table = _table(tmp_path)
    good = table.task()
    bad = replace(good, task_id="bad", work=replace(good.work, inputs=(replace(good.work.inputs[0], path=str(tmp_path / "gone.parquet")),)))
    results = {
        result.task_id: result for result in InProcessMergeEngine().merge([each.merge_input(table.layout()) for each in (bad, good)], {})
    }
    assert "gone.parquet: missing" in (results["bad"].error or "")
    assert results["task-1"].error is None


class _Refusing(SparkSessions):
    """A Spark session that answers every job with this error."""

    def __init__(self, text: str) -> None:
        super().__init__(SparkSettings())
        self._text = text

    def session(self) -> Any:
        return self

    def slots(self) -> int:
        return 1

    @property
    def sparkContext(self) -> Any:
        return self

    master = "yarn"

    def addJobTag(self, tag: str) -> None: ...

    def removeJobTag(self, tag: str) -> None: ...

    def range(self, *_: int) -> Any:
        raise RuntimeError(self._text)


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (
            "Job aborted due to stage failure: Lost task 0.0: org.apache.spark.api.python.PythonException: Traceback:\n"
            "  File \"x.py\", line 1, in <module>\n    import numpy\nModuleNotFoundError: No module named 'numpy'\n\n"
            "\tat org.apache.spark.api.python.BasePythonRunner.run(Runner.scala:1)\n",
            "ModuleNotFoundError: No module named 'numpy'",
        ),
        ("Connection refused\nand more", "Connection refused"),
    ],
)
def test_a_long_error_of_spark_becomes_its_one_line_that_matters(tmp_path: Path, said: str, reason: str) -> None:
    table = _table(tmp_path)
    [result] = SparkMergeEngine(_Refusing(said)).merge([table.task().merge_input(table.layout())], {})
    assert result.error == f"Spark could not run the task: {reason}"


@pytest.fixture(scope="module")
def sessions(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSessions]:
    home = tmp_path_factory.mktemp("spark-home")
    events = tmp_path_factory.mktemp("events")
    extra = {"spark.eventLog.enabled": "true", "spark.eventLog.dir": events.as_uri(), "spark.eventLog.compress": "false"}
    extra |= {"spark.ui.enabled": "true", "spark.ui.port": "0"}
    started = SparkSessions(SparkSettings(master="local[2]", home=str(home), extra=extra))
    yield started
    started.stop()


@pytest.mark.spark
def test_the_program_still_handles_ctrl_c_after_a_session_was_started(sessions: SparkSessions) -> None:
    """A SparkContext that starts puts in a handler of its own."""

    def own(number: int, frame: object) -> None: ...

    sessions.stop()
    before = signal.signal(signal.SIGINT, own)
    try:
        assert sessions.session().range(1).count() == 1
        assert signal.getsignal(signal.SIGINT) is own
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.spark
def test_spark_merges_as_this_process_does(tmp_path: Path, sessions: SparkSessions) -> None:
    table = _table(tmp_path)
    tasks = [replace(table.task(), task_id=f"task-{number}") for number in range(3)]
    bad = replace(tasks[0], task_id="bad", work=replace(tasks[0].work, inputs=(replace(tasks[0].work.inputs[0], path="/gone.parquet"),)))
    results = {
        result.task_id: result
        for result in SparkMergeEngine(sessions).merge([each.merge_input(table.layout()) for each in (*tasks, bad)], {})
    }
    assert set(results) == {"task-0", "task-1", "task-2", "bad"}
    assert "missing" in (results["bad"].error or "")
    local = table.merge()
    for task in tasks:
        result = results[task.task_id]
        assert result.error is None
        assert (result.rows_written, result.digest_written) == (local.rows_written, local.digest_written)
    collected = gc_of(sessions.session())
    assert collected is not None
    gc_seconds, up_seconds = collected
    assert 0 <= gc_seconds < up_seconds
    assert up_seconds > 1
    # A moment later the JVM is not asked again.
    note_gc(sessions.session(), time.monotonic())
    assert gc_of(sessions.session()) == collected
    note_gc(sessions.session(), time.monotonic() + 60)
    assert (gc_of(sessions.session()) or (0.0, 0.0))[1] > up_seconds


@pytest.mark.spark
def test_a_session_that_ran_before_is_used_and_left_running(sessions: SparkSessions) -> None:
    context = sessions.session().sparkContext
    other = SparkSessions(sessions.settings)
    assert other.session().sparkContext is context
    other.stop()
    assert sessions.session().sparkContext is context
    assert sessions.session().range(3).count() == 3


@pytest.mark.spark
def test_a_worker_that_dies_fails_its_own_task_only(tmp_path: Path, sessions: SparkSessions, monkeypatch: pytest.MonkeyPatch) -> None:
    table = _table(tmp_path)
    tasks = [replace(table.task(), task_id=name) for name in ("dies", "lives")]
    # This FileIO kills its process, as the operating system does when memory runs out.
    killer = tmp_path / "killer_io.py"
    killer.write_text("import os\nos._exit(9)\n")
    session = sessions.session()
    session.sparkContext.addPyFile(str(killer))
    engine = SparkMergeEngine(sessions)
    [died] = list(engine.merge([each.merge_input(table.layout()) for each in tasks[:1]], {"py-io-impl": "killer_io.Killer"}))
    [lived] = list(engine.merge([each.merge_input(table.layout()) for each in tasks[1:]], {}))
    assert "worker died" in (died.error or "")
    assert lived.error is None


@pytest.mark.spark
def test_a_merge_that_does_not_end_is_canceled_by_its_attempt_and_no_other_is(tmp_path: Path, sessions: SparkSessions) -> None:
    table = _table(tmp_path)
    stuck, other = (replace(table.task(), task_id=name, attempt_id=AttemptId(f"{name}-1")) for name in ("stuck", "other"))
    began = tmp_path / "began"
    sessions.session().sparkContext.addPyFile(str(endless_io(tmp_path, began)))
    engine = SparkMergeEngine(sessions)
    with ThreadPoolExecutor(1) as slot:
        merge = slot.submit(lambda: list(engine.merge([stuck.merge_input(table.layout())], {"py-io-impl": "endless_io.Endless"})))
        while not began.exists():
            assert not merge.done(), merge.result()
        used, process = engine.used_so_far(AttemptId("stuck-1")), psutil.Process(int(began.read_text()))
        if Path("/proc").exists():
            assert used is not None
            assert used.cpu_ms <= 1000 * (process.cpu_times().user + process.cpu_times().system)
            assert 0 < used.peak_memory_bytes < process.memory_info().rss
        assert engine.used_so_far(AttemptId("other-1")) is None
        engine.cancel(AttemptId("other-1"))
        [merged] = engine.merge([other.merge_input(table.layout())], {})
        assert merged.error is None
        assert not merge.done()
        engine.cancel(AttemptId("stuck-1"))
        [ended] = merge.result(timeout=300)
    assert ended.error == "the merge was canceled"
    assert engine.used_so_far(AttemptId("stuck-1")) is None
    # Only when its process is gone too can Spark give the core to another task.
    with suppress(psutil.NoSuchProcess):
        psutil.Process(int(began.read_text())).wait(timeout=300)
    assert [result.error for result in engine.merge([other.merge_input(table.layout())], {})] == [None]


@pytest.mark.spark
def test_changes_of_a_keyed_table_are_merged_on_spark_as_in_this_process(tmp_path: Path, sessions: SparkSessions) -> None:
    log = ChangeLog(tmp_path)
    large, small = log.base_rows(1, 0, [row(1), row(2)]), log.base_rows(1, 0, [row(3), row(4)])
    log.commit_base(large, small)
    merged = log.commit(log.changes(1, "I", 0, [(row(5), 1)]), log.changes(1, "ED", 0, [(row(2), 2), (row(3), 3)]))
    task = task_of(log, merged, choices=Choices(marked=[large.path]))
    [result] = list(SparkMergeEngine(sessions).merge([task.merge_input(layout_of_table(log))], {}))
    here = run(log, task)
    assert result.error is None
    assert figures(result) == figures(here)
    assert (result.digest_read, result.digest_written) == (here.digest_read, here.digest_written)
    removed = [file for file in task.work.inputs if file.path == small.path]
    log.replace_base(result.outputs, removed, {"": merged})
    log.check([row(1), row(4), row(5)])


@pytest.mark.spark
def test_no_secret_stands_in_a_plan_the_event_log_or_a_page_of_spark(tmp_path: Path, sessions: SparkSessions) -> None:
    table = _table(tmp_path)
    secrets = (planted("SecKey"), planted("Token"))
    file_io = {"s3.access-key-id": "AKIA", "s3.secret-access-key": secrets[0], "s3.session-token": secrets[1]}
    # This FileIO says everything that it was given, as a careless library does.
    (tmp_path / "careless_io.py").write_text(
        "class Careless:\n    def __init__(self, properties):\n        raise ValueError(f'no: {properties}')\n"
    )
    session = sessions.session()
    context: Any = session.sparkContext
    context.addPyFile(str(tmp_path / "careless_io.py"))
    merge_input = table.task().merge_input(table.layout())
    engine = SparkMergeEngine(sessions)
    [merged] = list(engine.merge([merge_input], file_io))
    [failed] = list(engine.merge([merge_input], {**file_io, "py-io-impl": "careless_io.Careless"}))
    assert merged.error is None
    assert found_in(failed.error or "", secrets) != set()

    api = f"/api/v1/applications/{context.applicationId}"
    plans, environment = (
        _page(context.uiWebUrl + each) for each in (f"{api}/sql?details=true&planDescription=true&length=9999", f"{api}/environment")
    )
    count = len(json.loads(plans))
    listings = (f"{api}/jobs", f"{api}/stages?details=true", f"{api}/allexecutors", "/environment/", "/jobs/", "/executors/", "/SQL/")
    pages = [_page(context.uiWebUrl + each) for each in (*listings, *(f"/SQL/execution/?id={number}" for number in range(count)))]
    assert plans.count("MapInArrow") >= 2
    assert "spark.eventLog.dir" in environment
    folder = Path(sessions.settings.extra["spark.eventLog.dir"].removeprefix("file://"))
    assert any("MapInArrow" in path.read_text() for path in folder.rglob("*") if path.is_file() and not path.name.endswith(".crc"))
    assert found_in("\n".join((plans, environment, *pages)), secrets) == set()
    assert found_in_files(folder, secrets) == {}


def _page(address: str) -> str:
    with urlopen(address) as answer:
        return str(answer.read().decode())
