"""Decides which work of a partition waits for data that has not come, for writers that have not left, or for its window.

A FULL waits until its partition is ready ('compaction.full.when-ready'), and a MAJOR until nobody has added a file to it for some time
('compaction.major.cold-after'), but not for ever. Both wait for their windows ('compaction.full.window', 'compaction.major.window');
what was planned while one was open goes on. What a person launches waits for none of these. What waits is found before anything is planned,
and the planners of all kinds of tables ask `Waits`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from compaction_pipeline.core.fragmentation.triggers import full_trigger
from compaction_pipeline.core.fragmentation.verdict import NodeHistory, PlanReason, PlanReasonCode
from compaction_pipeline.core.tables.node import Place, TableNode
from compaction_pipeline.core.tables.properties import TableProperties
from compaction_pipeline.core.words import duration_text, moment_text
from compaction_pipeline.core.work.kinds import CompactionType


@dataclass(frozen=True, slots=True)
class Waits:
    """What holds back work. `not_ready` says of partitions that are not ready what is missing. `commits` has the times of the snapshots of
    main that are young enough to count, in all stores of the table, by their ids. `outside` says of types whose windows are closed when
    they open."""

    not_ready: Mapping[Place, str] = field(default_factory=dict)
    commits: Mapping[int, datetime] = field(default_factory=dict)
    outside: Mapping[CompactionType, str] = field(default_factory=dict)

    def full(self, node: TableNode) -> PlanReason | None:
        """What a FULL of the node waits for; None when it need not wait."""
        if CompactionType.FULL in self.outside:
            return PlanReason(PlanReasonCode.OUTSIDE_WINDOW, self.outside[CompactionType.FULL])
        missing = self.not_ready.get(node.place)
        return None if missing is None else PlanReason(PlanReasonCode.NOT_READY, f"it waits until its partition is ready: {missing}")

    def major(
        self, node: TableNode, added_by: frozenset[int], history: NodeHistory, properties: TableProperties, now: datetime
    ) -> PlanReason | None:
        """What a MAJOR of the node waits for; None when it need not wait. `added_by` are the snapshots that added its live files."""
        if CompactionType.MAJOR in self.outside:
            return PlanReason(PlanReasonCode.OUTSIDE_WINDOW, self.outside[CompactionType.MAJOR])
        cold_after = properties.major_cold_after
        if cold_after is None:
            return None
        newest = max((self.commits[each] for each in added_by if each in self.commits), default=None)
        if newest is None or now >= newest + cold_after:
            return None
        waits_since = history.held_since.get(node, now)
        at_most = waits_since + properties.major_cold_at_most
        if now >= at_most:
            return None
        # The reason is stored, and is read later. So it names times that stay true.
        cold, last = moment_text(newest + cold_after, now), moment_text(at_most, now)
        text = f"it waits until no file was added for {duration_text(cold_after)} ({cold} if none comes, {last} at the latest)"
        return PlanReason(PlanReasonCode.NOT_READY, text)


NOTHING_WAITS = Waits()


def closed_windows(properties: TableProperties, now: datetime) -> Mapping[CompactionType, str]:
    """Of types whose windows are closed, when they open."""
    windows = {CompactionType.FULL: properties.full_window, CompactionType.MAJOR: properties.major_window}
    return {
        kind: f"it waits for its window {window}, which opens at {moment_text(window.next_opening(now), now)}"
        for kind, window in windows.items()
        if window is not None and not window.is_open(now)
    }


def places_to_ask(nodes: Iterable[TableNode], history: NodeHistory, properties: TableProperties, now: datetime) -> frozenset[Place]:
    """The partitions of these nodes whose readiness must be asked: those for which a FULL is due that waits for it."""
    if not properties.full_when_ready or CompactionType.FULL in closed_windows(properties, now):
        return frozenset()
    return frozenset(node.place for node in nodes if full_trigger(node, history, properties, now).due)
