"""Does the work of the sensors where no Dagster runs: it keeps the queue going, lists catalogs, and refreshes, plans and commits tables.

Several servers may run on one state database. The one that holds the lease `keeper` works; another takes over when it is silent. Sensors of
Dagster may work beside it, because each table has leases of its own.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime, timedelta

from compaction_pipeline.core.leases.ports import Clock, LeaseStore
from compaction_pipeline.services.access.keep_tokens import KeepTokens
from compaction_pipeline.services.planning.plan_tables import PlanTables
from compaction_pipeline.services.queue.serve_optimizers import ServeOptimizers
from compaction_pipeline.services.tables.explore_catalogs import ExploreCatalogs
from compaction_pipeline.services.tick_tables import TickTables

log = logging.getLogger(__name__)

KEEPER_LEASE = timedelta(seconds=12)
"""The leader may be silent for this long before another server takes over."""
KEEP_EVERY = timedelta(seconds=4)
"""The leader renews its lease, and looks for what dead workers held, this often."""
TICK_EVERY = timedelta(seconds=5)
"""Tables are refreshed, planned and committed this often, or as often as the machine allows."""
LOOK_EVERY = timedelta(seconds=1)
"""The leader looks for reports of commits this often, also for those that other servers took."""
_BUDGET = timedelta(seconds=20)
_NAME = "keeper"


class RunTicks:
    """Five verbs: lead, resign, keep, tick, look_at_reported."""

    def __init__(
        self,
        tick_tables: TickTables,
        plan_tables: PlanTables,
        explore_catalogs: ExploreCatalogs,
        serve_optimizers: ServeOptimizers,
        keep_tokens: KeepTokens,
        leases: LeaseStore,
        clock: Clock,
        new_owner: Callable[[], str],
        explore_every: timedelta,
        remember: timedelta,
    ) -> None:
        """`remember` is how long optimizers that have ended are remembered, with their tokens."""
        self._tick_tables = tick_tables
        self._plan_tables = plan_tables
        self._explore_catalogs = explore_catalogs
        self._serve_optimizers = serve_optimizers
        self._keep_tokens = keep_tokens
        self._leases = leases
        self._clock = clock
        self._owner = new_owner()
        self._explore_every = explore_every
        self._remember = remember
        self._explored_at: datetime | None = None
        self._cursor: str | None = None

    def lead(self) -> bool:
        """Renew the lease of the leader, or take it when nobody holds it. Return whether this server leads now."""
        now = self._clock()
        return self._leases.renew(_NAME, self._owner, now, KEEPER_LEASE) or self._leases.acquire(_NAME, self._owner, now, KEEPER_LEASE)

    def resign(self) -> None:
        """Let another server lead at once."""
        self._leases.release(_NAME, self._owner)

    def keep(self) -> None:
        """Free what dead processes held, settle their commits, and mark silent optimizers as LOST. Only the leader does this."""
        self._serve_optimizers.lose_silent()
        self._tick_tables.keep()

    def tick(self) -> None:
        """Discover, refresh, plan and commit what is due. When one catalog or table fails, the others go on. Only the leader does this."""
        now = self._clock()
        if self._explored_at is None or now - self._explored_at >= self._explore_every:
            self._explore_catalogs.explore()
            self._forget(now - self._remember)
            self._explored_at = now
        self._cursor = self._tick_tables.sweep(self._cursor, _BUDGET).cursor
        self._tick_tables.plan_due(self._plan_tables.worth_planning(), _BUDGET)
        for record in self._tick_tables.commit_due():
            log.info("table=%s record=%s %s", record.table, record.record_id, record.status.value)

    def look_at_reported(self) -> None:
        """Refresh and plan the tables whose commits were reported just now. Only the leader does this.

        This is a shortcut: when it does not happen, the next tick does the same.
        """
        refreshed = self._tick_tables.sweep_reported(_BUDGET)
        changed = {refresh.table: frozenset(refresh.changed) for refresh in refreshed if refresh.changed}
        self._tick_tables.plan_due(changed, _BUDGET, nodes=changed)

    def _forget(self, before: datetime) -> None:
        """Forget optimizers that ended long ago, and the tokens that nobody accepts any more."""
        self._serve_optimizers.forget(before)
        remembered = [optimizer.optimizer_id for optimizer in self._serve_optimizers.optimizers()]
        self._keep_tokens.forget(before, remembered)
