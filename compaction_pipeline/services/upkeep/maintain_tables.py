"""Does a round of upkeep: it forgets dropped tables, removes leftover files, and removes old records and tasks.

A table that cannot be maintained is reported as skipped, and has its turn the next time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from compaction_pipeline.core.errors import CompactionError
from compaction_pipeline.core.insight.ports import TableReader
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.services.upkeep.expire_records import ExpireRecords
from compaction_pipeline.services.upkeep.forget_dropped import ForgetDropped
from compaction_pipeline.services.upkeep.remove_leftovers import RemoveLeftovers

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Maintenance:
    """What one round did. `skipped` has the tables that were left for the next round, each with the reason.

    `stopped` is True when the round was told to end before it had looked at every table.
    """

    records_expired: int = 0
    tasks_expired: int = 0
    leftovers: Mapping[TableIdentifier, tuple[str, ...]] = field(default_factory=dict)
    forgotten: tuple[TableIdentifier, ...] = ()
    skipped: Mapping[TableIdentifier, str] = field(default_factory=dict)
    stopped: bool = False

    @property
    def files_removed(self) -> int:
        """The number of leftovers that were deleted, of all tables."""
        return sum(len(paths) for paths in self.leftovers.values())


class MaintainTables:
    """The verb maintain does a whole round. Its three parts are the verbs forget_dropped, remove_leftovers and expire."""

    def __init__(
        self,
        reader: TableReader,
        dropped: ForgetDropped,
        leftovers: RemoveLeftovers,
        outlived: ExpireRecords,
    ) -> None:
        self._reader = reader
        self.forget_dropped = dropped.forget
        self.remove_leftovers = leftovers.remove
        self.expire = outlived.expire

    def maintain(self, is_over: Callable[[], bool] = lambda: False) -> Maintenance:
        """Do one round: dropped tables, then leftovers, then expiry. Expiry is last, because it removes the ids that leftovers have.

        When `is_over()` is true before a table, the round stops there, and expires nothing.
        """
        forgotten, unanswered = self.forget_dropped()
        leftovers: dict[TableIdentifier, tuple[str, ...]] = {}
        skipped = dict(unanswered)
        for state in self._reader.states():
            if is_over():
                return Maintenance(0, 0, leftovers, forgotten, skipped, stopped=True)
            if state.table in skipped:
                continue
            try:
                removed = self.remove_leftovers(state.table)
            except CompactionError as error:
                skipped[state.table] = str(error)
                _LOG.warning("table=%s leftovers not looked for: %s", state.table, error)
                continue
            if removed:
                leftovers[state.table] = tuple(removed)
        records, tasks = self.expire()
        return Maintenance(records, tasks, leftovers, forgotten, skipped)
