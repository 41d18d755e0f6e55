"""Tells what compaction has cost: sums of the ledger, and what the slots of optimizers did meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone

from compaction_pipeline.core.capacity.costs import CostKey, CostStore, CostSum, SlotSum
from compaction_pipeline.core.capacity.ledger import KEPT_DAYS, SUMS_KEPT_DAYS
from compaction_pipeline.core.capacity.low_use_share import TeamIdle, idle_of_teams, low_use_shares
from compaction_pipeline.core.capacity.own_work import OwnSum
from compaction_pipeline.core.errors import ConfigError
from compaction_pipeline.core.leases.ports import Clock
from compaction_pipeline.core.queue.ports.groups import GroupStore

SUMMED = (CostKey.TEAM, CostKey.DAY)
"""What is known of days whose rows of single attempts are gone."""


@dataclass(frozen=True, slots=True)
class Costs:
    """The costs of the UTC days `first` to `last`, both included, by one key. `slots` is what the slots of each group's optimizers did.

    `idle` says of each team what its optimizers did beside its tasks, as far as `KEPT_DAYS` tell; () unless the costs are by team.
    `own` is what planning, commits and ticks have used, as far as `KEPT_DAYS` tell; () when the costs are by group.
    """

    by: CostKey
    first: date
    last: date
    costs: Sequence[CostSum]
    slots: Sequence[SlotSum]
    idle: Sequence[TeamIdle] = ()
    own: Sequence[OwnSum] = ()

    def handover_seconds(self, group: str) -> float | None:
        """How long slots of a group's optimizers held attempts that were not charged to them; below 0 when less was held than charged.

        None unless the costs are by group. A claim that is on its way to its optimizer is charged and not held yet.
        """
        if self.by is not CostKey.GROUP:
            return None
        held = sum(each.held for each in self.slots if each.group == group)
        return held - sum(each.slot_seconds for each in self.costs if each.key == group)


class ReadCosts:
    """One verb: costs."""

    def __init__(self, ledger: CostStore, groups: GroupStore, clock: Clock) -> None:
        self._ledger = ledger
        self._groups = groups
        self._clock = clock

    def costs(self, by: CostKey, days: int) -> Costs:
        """Return the costs of the last `days` UTC days, today included.

        Raises ConfigError for a number of days of which nothing is kept.
        """
        most = SUMS_KEPT_DAYS if by in SUMMED else KEPT_DAYS
        if not 1 <= days <= most:
            raise ConfigError(
                f"'days' is {days} but must be from 1 to {most} when costs are summed by {by.value}: "
                f"single attempts are kept for {KEPT_DAYS} days, and sums by day and team for {SUMS_KEPT_DAYS}"
            )
        last = self._clock().date()
        first = last - timedelta(days=days - 1)
        idle = self._idle(first, last) if by is CostKey.TEAM else ()
        sums, own = self._ledger.sums(by, first, last), self._ledger.own(by, first, last)
        return Costs(by, first, last, sums, self._ledger.slots(first, last), idle, own)

    def _idle(self, first: date, last: date) -> Sequence[TeamIdle]:
        teams = {group.name: group.team for group in self._groups.groups() if group.team is not None}
        hours = self._ledger.use_hours(datetime(first.year, first.month, first.day, tzinfo=timezone.utc))
        return idle_of_teams(self._ledger.idle(first, last), teams, low_use_shares(hours, teams, self._ledger.spent(first, last)))
