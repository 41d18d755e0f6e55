"""Registered consumers: readers that read a table from snapshot to snapshot, each with the last one that it has read.

What a consumer has not read yet does not expire before the end of its registration.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from compaction_pipeline.core.errors import ConfigError
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.upkeep.history import History
from compaction_pipeline.core.upkeep.keepers import Stay
from compaction_pipeline.core.words import time_text

MOST_OF_TABLE = 100
MOST_DAYS = 366
"""A consumer that nobody hears of any more must not keep a table's history for ever."""
DEFAULT_DAYS = 7
_NAME_RULE = "1 to 100 letters, digits, '.', '_', ':' and '-', of which the first is a letter or a digit"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,99}")


@dataclass(frozen=True, slots=True)
class Consumer:
    """One registration. `table` is the name that users give, and `store` that of the Iceberg table that has the snapshot: the change store
    of a keyed table has a name of its own. `table_uuid` is that of the store.

    `snapshot_id` is the last snapshot that the consumer has read. It stays with everything above it until `until`. `missing_at` is the time
    at which an expiry saw that the snapshot is gone; None while it is there.
    """

    table: TableIdentifier
    name: str
    store: TableIdentifier
    table_uuid: str
    snapshot_id: int
    set_at: datetime
    until: datetime
    missing_at: datetime | None = None

    @property
    def stay(self) -> Stay:
        """Why its snapshot stays, and until when."""
        return Stay(f"consumer {self.name} has not read what came after it", self.until)

    @property
    def problem(self) -> str | None:
        """What its reader must know, as a sentence; None when all is well."""
        if self.missing_at is None:
            return None
        return (
            f"snapshot {self.snapshot_id} of {self.store}, the last that consumer {self.name} has read, was gone at "
            f"{time_text(self.missing_at)} UTC: the consumer has to read the whole table again, and to register what it has read then"
        )


def checked_end(name: str, days: float, now: datetime) -> datetime:
    """Return the end of a registration that begins now. Raises ConfigError for a name or a number of days that breaks its rule."""
    if _NAME.fullmatch(name) is None:
        raise ConfigError(f"the name of the consumer is {name[:200]!r}, but it must be {_NAME_RULE}; choose another name")
    if not 0 < days <= MOST_DAYS:
        raise ConfigError(f"the days of consumer {name} are {days:g}, but they must be > 0 and ≤ {MOST_DAYS}; it can be registered again")
    return now + timedelta(days=days)


def held_by_consumers(consumers: Iterable[Consumer], table_uuid: str) -> Iterator[tuple[int, Stay]]:
    """The snapshots of the store with this uuid that consumers have read last, each with the reason for which it stays.

    The uuid counts, not the name: a table that was renamed keeps its consumers, and one that only got their table's name does not.
    """
    return ((one.snapshot_id, one.stay) for one in consumers if one.table_uuid == table_uuid)


def lost(consumers: Iterable[Consumer], store: TableIdentifier, table_uuid: str, history: History, now: datetime) -> Iterator[Consumer]:
    """The consumers of a store that have not ended, and whose snapshots it does not have any more, each with `missing_at`."""
    for one in consumers:
        is_of_store = one.table_uuid == table_uuid
        # The name tells of a table that was dropped and made anew.
        if (is_of_store or one.store == store) and one.until >= now and not (is_of_store and one.snapshot_id in history.snapshots):
            yield replace(one, missing_at=one.missing_at or now)
