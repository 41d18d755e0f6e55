"""The merge engine on Spark. It runs one Spark task for each CompactionTask.

Each task is a Spark job of its own, submitted from a thread. So a worker that crashes or is slow does not fail or delay other tasks, and
results come back as soon as they exist. The jobs of an attempt carry a tag, by which another thread cancels them. The description of a task
travels inside the function that Spark ships. It never stands in the rows or texts of a plan, because FileIO properties hold secrets and
plans are logged.
"""

from __future__ import annotations

import logging
import re
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
from pydantic import TypeAdapter

from compaction_pipeline.core.errors import CompactionError
from compaction_pipeline.core.ids import AttemptId
from compaction_pipeline.core.work.merge_input import MergeInput
from compaction_pipeline.core.work.result import MergeResult, UsedSoFar
from compaction_pipeline.core.work.work import Work
from compaction_pipeline.merging.kernel import merge_task
from compaction_pipeline.merging.so_far import noted, used_by_noted
from compaction_pipeline.spark.session_kind import is_connect, note_gc, runs_here
from compaction_pipeline.spark.worker import shared_deletes, tidy_up_after_task

log = logging.getLogger(__name__)

_RESULT = TypeAdapter(MergeResult)
_RESULT_SCHEMA = "result string"
_CANCELED = re.compile(r"SPARK_JOB_CANCELLED|OPERATION_CANCELED|Job \d+ cancelled")
_PYTHON_ERROR = re.compile(r"(?!py4j|pyspark)[A-Za-z_][\w.]*(Error|Exception|Interrupt): \S")


class Sessions(Protocol):
    """One Spark session, of this program (`session.SparkSessions`) or of somebody else (`given_session.GivenSession`)."""

    def session(self) -> Any:
        """Start the session, or find it running. Raises ConfigError, StorageUnavailable."""

    def running(self) -> Any | None:
        """The session, when it was started."""

    def stop(self) -> None:
        """Stop the session if this program started it."""

    def slots(self) -> int:
        """The number of tasks that Spark runs at a time."""


class SparkMergeEngine:
    """Merges on Spark. `parallel` is the number of jobs submitted at a time. By default it is the number of tasks that Spark runs at a
    time."""

    def __init__(self, sessions: Sessions, parallel: int | None = None) -> None:
        self._sessions = sessions
        self._parallel = parallel
        self._notes: dict[AttemptId, Path] = {}
        """Where the workers of this host note themselves while they merge an attempt."""

    def must_start(self, task: MergeInput[Work] | None) -> bool:
        return task is None

    def ready(self) -> None:
        """Start the session, or find it running."""
        self._sessions.session()

    def merge(self, tasks: Sequence[MergeInput[Work]], file_io: Mapping[str, str]) -> Iterator[MergeResult]:
        if not tasks:
            return
        try:
            session = self._sessions.session()
            if len(tasks) == 1:
                yield self._run(session, tasks[0], dict(file_io))
                return
            threads = min(len(tasks), self._parallel or self._sessions.slots())
        except CompactionError as error:
            for task in tasks:
                yield _failed(task, str(error))
            return
        pool = ThreadPoolExecutor(threads, thread_name_prefix="merge")
        try:
            for future in as_completed([pool.submit(self._run, session, task, dict(file_io)) for task in tasks]):
                yield future.result()
        finally:
            # A caller that stops listening (its lease is lost, or it was interrupted) does not want further tasks to start.
            pool.shutdown(wait=False, cancel_futures=True)

    def _run(self, session: Any, task: MergeInput[Work], file_io: Mapping[str, str]) -> MergeResult:
        try:
            with self._note(session, task.attempt_id) as note, _tagged(session, _tag(task.attempt_id)):
                rows = session.range(0, 1, 1, 1).mapInArrow(_shipped(task, file_io, note), _RESULT_SCHEMA).collect()
            note_gc(session, time.monotonic())
            return _RESULT.validate_json(rows[0][0])
        except Exception as error:
            # A worker crashed, the JVM is gone, or Spark refused the plan. Any error fails this task alone.
            return _failed(task, _spark_reason(error))

    def cancel(self, attempt_id: AttemptId) -> None:
        try:
            session = self._sessions.running()
            if session is not None and is_connect(session):
                session.interruptTag(_tag(attempt_id))
            elif session is not None:
                session.sparkContext.cancelJobsWithTag(_tag(attempt_id))
        except Exception as error:
            # The JVM or the server of Spark Connect does not answer. The worker asks again at its next heartbeat.
            log.warning("attempt=%s the merge was not canceled: %s", attempt_id, _spark_reason(error))

    @contextmanager
    def _note(self, session: Any, attempt_id: AttemptId) -> Iterator[Path | None]:
        """The file in which the worker of an attempt notes itself; None where workers are on other hosts, or no file can be made."""
        folder = _folder() if runs_here(session) else None
        if folder is None:
            yield None
            return
        with folder as name:
            note = self._notes[attempt_id] = Path(name) / "worker"
            try:
                yield note
            finally:
                self._notes.pop(attempt_id, None)

    def used_so_far(self, attempt_id: AttemptId) -> UsedSoFar | None:
        note = self._notes.get(attempt_id)
        return None if note is None else used_by_noted(note)

    def close(self) -> None:
        self._sessions.stop()


def _folder() -> tempfile.TemporaryDirectory[str] | None:
    """A folder that only this user may open. A worker that is told to stop may still write into it while it is removed."""
    try:
        return tempfile.TemporaryDirectory(prefix="compaction-merge-", ignore_cleanup_errors=True)
    except OSError as error:
        log.info("running merges do not tell what they use, because there is no place for their notes: %s", error)
        return None


def _tag(attempt_id: AttemptId) -> str:
    """The tag of the Spark jobs of an attempt."""
    return f"compaction-attempt-{attempt_id}"


@contextmanager
def _tagged(session: Any, tag: str) -> Iterator[None]:
    """Give this tag to the jobs that this thread starts until the block ends."""
    # A session that is no client of Spark Connect finds its own tags only in the thread that set them. The context finds its tags in all.
    context = None if is_connect(session) else session.sparkContext
    (session.addTag if context is None else context.addJobTag)(tag)
    try:
        yield
    finally:
        (session.removeTag if context is None else context.removeJobTag)(tag)


def _shipped(
    task: MergeInput[Work], file_io: Mapping[str, str], note: Path | None
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function that runs in the Spark task. Its closure holds everything that the task needs."""

    def merge(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if batch.num_rows:
                with noted(note, shared_deletes().nbytes):
                    result = merge_task(task, file_io, shared_deletes())
                yield pa.RecordBatch.from_pydict({"result": [_RESULT.dump_json(result).decode()]})
        tidy_up_after_task()

    return merge


def _failed(task: MergeInput[Work], reason: str) -> MergeResult:
    return MergeResult(task.task_id, task.attempt_id, error=reason)


def _spark_reason(error: Exception) -> str:
    text = str(error)
    if "Python worker exited unexpectedly" in text or "crashed" in text:
        return (
            "the Spark worker died while merging, most likely killed for lack of memory; "
            "lower 'compaction.task.memory' or give the workers more memory"
        )
    if _CANCELED.search(text):
        return "the merge was canceled"
    # If a worker failed, Spark's message holds the Python traceback, and then Java's stack. The last line of the traceback says what was
    # wrong.
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    raised = [line for line in lines if _PYTHON_ERROR.match(line)]
    return f"Spark could not run the task: {(raised or lines or [type(error).__name__])[-1 if raised else 0]}"
