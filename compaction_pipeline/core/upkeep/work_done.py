"""What a turn did."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.upkeep.works import UpkeepWork


@dataclass(frozen=True, slots=True)
class WorkDone:
    """What one work did to one table: sentences about what was done, and about what may not be done now.

    `next_look` is the time from which the unchanged table may have something to do again; None when time alone changes nothing.
    `stored_bytes` is what lies below the table's locations afterwards, live or not; None when this turn did not list it.
    """

    table: TableIdentifier
    work: UpkeepWork
    lines: tuple[str, ...] = ()
    refusals: tuple[str, ...] = ()
    next_look: datetime | None = None
    stored_bytes: int | None = None
