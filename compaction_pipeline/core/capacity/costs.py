"""Sums of the ledger: what compaction has cost, by what a user asks for."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from enum import Enum
from typing import Protocol

from compaction_pipeline.core.capacity.calibration import PastRun
from compaction_pipeline.core.capacity.low_use import SlotUse
from compaction_pipeline.core.capacity.low_use_share import IdleDay, UseHours
from compaction_pipeline.core.capacity.own_work import OwnSum, OwnWork
from compaction_pipeline.core.ids import AttemptId
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.work.kinds import CompactionType


class CostKey(str, Enum):
    """What costs are summed by."""

    TEAM = "team"
    TABLE = "table"
    TYPE = "type"
    GROUP = "group"
    DAY = "day"


@dataclass(frozen=True, slots=True)
class CostSum:
    """What the attempts of one key have cost.

    `merged_slot_seconds` is the part of `slot_seconds` whose attempts merged their task. The rest failed, was lost or was canceled.
    CPU times, GB-hours and bytes are sums of what is known, and None when nothing is. `provisional` attempts have not told what they used,
    and `cut` ones told more than is possible.
    """

    key: str
    attempts: int
    slot_seconds: float
    merged_slot_seconds: float
    cpu_seconds: float | None
    overhead_cpu_seconds: float | None
    gb_hours: float | None
    bytes_read: int | None
    bytes_written: int | None
    provisional: int
    cut: int


@dataclass(frozen=True, slots=True)
class SlotSum:
    """What the slots of a group's optimizers did, in slot-seconds. `gb_hours` are those of all of it; None when no reserve is known."""

    group: str
    optimizers: int
    starting: float
    held: float
    idle: float
    ending: float
    gb_hours: float | None

    @property
    def seconds(self) -> float:
        """All of it together."""
        return self.starting + self.held + self.idle + self.ending


class CostStore(Protocol):
    """The ledger. Attempts and optimizers are charged by the transactions that end and touch them (`TaskStore`, `OptimizerStore`)."""

    def sums(self, by: CostKey, first: date, last: date) -> Sequence[CostSum]:
        """Return the costs of these UTC days, both included, the highest slot-seconds first; by day in order.

        Of days whose rows were summed already, teams and days are known, and tables, types and groups are not.
        """

    def slots(self, first: date, last: date) -> Sequence[SlotSum]:
        """Return what the slots of each group's optimizers did on these UTC days, sorted by group."""

    def idle(self, first: date, last: date) -> Sequence[IdleDay]:
        """Return how long slots of each group's optimizers held no attempt on each of these UTC days, sorted by day and group."""

    def add_own(self, work: Sequence[OwnWork]) -> None:
        """Add what planning, commits and ticks have used to the sums of their days."""

    def own(self, by: CostKey, first: date, last: date) -> Sequence[OwnSum]:
        """Return what planning, commits and ticks have used on these UTC days, both included, the longest first; by day in order.

        By type there is one sum for each kind. By group there is none: no group does this work.
        """

    def past(self, table: TableIdentifier | None, kind: CompactionType | None) -> Sequence[PastRun]:
        """Return the last `RUNS` attempts that merged a task, the newest first: of this table and of this type; None is any."""

    def promised(self, team: str) -> float:
        """Return the GB-hours that the tasks of a team which run or may begin are predicted to take; unknown ones count as none."""

    def gb_hours(self, attempts: Collection[AttemptId]) -> Mapping[AttemptId, float]:
        """Return the GB-hours of these attempts. Those of which they are not known are left out."""

    def uses(self, since: datetime, now: datetime) -> Mapping[str, SlotUse]:
        """Return what each owner's attempts did between the two times. Owners without an attempt are left out."""

    def spent(self, first: date, last: date) -> Mapping[tuple[str, str], float]:
        """Return the slot-seconds of attempts on these UTC days, both included, by (group, team)."""

    def note_use(self, groups: Mapping[str, str], low: Collection[str], now: datetime) -> None:
        """Note that these optimizers were looked at: their groups by their ids, and which of them are of low use.

        The time since the last look counts, at most `LONGEST_GAP`.
        """

    def use_hours(self, since: datetime) -> Sequence[UseHours]:
        """Return how long optimizers were looked at since the hour of this time, by group."""

    def expire(self, rows_before: date, sums_before: date) -> None:
        """Sum the rows of days before `rows_before` by day and team, and remove them. Remove the sums of days before `sums_before`."""
