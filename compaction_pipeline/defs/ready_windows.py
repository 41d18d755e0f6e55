"""Chooses which partitions of a definition a tick asks about, and remembers those that are done, by the time that they stand for.

A key of Dagster is never read as a time: only the definition knows its window (weeks may begin on any day, and an hour that clocks repeat
has a key of its own).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from datetime import datetime, timezone

import dagster as dg

from compaction_pipeline.core.dependencies.ready_time import Window
from compaction_pipeline.core.errors import ConfigError

NEWEST = 200
OLDER = 300
"""A tick asks about at most so many of the newest partitions of a table, and so many older ones. The next tick goes on with older ones."""


def by_time(partitions_def: object, what: str) -> dg.TimeWindowPartitionsDefinition:
    """The definition, when its partitions are windows of time. Raises ConfigError otherwise; `what` begins its text."""
    if isinstance(partitions_def, dg.TimeWindowPartitionsDefinition):
        return partitions_def
    given = type(partitions_def).__name__
    hint = "give the definition of its dimension by time" if isinstance(partitions_def, dg.MultiPartitionsDefinition) else _OTHERWISE
    raise ConfigError(
        f"{what}: partitions_def is a {given}, whose partitions are no windows of time, so nobody can say when one is ready; {hint}"
    )


_OTHERWISE = "give one by hour, day, week or month, or a TimeWindowPartitionsDefinition"


def window_of(partitions_def: dg.TimeWindowPartitionsDefinition, key: str) -> Window:
    """The time that a partition stands for."""
    window = partitions_def.time_window_for_partition_key(key)
    return Window(_utc(window.start), _utc(window.end))


def page(keys: Sequence[str], place: str | None) -> tuple[Sequence[str], str | None]:
    """The keys to ask about now, of keys in the order of their time, and the place at which the next tick goes on; None without older keys.

    The newest come always. `place` is where the last tick ended; a key that is gone means the beginning.
    """
    older, newest = keys[:-NEWEST], keys[-NEWEST:]
    if not older:
        return newest, None
    first = older.index(place) if place is not None and place in older else 0
    asked = older[first : first + OLDER]
    following = older[first + OLDER] if first + OLDER < len(older) else older[0]
    return [*asked, *newest], following


class Done:
    """Windows that are done, as few ranges of whole seconds since 1970 as possible: a cursor is stored with every tick."""

    def __init__(self, ranges: Iterable[Sequence[int]] = ()) -> None:
        self._ranges = sorted((int(start), int(end)) for start, end in ranges)

    @property
    def ranges(self) -> Sequence[tuple[int, int]]:
        return self._ranges

    def has(self, window: Window) -> bool:
        """Whether the whole window is done."""
        start, end = _seconds(window)
        at = bisect_right(self._ranges, (start, _FAR)) - 1
        return at >= 0 and self._ranges[at][1] >= end

    def add(self, window: Window) -> None:
        """Note that a window is done."""
        merged: list[tuple[int, int]] = []
        for start, end in sorted([*self._ranges, _seconds(window)]):
            if merged and start <= merged[-1][1]:
                merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
            else:
                merged.append((start, end))
        self._ranges = merged


_FAR = 1 << 62


def _seconds(window: Window) -> tuple[int, int]:
    return int(window.start.timestamp()), int(window.end.timestamp())


def _utc(moment: datetime) -> datetime:
    # Dagster's windows carry zones of its own making.
    return datetime.fromtimestamp(moment.timestamp(), timezone.utc)
