"""What keeps a table from being planned, before its files are looked at."""

from __future__ import annotations

from compaction_pipeline.core.fragmentation.verdict import PlanReason, PlanReasonCode
from compaction_pipeline.core.tables.index import TableIndex


def hindrance(index: TableIndex, *, paused: bool, observed: bool) -> PlanReason | None:
    """Why nobody may plan the table at all; None when somebody may. `observed`: its catalog is measured only."""
    if index.refusal is not None:
        return PlanReason(PlanReasonCode.REFUSED, index.refusal)
    if paused:
        return PlanReason(PlanReasonCode.PAUSED, f"paused by a person; `compaction-pipeline resume {index.table}` ends it")
    if observed:
        return PlanReason(
            PlanReasonCode.OBSERVED,
            f"catalog {index.table.catalog} is observed only: remove it and add it without --observe to let tables be compacted",
        )
    return None
