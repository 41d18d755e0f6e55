"""What the plans of a table left behind for the next one, and for people."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from compaction_pipeline.core.fragmentation.verdict import PlanReason


@dataclass(frozen=True, slots=True)
class TablePlanning:
    """What the newest plan of a table found. Written by `services/planning/plan_tables.py` alone.

    `last_planned_at` is when a plan last queued tasks. `reason` is the sentence of the newest plan of the whole table. `problem` says
    why the newest plan could not be made; None after one that could. `distrusted_read_id` names the read (`Complete.read_id`) in which
    a plan found a file younger than its snapshot: that index is read again.
    """

    last_planned_at: datetime | None = None
    reason: PlanReason | None = None
    problem: str | None = None
    distrusted_read_id: str | None = None
