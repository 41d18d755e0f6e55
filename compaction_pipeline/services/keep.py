"""Does the keeper's part: it marks silent optimizers as LOST, frees what dead processes held, and settles their commits.

`keeper_sensor` and the server that leads watch every few seconds. Other sensors, and runs before their work, only keep.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from compaction_pipeline.core.commit.record import CompactionRecord
from compaction_pipeline.core.errors import CompactionError
from compaction_pipeline.core.leases.ports import Clock
from compaction_pipeline.core.queue.ports.optimizers import WatcherStore
from compaction_pipeline.core.queue.watchers import LONGEST_GAP, WatcherKind, lost_leases, servers_of
from compaction_pipeline.services.access.keep_tokens import KeepTokens
from compaction_pipeline.services.commit.commit_tables import CommitTables
from compaction_pipeline.services.planning.plan_tables import PlanTables
from compaction_pipeline.services.queue.keep_queue import KeepQueue, KeptQueue
from compaction_pipeline.services.queue.serve_optimizers import ServeOptimizers

log = logging.getLogger(__name__)

_KEEPER = "keeper"


@dataclass(frozen=True, slots=True)
class Kept:
    """What `keep` did.

    `returned` are the tasks that it took from dead or endless attempts, `settled` are records, and `retried` are the failed tasks that it
    put back into the queue.
    """

    returned: tuple[str, ...] = ()
    settled: tuple[CompactionRecord, ...] = ()
    retried: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Watched:
    """What one call did. `lost` are the ids of the optimizers that it marked as LOST."""

    lost: Sequence[str]
    kept: Kept


class KeepWatch:
    """Verbs of the keeper, from the smallest to the largest: keep the queue, keep, and watch. Once in a while it forgets."""

    def __init__(
        self,
        watchers: WatcherStore,
        serve_optimizers: ServeOptimizers,
        keep_tokens: KeepTokens,
        keep_queue: KeepQueue,
        plan_tables: PlanTables,
        commit_tables: CommitTables,
        clock: Clock,
    ) -> None:
        self._watchers = watchers
        self._serve_optimizers = serve_optimizers
        self._keep_tokens = keep_tokens
        self._keep_queue = keep_queue
        self._plan_tables = plan_tables
        self._commit_tables = commit_tables
        self._clock = clock

    def keep_queue(self) -> KeptQueue:
        """Keep the queue, and judge the tables anew whose tasks turned out to be outdated. Their nodes may be due for other work."""
        kept = self._keep_queue.keep()
        for table in kept.to_judge:
            try:
                self._plan_tables.judge(table)
            except CompactionError as error:
                # The next plan of the table judges its nodes too.
                log.warning("table=%s not judged: %s", table, error)
        return kept

    def keep(self) -> Kept:
        """Keep the queue, and settle commits that were cut off, so that dead processes hold nothing.

        `snapshot_sensor`, `failure_sensor`, `compact_job` and `commit_job` do this first.
        """
        kept = self.keep_queue()
        return Kept((*kept.lost, *kept.timed_out), tuple(self._commit_tables.settle()), kept.put_back)

    def watch(self, every: timedelta) -> Watched:
        """Do the keeper's part once. A keeper calls this every `every`.

        A longer time between two calls was a break: longer than `LONGEST_GAP` and than 2 × `every`. Raises StorageUnavailable.
        """
        # After a break, for example because the state database was away, holders get the time to renew their leases first.
        self._watchers.renew(_KEEPER, WatcherKind.KEEPER, self._clock(), max(LONGEST_GAP, 2 * every))
        return Watched(self.lose_silent(), self.keep())

    def lose_silent(self) -> Sequence[str]:
        """Mark silent optimizers as LOST. Those that no server could have heard get more time, as `core.queue.watchers` decides."""
        watchers, now = self._watchers.watchers(), self._clock()
        ended_by = lost_leases(watchers, now).ended_by_of_optimizers
        return self._serve_optimizers.lose_silent(ended_by, late_too=not servers_of(watchers, now))

    def note_server(self, name: str) -> None:
        """Note that this server is there to hear of its optimizers. `name` is one life of one process. Raises StorageUnavailable."""
        self._watchers.renew(name, WatcherKind.SERVER, self._clock(), LONGEST_GAP)

    def forget(self, before: datetime) -> None:
        """Forget optimizers that ended before this time, and the tokens that nobody accepts any more."""
        self._serve_optimizers.forget(before)
        remembered = [optimizer.optimizer_id for optimizer in self._serve_optimizers.optimizers()]
        self._keep_tokens.forget(before, remembered)
