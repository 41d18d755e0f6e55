"""Decides which work of a partition waits for data that has not come, or for writers that have not left.

A FULL waits until its partition is ready ('compaction.full.when-ready'), and a MAJOR until nobody has added a file to it for some time
('compaction.major.cold-after'), but not for ever. What a person launches waits for neither. What waits is found before anything is planned,
and the planners of all kinds of tables ask `Waits`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from compaction_pipeline.core.fragmentation.triggers import full_trigger
from compaction_pipeline.core.fragmentation.verdict import NodeHistory
from compaction_pipeline.core.tables.node import Place, TableNode
from compaction_pipeline.core.tables.properties import TableProperties
from compaction_pipeline.core.words import duration_text, moment_text


@dataclass(frozen=True, slots=True)
class Waits:
    """What holds back work. `not_ready` says of partitions that are not ready what is missing. `commits` has the times of the snapshots of
    main that are young enough to count, in all stores of the table, by their ids."""

    not_ready: Mapping[Place, str] = field(default_factory=dict)
    commits: Mapping[int, datetime] = field(default_factory=dict)

    def full(self, node: TableNode) -> str | None:
        """What a FULL of the node waits for; None when it need not wait."""
        missing = self.not_ready.get(node.place)
        return None if missing is None else f"it waits until its partition is ready: {missing}"

    def major(
        self, node: TableNode, added_by: frozenset[int], history: NodeHistory, properties: TableProperties, now: datetime
    ) -> str | None:
        """What a MAJOR of the node waits for; None when it need not wait. `added_by` are the snapshots that added its live files."""
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
        return f"it waits until no file was added for {duration_text(cold_after)} ({cold} if none comes, {last} at the latest)"


NOTHING_WAITS = Waits()


def places_to_ask(nodes: Iterable[TableNode], history: NodeHistory, properties: TableProperties, now: datetime) -> frozenset[Place]:
    """The partitions of these nodes whose readiness must be asked: those for which a FULL is due that waits for it."""
    if not properties.full_when_ready:
        return frozenset()
    return frozenset(node.place for node in nodes if full_trigger(node, history, properties, now).due)
