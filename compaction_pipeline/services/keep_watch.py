"""Does the keeper's part: it marks silent optimizers as LOST, frees what dead processes held, and settles their commits.

`keeper_sensor` and the server that leads do this every few seconds. The keeper also knows which runs of Dagster have no process any more:
each run holds a lease, beside those of its tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

from compaction_pipeline.core.leases.ports import Clock, Heartbeat, LeaseStore
from compaction_pipeline.core.queue.ports import WatcherStore
from compaction_pipeline.core.queue.watchers import LONGEST_GAP, WatcherKind, lost_leases
from compaction_pipeline.services.held_lease import done_at, held_lease, note_done
from compaction_pipeline.services.queue.serve_optimizers import ServeOptimizers
from compaction_pipeline.services.tick_tables import Kept, TickTables

_KEEPER = "keeper"
_REMEMBERED = timedelta(days=30)
"""A run that was killed is known as lost for this long."""


@dataclass(frozen=True, slots=True)
class Watched:
    """What one call did. `lost` are the ids of the optimizers that it marked as LOST."""

    lost: Sequence[str]
    kept: Kept


class KeepWatch:
    """The verbs of the keeper: `keep`, and `is_lost` about runs. A run has the verb `hold_run`."""

    def __init__(
        self,
        watchers: WatcherStore,
        leases: LeaseStore,
        serve_optimizers: ServeOptimizers,
        tick_tables: TickTables,
        clock: Clock,
        heartbeat: Heartbeat,
        new_owner: Callable[[], str],
    ) -> None:
        self._watchers = watchers
        self._leases = leases
        self._heartbeat = heartbeat
        self._new_owner = new_owner
        self._serve_optimizers = serve_optimizers
        self._tick_tables = tick_tables
        self._clock = clock

    def keep(self, every: timedelta) -> Watched:
        """Do the keeper's part once. A keeper calls this every `every`.

        A longer time between two calls was a break: longer than `LONGEST_GAP` and than 2 × `every`. Raises StorageUnavailable.
        """
        # After a break, for example because the state database was away, holders get the time to renew their leases first.
        self._watchers.renew(_KEEPER, WatcherKind.KEEPER, self._clock(), max(LONGEST_GAP, 2 * every))
        lost = self._serve_optimizers.lose_silent()
        return Watched(lost, self._tick_tables.keep())

    @contextmanager
    def hold_run(self, run_id: str) -> Iterator[None]:
        """Show that a run has a process, until the block ends. When the process is killed, the run is lost a minute later."""
        began, owner = _began(run_id), self._new_owner()
        note_done(self._leases, began, self._clock(), _REMEMBERED)
        try:
            with held_lease(self._leases, self._clock, self._heartbeat, _run(run_id), owner):
                yield
        finally:
            self._leases.release(began, began)

    def is_lost(self, run_id: str) -> bool:
        """Whether a run held its lease, did not give it back, and lost it. A run that nobody has heard of is not lost.

        After a break of the keeper a run has the time to renew its lease first, as tasks have.
        """
        if done_at(self._leases, _began(run_id), self._clock(), _REMEMBERED) is None:
            return False
        ended_by = lost_leases(self._watchers.watchers(), self._clock()).ended_by
        return self._leases.holder(_run(run_id), ended_by) is None


def _run(run_id: str) -> str:
    return f"run:{run_id}"


def _began(run_id: str) -> str:
    return f"run began:{run_id}"
