"""Local times of zones as instants.

A local time that clocks leave out stands for the first instant behind the gap, and a repeated one for the first of its two instants.
"""

from __future__ import annotations

from datetime import datetime, timedelta, timezone, tzinfo

_MICRO = timedelta(microseconds=1)


def first_instant(local: datetime, zone: tzinfo) -> datetime:
    """The first instant whose local time is `local`, which has no zone; when clocks leave it out, the first instant behind the gap.

    Raises OverflowError for an instant beyond the years of Python.
    """
    early, late = _instants(local, zone)
    return _change(late, early, zone) if early > late else early


def behind_last(local: datetime, zone: tzinfo) -> datetime:
    """The first instant from which on no local time is before `local`, which has no zone. Raises OverflowError as `first_instant`."""
    early, late = _instants(local, zone)
    if early > late:
        return _change(late, early, zone)
    # Clocks that go back to this very time, as many do at midnight, do not go back into the unit before it.
    return late if late > early and _local(late - _MICRO, zone) < local else early


def _instants(local: datetime, zone: tzinfo) -> tuple[datetime, datetime]:
    """The instants that the offsets before and after a change of clocks give a local time. The second is earlier in a gap."""
    before, after = (local.replace(tzinfo=zone, fold=fold).astimezone(timezone.utc) for fold in (0, 1))
    return before, after


def _local(at: datetime, zone: tzinfo) -> datetime:
    return at.astimezone(zone).replace(tzinfo=None)


def _change(before: datetime, after: datetime, zone: tzinfo) -> datetime:
    """The instant at which the offset of the zone changes. It is behind `before`, and at most `after`."""
    old = before.astimezone(zone).utcoffset()
    while after - before > _MICRO:
        middle = before + (after - before) // 2
        before, after = (middle, after) if middle.astimezone(zone).utcoffset() == old else (before, middle)
    return after
