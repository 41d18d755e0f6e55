"""What the plans of a table store for the next plan, and for people."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from compaction_pipeline.core.fragmentation.verdict import PlanReason, PlanReasonCode


@dataclass(frozen=True, slots=True)
class TablePlanning:
    """What the newest plan of a table found. Only `services/planning/plan_tables.py` writes it.

    `last_planned_at` is when a plan last queued tasks. `reason` is that of the newest plan of the whole table. `problem` says why the
    newest plan could not be made; it is None after a plan that could. `distrusted_read_id` names a read of the index
    (`Complete.read_id`) in which a plan found a file that is younger than the snapshot. The table is then read again. `queue_full_since` is
    since when the table waits in line for room in the queue of its group; None when it does not.
    """

    last_planned_at: datetime | None = None
    reason: PlanReason | None = None
    problem: str | None = None
    distrusted_read_id: str | None = None
    queue_full_since: datetime | None = None

    @property
    def is_denied(self) -> bool:
        """Whether the storage of the table let nobody write last."""
        return self.reason is not None and self.reason.code is PlanReasonCode.NO_ACCESS
