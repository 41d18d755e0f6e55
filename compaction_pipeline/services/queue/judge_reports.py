"""Judges the reports of merges. Where a resource group asks for it, the rows are compared with those that the task must write."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Lock

from compaction_pipeline.core.errors import MergeFailed, MergeRefused, OutputUnusable, StaleAttempt
from compaction_pipeline.core.ids import AttemptId
from compaction_pipeline.core.queue.ports.groups import GroupStore
from compaction_pipeline.core.queue.task import CompactionTask
from compaction_pipeline.core.tables.table import TableLayout
from compaction_pipeline.core.work.merge_input import MergeInput
from compaction_pipeline.core.work.result import MergeResult
from compaction_pipeline.core.work.work import Work

log = logging.getLogger(__name__)

Judge = Callable[[MergeInput[Work], MergeResult, Mapping[str, str]], MergeResult]
"""Returns a result as it may be stored, or raises as `merging.reported.judge.judge` does."""
Verify = Callable[[MergeInput[Work], MergeResult, Mapping[str, str]], "str | None"]
"""Returns why the rows of a report cannot be true. Raises MergeFailed when nobody can tell."""
_KEPT = 200
"""So many answers are kept for optimizers that have not asked for them. One that comes too late has its rows compared again."""


class JudgeReports:
    """One verb: judged. Several threads may use it at once.

    The rows of one report are compared at a time, because that costs about as much as its merge.
    """

    def __init__(self, groups: GroupStore, judge: Judge, verify: Verify) -> None:
        self._groups = groups
        self._judge = judge
        self._verify = verify
        self._turn = Lock()
        self._guard = Lock()
        self._pool: ThreadPoolExecutor | None = None
        self._asked: dict[AttemptId, tuple[MergeResult, Future[None]]] = {}

    def judged(
        self, task: CompactionTask, result: MergeResult, layout: TableLayout, file_io: Mapping[str, str], *, wait: bool
    ) -> MergeResult | None:
        """Return the result as it may be stored: its files are described by their footers. `file_io` opens them.

        Without `wait`, None says that its rows are being compared. Raises MergeRefused when the report cannot be true, and OutputUnusable
        when nobody can tell.
        """
        described = self._judge(task.merge_input(layout), result, file_io)
        if not self._is_compared(task, described):
            return described
        if wait:
            self._compare(task, described, layout, file_io)
        elif not self._has_ended(task, described, layout, file_io):
            return None
        return described

    def _is_compared(self, task: CompactionTask, result: MergeResult) -> bool:
        """Whether the group of the task wants the rows of this result to be compared."""
        if result.error is not None:
            return False
        group = self._groups.group(task.queue)
        return group is not None and group.verifies_rows

    def _compare(self, task: CompactionTask, result: MergeResult, layout: TableLayout, file_io: Mapping[str, str]) -> None:
        """Compare the rows now. `result` was described by its footers.

        Raises MergeRefused when they are not those of the task, and OutputUnusable when nobody can tell.
        """
        try:
            with self._turn:
                log.info("table=%s task=%s attempt=%s its rows are compared", task.table, task.task_id, task.attempt_id)
                problem = self._verify(task.merge_input(layout), result, file_io)
        except MergeFailed as error:
            raise OutputUnusable(f"its rows could not be compared: {error}") from error
        if problem is not None:
            raise MergeRefused(f"its rows are not those of the task: {problem}")

    def _has_ended(self, task: CompactionTask, result: MergeResult, layout: TableLayout, file_io: Mapping[str, str]) -> bool:
        """Begin to compare the rows in the background, or find out whether that has ended. Raises as `_compare` does, once it has ended.

        Raises StaleAttempt while another report of the same attempt is compared: the answer about that one says nothing about this one.
        """
        attempt_id = task.current_attempt_id
        with self._guard:
            reported, asked = self._asked.get(attempt_id, (None, None))
            if reported is not None and reported.told() != result.told():
                raise StaleAttempt(f"attempt {attempt_id!r} reported something else before, which is compared now; this changes nothing")
            # What was found out holds for the very files that were compared. Another version of them is compared anew.
            if asked is None or reported != result:
                if asked is not None:
                    asked.cancel()
                self._pool = self._pool or ThreadPoolExecutor(1, thread_name_prefix="verify")
                asked = self._pool.submit(self._compare, task, result, layout, file_io)
                self._asked[attempt_id] = (result, asked)
                ended = [each for each, (_, future) in self._asked.items() if future.done()]
                for each in ended[: max(0, len(self._asked) - _KEPT)]:
                    del self._asked[each]
            if not asked.done():
                return False
            self._asked.pop(attempt_id, None)
        asked.result()
        return True
