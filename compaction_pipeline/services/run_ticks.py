"""Does the work of the sensors where no Dagster runs.

It keeps the queue going, lists catalogs, refreshes, plans and commits tables, and cleans up. Several servers may run on one state database.
The work has parts with a lease each, because a server may leave the tables to Dagster and keep only the queue, and one without a receiver
tells nobody what is ready. The holder of a lease does its part; another server takes over when it is silent. Sensors of Dagster may work
beside them, because each table has leases of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum

from compaction_pipeline.core.capacity.scaling.observation import AT_ONCE
from compaction_pipeline.services.capacity.scale_groups import ScaleGroups
from compaction_pipeline.services.held_lease import Leases
from compaction_pipeline.services.keep import KeepWatch
from compaction_pipeline.services.queue.maintain_optimizers import MaintainOptimizers
from compaction_pipeline.services.sweep import SweepTables
from compaction_pipeline.services.tables.explore_catalogs import ExploreCatalogs
from compaction_pipeline.services.upkeep.maintain_tables import MaintainTables

LEASE = timedelta(seconds=12)
"""The holder of a lease may be silent for this long before another server takes over."""
KEEP_EVERY = timedelta(seconds=4)
"""Leases are renewed this often, and the keeper looks this often for what dead workers held."""
TICK_EVERY = timedelta(seconds=5)
"""Tables are refreshed, planned and committed this often, or as often as the machine allows."""
LOOK_EVERY = timedelta(seconds=0.2)
"""The leader looks for reports of commits this often, also for those that other servers took."""
CLEAN_UP_EVERY = timedelta(days=1)
"""Leftover files, old records and ended tasks are removed this often, whichever server does it."""
SCALE_EVERY = AT_ONCE
"""The keeper finds out this often whether it is time to look at a group that is scaled. That asks nothing of the state database."""
WATCH_EVERY = timedelta(seconds=30)
"""The keeper looks this often whether a group or a container has changed, or a group has work again."""
LOOK_FOR_CLEAN_UP_EVERY = timedelta(minutes=1)
"""A server finds out this often whether it is time to clean up."""
_NEARLY = timedelta(seconds=1)
"""What the times of calls differ."""
_BUDGET = timedelta(seconds=20)
_CLEANED_UP = "clean-up"
_CLEANING_UP = "cleaning up"


class Part(str, Enum):
    """A part of the work. Its value is the name of its lease."""

    KEEPER = "keeper"
    TICK = "tick"
    CALLBACKS = "callbacks"


@dataclass(frozen=True, slots=True)
class Times:
    """How often catalogs are listed and groups are maintained, and how long optimizers that have ended are remembered."""

    explore_every: timedelta
    maintain_every: timedelta
    remember: timedelta


class RunTicks:
    """Verbs of the parts of the work. They keep the leases and the times; what is done then stands in the services that they call.

    A server notes its presence. It may lead a part, and resign. The keeper has the verbs keep, maintain and watch. The tables have tick,
    look_at_reported and clean_up.
    """

    def __init__(
        self,
        keep_watch: KeepWatch,
        optimizers: tuple[ScaleGroups, MaintainOptimizers],
        explore_catalogs: ExploreCatalogs,
        sweep_tables: SweepTables,
        maintain_tables: MaintainTables,
        leases: Leases,
        times: Times,
    ) -> None:
        self._keep_watch = keep_watch
        self._scale_groups, self._maintain_optimizers = optimizers
        self._explore_catalogs = explore_catalogs
        self._sweep_tables = sweep_tables
        self._maintain_tables = maintain_tables
        self._leases = leases
        self._clock = leases.clock
        self._owner = leases.new_owner()
        self._times = times
        self.maintain_every = times.maintain_every
        self._watched_at: datetime | None = None
        self._waits: frozenset[str] = frozenset()
        self._explored_at: datetime | None = None
        self._forgot_at: datetime | None = None
        self._cursor: str | None = None

    def note_presence(self) -> None:
        """Note that this server is there, so that the optimizers that it serves are not called lost for the silence of a server.

        Every server does this every `KEEP_EVERY`, whether it leads or not.
        """
        self._keep_watch.note_server(self._owner)

    def lead(self, part: Part) -> bool:
        """Renew the lease of a part, or take it when nobody holds it. Return whether this server does this part now."""
        return self._leases.lead(part.value, self._owner, LEASE)

    def resign(self) -> None:
        """Let another server do all parts at once."""
        for part in Part:
            self._leases.release(part.value, self._owner)

    def keep(self) -> None:
        """Free what dead processes held, settle their commits, mark silent optimizers as LOST, and forget those that ended long ago.

        Only the holder of the lease KEEPER does this.
        """
        now = self._clock()
        self._keep_watch.watch(KEEP_EVERY)
        if self._forgot_at is None or now - self._forgot_at >= self._times.explore_every:
            self._keep_watch.forget(now - self._times.remember)
            self._forgot_at = now

    def maintain(self) -> None:
        """Start and drain optimizers, so that each group has those that it wants. Only the holder of the lease KEEPER does this."""
        self._maintain_optimizers.maintain()

    def watch(self) -> None:
        """Decide how many optimizers groups with a policy want. Start and drain at once when something has changed.

        That is a group or a container, what a policy wants, or that a group has work again. It is asked every `SCALE_EVERY`, and looks for
        changes every `WATCH_EVERY`. Only the holder of the lease KEEPER does this.
        """
        now, changed = self._clock(), False
        is_turn = self._watched_at is None or not timedelta(0) <= now - self._watched_at < WATCH_EVERY - _NEARLY
        try:
            changed = self._scale_groups.scale(self._waits)
        finally:
            # What people have changed does not wait for the mending of a policy.
            if is_turn or changed:
                self._watched_at = now
                self._waits = self._maintain_optimizers.watch()

    def tick(self) -> None:
        """Discover, refresh, plan and commit what is due. When one catalog or table fails, the others go on.

        Only the holder of the lease TICK does this.
        """
        now = self._clock()
        if self._explored_at is None or now - self._explored_at >= self._times.explore_every:
            self._explore_catalogs.explore()
            self._explored_at = now
        # The cursor is kept first: an error of a commit must not make the next tick begin with the same tables again.
        self._cursor = self._sweep_tables.sweep(self._cursor, _BUDGET).cursor
        self._sweep_tables.plan_and_commit(_BUDGET)

    def look_at_reported(self) -> None:
        """Refresh and plan the tables whose commits were reported just now. Only the holder of the lease TICK does this.

        This is a shortcut: when it does not happen, the next tick does the same.
        """
        self._sweep_tables.look_at_reported(_BUDGET)

    def clean_up(self, is_over: Callable[[], bool]) -> None:
        """Remove leftover files, old records and ended tasks, once a day. Only the holder of the lease TICK does this.

        A lease that lasts for the day remembers that it was done, so a server that starts does not do it again. A round that an error ends,
        or that stops because `is_over()` is true, begins anew at the next call. After a server was killed in the middle, another begins
        anew a minute later.
        """
        if self._is_cleaned_up():
            return
        with self._leases.hold(_CLEANING_UP) as held:
            if held is None or self._is_cleaned_up() or self._maintain_tables.maintain(is_over).stopped:
                return
            self._leases.lead(_CLEANED_UP, self._owner, CLEAN_UP_EVERY)

    def _is_cleaned_up(self) -> bool:
        return self._leases.holder(_CLEANED_UP) is not None
