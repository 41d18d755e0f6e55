"""Watches one attempt while it is merged: renews its lease, tells what it has used, and stops a merge whose attempt has lost its task.

A running attempt loses its task when it takes too long, when its lease ends (the network paused), when its worker registers anew, or when a
person cancels the task. Whatever it still writes would be of no use, and the slot is needed for other tasks.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime

from compaction_pipeline.core.leases.ports import Clock
from compaction_pipeline.core.queue.attempts import STUCK_AFTER, is_stuck
from compaction_pipeline.core.queue.ports.work import TaskQueue
from compaction_pipeline.core.queue.task import CompactionTask
from compaction_pipeline.core.words import duration_text
from compaction_pipeline.core.work.merge_engine import MergeEngine

log = logging.getLogger(__name__)


class WatchAttempt:
    """One verb: renew. A heartbeat calls it in a thread of its own until the end of the attempt is reported."""

    def __init__(self, task: CompactionTask, queue: TaskQueue, engine: MergeEngine, clock: Clock, stuck: Callable[[str], None]) -> None:
        """`stuck` is called, perhaps several times, when the merge goes on a while after the engine was told to stop it.

        It gets a sentence that says so.
        """
        self._task = task
        self._queue = queue
        self._engine = engine
        self._clock = clock
        self._stuck = stuck
        self._lost_at: datetime | None = None
        self._merged = False

    def merged(self) -> None:
        """Note that the merge has ended. From now on the lease is only renewed, because a task that is Prepared has no lease."""
        self._merged = True

    def renew(self) -> None:
        """Renew the lease and tell what the merge has used, or have it stopped when the attempt has lost its task.

        Raises StorageUnavailable.
        """
        attempt_id = self._task.current_attempt_id
        if self._lost_at is None:
            used = None if self._merged else self._engine.used_so_far(attempt_id)
            if attempt_id in self._queue.renew([attempt_id], {} if used is None else {attempt_id: used}) or self._merged:
                return
            self._lost_at = self._clock()
            log.warning(
                "table=%s task=%s attempt=%s has lost its task: its merge is stopped", self._task.table, self._task.task_id, attempt_id
            )
        if self._merged:
            return
        self._engine.cancel(attempt_id)
        if is_stuck(self._lost_at, self._clock()):
            late = duration_text(STUCK_AFTER)
            self._stuck(f"the merge of attempt {attempt_id} of {self._task.table} still runs {late} after it was told to stop")
