"""The line of tables that wait for room in the queue of their group."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from compaction_pipeline.core.planning.plan import CompactionPlan
from compaction_pipeline.core.tables.table import TableIdentifier


@dataclass(frozen=True, slots=True)
class Waiting:
    """A table that waits for room in the queue of a group, and since when."""

    since: datetime
    table: TableIdentifier
    group: str


def waits_since(plan: CompactionPlan, before: datetime | None, now: datetime) -> datetime | None:
    """Return since when a table waits in line after a plan; None when it does not. `before` is what it was before the plan.

    A table that got a part of its work into the queue goes to the end of the line, so that the others have their turn.
    """
    if not plan.lacks_room:
        return None
    return now if before is None or plan.tasks else before


def in_line(tables: Iterable[TableIdentifier], waits: Mapping[TableIdentifier, datetime]) -> list[TableIdentifier]:
    """Return the tables in the order in which they are planned: first those that wait for room, the one that waited longest first.

    `waits` has since when each of them waits. The other tables keep their order.
    """
    named = list(tables)
    waiting = sorted((table for table in named if table in waits), key=lambda table: (waits[table], str(table)))
    return [*waiting, *(table for table in named if table not in waits)]


def is_first(mine: Waiting, line: Iterable[Waiting]) -> bool:
    """Return whether no other table of the same group has waited longer."""
    place = (mine.since, str(mine.table))
    return not any(other.group == mine.group and (other.since, str(other.table)) < place for other in line)
