"""Keeps the queue going: frees tasks of dead and endless attempts, puts back what failed a while ago, and has tasks moved.

Every step is one compare-and-set in the store, so any number of processes may do this at the same time.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from compaction_pipeline.core.errors import NotFoundError
from compaction_pipeline.core.ids import TaskId
from compaction_pipeline.core.insight.ports import TableReader
from compaction_pipeline.core.leases.ports import Clock
from compaction_pipeline.core.queue.ports.tasks import TaskStore
from compaction_pipeline.core.queue.retries import retries
from compaction_pipeline.core.tables.index import Refused
from compaction_pipeline.core.tables.ports.files import FileStore
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.work.ends import EndReason
from compaction_pipeline.core.work.merged import MergedWork
from compaction_pipeline.core.work.work import Work
from compaction_pipeline.services.queue.lost_attempts import LostAttempts

log = logging.getLogger(__name__)

MOST_RETRIES = 1_000
"""One call puts back at most this many tasks, so that it stays short. The next call is a few seconds away."""

_GONE = "a data file of the task is no longer part of the table; the node is planned again"
_REFUSED = "the table became one that is never compacted"


@dataclass(frozen=True, slots=True)
class KeptQueue:
    """What one call did. `to_judge` are the tables of `outdated` tasks: their nodes must be judged anew."""

    lost: tuple[TaskId, ...] = ()
    timed_out: tuple[TaskId, ...] = ()
    put_back: tuple[TaskId, ...] = ()
    outdated: tuple[TaskId, ...] = ()
    to_judge: tuple[TableIdentifier, ...] = ()


class KeepQueue:
    """One verb: keep."""

    def __init__(
        self,
        tables: TableReader,
        files: FileStore,
        tasks: TaskStore,
        lost_attempts: LostAttempts,
        move: Callable[[], None],
        note_use: Callable[[], None],
        clock: Clock,
    ) -> None:
        """`move` moves waiting tasks to the groups and teams that their tables have now. `note_use` notes how optimizers are used."""
        self._tables = tables
        self._files = files
        self._tasks = tasks
        self._move = move
        self._note_use = note_use
        self._lost_attempts = lost_attempts
        self._clock = clock

    def keep(self) -> KeptQueue:
        """End lost and endless attempts, put back the FAILED tasks whose time has come, and move tasks to their table's queue.

        Raises StorageUnavailable.
        """
        now = self._clock()
        lost = self._lost_attempts.release(now)
        timed_out = self._lost_attempts.end_overdue(now)
        put_back: list[TaskId] = []
        outdated: dict[TaskId, TableIdentifier] = {}
        unread: set[TableIdentifier] = set()
        while True:
            due: dict[TableIdentifier, list[MergedWork[Work]]] = defaultdict(list)
            for task in self._tasks.waiting_for_retry(now, MOST_RETRIES, unread):
                due[task.table].append(task)
            for table, tasks in due.items():
                if self._is_refused(table):
                    outdated.update(dict.fromkeys(self._canceled([task.task_id for task in tasks], _REFUSED), table))
                    continue
                live = self._live_paths(table, tasks)
                if live is None:
                    # The table is being read, or it changed just now. The next call asks again.
                    unread.add(table)
                    continue
                decided = retries(tasks, live)
                put_back += self._tasks.retry(decided.put_back)
                outdated.update(dict.fromkeys(self._canceled(decided.outdated, _GONE), table))
            if put_back or outdated or not unread.intersection(due):
                break
            # All of these wait for their tables to be read. They must not keep the tasks of other tables waiting.
        if lost or timed_out or put_back or outdated:
            counts = (len(lost), len(timed_out), len(put_back), len(outdated))
            log.info("%d lost attempt(s), %d endless attempt(s), %d task(s) put back, %d outdated task(s)", *counts)
        self._move()
        self._note_use()
        return KeptQueue(tuple(lost), tuple(timed_out), tuple(put_back), tuple(outdated), tuple(dict.fromkeys(outdated.values())))

    def _live_paths(self, table: TableIdentifier, tasks: Sequence[MergedWork[Work]]) -> frozenset[str] | None:
        """Return the live data files of the nodes of these tasks. Return None when the index is not one whole snapshot now."""
        try:
            read = self._tables.state(table).whole
            if read is None:
                return None
            files = self._files.files(table, {task.work.node for task in tasks})
            # The files are read between two looks at the index, as for a plan. They are those of one snapshot when both show the same.
            again = self._tables.state(table).whole
            is_same = again is not None and again.read_id == read.read_id
            return frozenset(file.path for file in files if file.is_data) if is_same else None
        except NotFoundError:
            return None

    def _is_refused(self, table: TableIdentifier) -> bool:
        try:
            return isinstance(self._tables.state(table).index.state, Refused)
        except NotFoundError:
            return False

    def _canceled(self, task_ids: Sequence[TaskId], reason: str) -> Sequence[TaskId]:
        return self._tasks.cancel(task_ids, EndReason.OUTDATED, reason, self._clock()) if task_ids else ()
