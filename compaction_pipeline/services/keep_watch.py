"""Does the keeper's part: it marks silent optimizers as LOST, frees what dead processes held, and settles their commits.

`keeper_sensor` and the server that leads do this every few seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from compaction_pipeline.core.leases.ports import Clock
from compaction_pipeline.core.queue.ports import WatcherStore
from compaction_pipeline.core.queue.watchers import LONGEST_GAP, WatcherKind
from compaction_pipeline.services.queue.serve_optimizers import ServeOptimizers
from compaction_pipeline.services.tick_tables import Kept, TickTables

_KEEPER = "keeper"


@dataclass(frozen=True, slots=True)
class Watched:
    """What one call did. `lost` are the ids of the optimizers that it marked as LOST."""

    lost: Sequence[str]
    kept: Kept


class KeepWatch:
    """The keeper's verb: `keep`."""

    def __init__(
        self,
        watchers: WatcherStore,
        serve_optimizers: ServeOptimizers,
        tick_tables: TickTables,
        clock: Clock,
    ) -> None:
        self._watchers = watchers
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
