"""Decides when the holder of a lease is lost because it was silent.

The end of a lease proves nothing when nobody could have heard of its holder. The state database may have been away, or the server over
which an optimizer renews its leases. So servers and keepers note in the state database that they are there. After a break of these notes, a
minute (`LEASE`) must pass before tasks are taken from silent holders. A live holder renews its lease by then, however late it is.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import Enum

from compaction_pipeline.core.leases.timeouts import LEASE

LONGEST_GAP = timedelta(seconds=30)
"""A watcher that notes nothing for longer than this has had a break. No live holder loses a lease by a shorter break."""
MOST_PATIENCE = timedelta(minutes=10)
"""A lease that ended this long ago is lost in any case, and servers that are away for this long are no longer waited for."""
FORGOTTEN_AFTER = 2 * MOST_PATIENCE
"""A watcher that was silent for this long changes no decision any more."""


class WatcherKind(str, Enum):
    """A SERVER hears of optimizers. A KEEPER takes tasks from silent holders; all keepers of a state database are one watcher."""

    SERVER = "SERVER"
    KEEPER = "KEEPER"


@dataclass(frozen=True, slots=True)
class Watcher:
    """A server, or all keepers together, that notes that it is there.

    It has done so since `since` without a break, and the last time at `renewed_at`.
    """

    name: str
    kind: WatcherKind
    since: datetime
    renewed_at: datetime


@dataclass(frozen=True, slots=True)
class LostLeases:
    """Which leases are lost: those that ended at `ended_by` or earlier, and those of live optimizers at `ended_by_of_optimizers`."""

    ended_by: datetime
    ended_by_of_optimizers: datetime


def renewed(known: Watcher | None, name: str, kind: WatcherKind, now: datetime, gap: timedelta) -> Watcher:
    """Return a watcher that notes now that it is there. `known` is what it noted before; a break is longer than `gap`."""
    if known is None or now - known.renewed_at > gap:
        return Watcher(name, kind, now, now)
    return replace(known, renewed_at=now)


def lost_leases(watchers: Iterable[Watcher], now: datetime) -> LostLeases:
    """Return which leases are lost. Where no server or keeper has ever noted anything, a lease is lost as soon as it has ended."""
    every = tuple(watchers)
    patient = now - MOST_PATIENCE
    if any(each.kind is WatcherKind.KEEPER and now - each.since < LEASE for each in every):
        return LostLeases(patient, patient)
    servers = servers_of(every, now)
    hear = any(now - each.renewed_at <= LONGEST_GAP and now - each.since >= LEASE for each in servers)
    return LostLeases(now, now if hear or not servers else patient)


def servers_of(watchers: Iterable[Watcher], now: datetime) -> tuple[Watcher, ...]:
    """Return the servers that were there within `MOST_PATIENCE`."""
    return tuple(each for each in watchers if each.kind is WatcherKind.SERVER and now - each.renewed_at < MOST_PATIENCE)
