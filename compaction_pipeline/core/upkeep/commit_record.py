"""Works of upkeep that make one snapshot of one store: what they plan, how they end, and the record of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from compaction_pipeline.core.commit.ports import CommitState
from compaction_pipeline.core.ids import RecordId
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.upkeep.record import ENDED, UpkeepStatus
from compaction_pipeline.core.upkeep.works import WORK_IN_WORDS, UpkeepWork

Figures = Mapping[str, int | float]
"""What a work counts, by the names that the JSON of the command line has."""


@dataclass(frozen=True, slots=True)
class UpkeepTarget:
    """What one work is done to. `table` is the name that users give, and `store` that of the Iceberg table."""

    table: TableIdentifier
    store: TableIdentifier
    table_uuid: str
    work: UpkeepWork


@dataclass(frozen=True, slots=True)
class UpkeepPlan:
    """What a work would do now; `reason` says it, or why there is nothing to do, in words. `next_look` is the time that may change it."""

    is_due: bool
    reason: str
    figures: Figures = field(default_factory=dict)
    next_look: datetime | None = None


@dataclass(frozen=True, slots=True)
class UpkeepOutcome:
    """How a work ended. The state NOTHING means that there was nothing to do, or that certainly nothing was committed.

    `unanswered` is True when an attempt got no answer: its request may still arrive, so what it has written must stay.
    """

    state: CommitState
    reason: str
    figures: Figures = field(default_factory=dict)
    snapshot_before: int | None = None
    snapshot_after: int | None = None
    attempts: int = 0
    unanswered: bool = False
    next_look: datetime | None = None

    @property
    def is_nothing(self) -> bool:
        """Whether certainly nothing was committed."""
        return self.state is CommitState.NOTHING

    @property
    def is_unknown(self) -> bool:
        """Whether the work may have landed, or may still land."""
        return self.state is CommitState.UNKNOWN


@dataclass(frozen=True, slots=True)
class UpkeepCommit:
    """The record of one work. It is written before the catalog is asked. The status is OPEN, UNKNOWN, DONE or FAILED."""

    record_id: RecordId
    target: UpkeepTarget
    status: UpkeepStatus
    created_at: datetime
    ended_at: datetime | None = None
    snapshot_id: int | None = None
    figures: Figures = field(default_factory=dict)
    reason: str | None = None

    @property
    def table(self) -> TableIdentifier:
        """The name that users give."""
        return self.target.table

    @property
    def store(self) -> TableIdentifier:
        """The name of the Iceberg table."""
        return self.target.store

    @property
    def work(self) -> UpkeepWork:
        """The kind of work."""
        return self.target.work

    @property
    def summary(self) -> str:
        """What became of it, as a sentence."""
        if self.status is UpkeepStatus.FAILED:
            return f"{WORK_IN_WORDS[self.target.work]}: {self.reason}"
        if self.status is UpkeepStatus.OPEN:
            return "the process has not told yet whether it committed"
        return self.reason or ""

    def ended(self, outcome: UpkeepOutcome, now: datetime) -> UpkeepCommit:
        """The record with this outcome."""
        status = _STATUS[outcome.state]
        return replace(
            self,
            status=status,
            ended_at=now if status in ENDED else None,
            snapshot_id=outcome.snapshot_after,
            figures=outcome.figures or self.figures,
            reason=outcome.reason,
        )


_STATUS: Mapping[CommitState, UpkeepStatus] = {
    CommitState.COMMITTED: UpkeepStatus.DONE,
    CommitState.NOTHING: UpkeepStatus.FAILED,
    CommitState.UNKNOWN: UpkeepStatus.UNKNOWN,
}
