"""Says how much a plan may add to the queue of a table's group, how many slots the group has, and which team pays for a table."""

from __future__ import annotations

from collections.abc import Mapping

from compaction_pipeline.core.insight.known_table import KnownTable
from compaction_pipeline.core.insight.ports import TableReader
from compaction_pipeline.core.planning.line import Waiting, is_first
from compaction_pipeline.core.queue.group import QueueRoom, ResourceGroup
from compaction_pipeline.core.queue.ports.groups import GroupStore
from compaction_pipeline.core.queue.ports.optimizers import OptimizerStore
from compaction_pipeline.core.queue.ports.tasks import TaskStore
from compaction_pipeline.core.queue.quota import group_slots
from compaction_pipeline.core.tables.ports.catalogs import CatalogStore
from compaction_pipeline.core.tables.properties import group_of
from compaction_pipeline.services.planning.payers import Payers, properties_of


class QueueRooms:
    """Three questions: group, slots, room. `payers` knows what the teams that pay have left."""

    def __init__(
        self,
        groups: GroupStore,
        optimizers: OptimizerStore,
        tasks: TaskStore,
        tables: TableReader,
        catalogs: CatalogStore,
        payers: Payers,
        run_slots: int,
    ) -> None:
        """`run_slots` is how many tasks a run of `compact_job` merges at a time."""
        self._groups = groups
        self._optimizers = optimizers
        self._tasks = tasks
        self._tables = tables
        self._catalogs = catalogs
        self.payers = payers
        self._run_slots = run_slots

    def group(self, name: str) -> ResourceGroup | None:
        """Return a group; None when it does not exist."""
        return self._groups.group(name)

    def slots(self, group: str) -> int:
        """Return how many tasks of a group are merged at a time."""
        return group_slots(self._optimizers.optimizers(live=True), group, self._run_slots)

    def room(self, group: ResourceGroup, known: KnownTable, *, by_person: bool) -> QueueRoom:
        """Return how full the queue of a group is for a plan of this table. A person does not stand in line."""
        taken = self._tasks.queue_taken(group.name)
        if by_person:
            return group.room(taken, by_person=True, first=True)
        since = known.planning.queue_full_since
        room = group.room(taken, by_person=False)
        # Only a table that waits can be the first in line, and only when there is room. So mostly the other tables need not be read.
        if since is None or not room.is_open:
            return room
        return group.room(taken, by_person=False, first=is_first(Waiting(since, known.table, group.name), self._line()))

    def _line(self) -> list[Waiting]:
        """Return the tables that wait for room. A table that nobody may plan now holds no place in line."""
        catalogs = {entry.name: entry.properties for entry in self._catalogs.entries()}
        return [
            Waiting(known.planning.queue_full_since, known.table, _group(known, catalogs))
            for known in self._tables.states()
            if known.planning.queue_full_since is not None and known.whole is not None and not known.paused and not known.planning.problem
        ]


def _group(known: KnownTable, catalogs: Mapping[str, Mapping[str, str]]) -> str:
    return group_of(properties_of(known), catalogs.get(known.table.catalog, {}))
