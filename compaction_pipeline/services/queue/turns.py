"""Says which tables have their turn first in queues whose order is QUOTA."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from compaction_pipeline.core.errors import NotFoundError
from compaction_pipeline.core.insight.ports import TableReader
from compaction_pipeline.core.leases.ports import Clock
from compaction_pipeline.core.queue.group import QueueOrder
from compaction_pipeline.core.queue.ports.groups import GroupStore
from compaction_pipeline.core.queue.ports.optimizers import OptimizerStore
from compaction_pipeline.core.queue.ports.tasks import TaskStore
from compaction_pipeline.core.queue.quota import LOOKS_BACK, entitled_slots, group_slots, turns
from compaction_pipeline.core.tables.ports.catalogs import CatalogStore
from compaction_pipeline.core.tables.properties import properties_or_defaults
from compaction_pipeline.core.tables.table import TableIdentifier

RENEWED_EVERY = timedelta(seconds=5)
"""The occupation of a group's tables is measured anew at most this often, always as a whole, from the attempts. So it cannot drift."""


class Turns:
    """`of` answers which tables have their turn first in a queue. A process keeps the answer for a few seconds."""

    def __init__(
        self,
        groups: GroupStore,
        optimizers: OptimizerStore,
        tasks: TaskStore,
        tables: TableReader,
        catalogs: CatalogStore,
        clock: Clock,
        run_slots: int,
    ) -> None:
        """`run_slots` is how many tasks a run of `compact_job` merges at a time."""
        self._groups = groups
        self._optimizers = optimizers
        self._tasks = tasks
        self._tables = tables
        self._catalogs = catalogs
        self._clock = clock
        self._run_slots = run_slots
        self._made: dict[str, tuple[datetime, Sequence[TableIdentifier]]] = {}

    def of(self, queue: str | None) -> Sequence[TableIdentifier]:
        """Return the tables that have their turn first, in this order. It is empty for a queue with another order, and for all queues."""
        if queue is None:
            return ()
        now = self._clock()
        made = self._made.get(queue)
        if made is not None and now - RENEWED_EVERY < made[0] <= now:
            return made[1]
        if made is not None:
            # The other threads of a server go on with the old answer, so that not each of them measures the same.
            self._made[queue] = (now, made[1])
        measured = self._measured(queue, now)
        self._made[queue] = (now, measured)
        return measured

    def _measured(self, queue: str, now: datetime) -> Sequence[TableIdentifier]:
        group = self._groups.group(queue)
        if group is None or group.queue.order is not QueueOrder.QUOTA:
            return ()
        slots = group_slots(self._optimizers.optimizers(live=True), queue, self._run_slots)
        entitled = {table: entitled_slots(self._quota(table), slots) for table in self._tasks.waiting_tables(queue)}
        return turns(self._tasks.slot_seconds(queue, now - LOOKS_BACK, now), entitled)

    def _quota(self, table: TableIdentifier) -> float:
        try:
            loaded = self._tables.state(table).index.loaded
            of_catalog = self._catalogs.entry(table.catalog).properties
        except NotFoundError:
            # The table was forgotten just now, and its tasks end.
            return 1.0
        return properties_or_defaults(loaded.layout.properties if loaded is not None else {}, of_catalog).quota
