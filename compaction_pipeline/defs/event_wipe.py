"""Deletes old events of the program's external assets. Dagster can delete all events of an asset or of a run, but no old ones.

Sensors store an event of `table_health` every few minutes for ever, and their events belong to no run. The newest event of each kind of
each partition stays, because Dagster derives from it what is materialized, and when. Events of assets that a person can launch stay too:
they are the history of what was done.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, suppress
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

import dagster as dg
from sqlalchemy import Connection, delete, func, select
from sqlalchemy.exc import OperationalError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_BATCH = 500
"""Events of one transaction. Others write to the event log meanwhile, and SQLite lets only one write at a time."""

_COPIES_AT_ONCE = 2_000
"""A tick deletes at most so many copies. There are many only once, when an older version of this program left them."""

_KINDS = (dg.DagsterEventType.ASSET_MATERIALIZATION.value, dg.DagsterEventType.ASSET_OBSERVATION.value)
_WITHOUT_RUN = ""


def wipe_old_events(instance: dg.DagsterInstance, assets: Iterable[dg.AssetKey], before: datetime) -> int | None:
    """Delete the events of these assets that are older than `before`, and return how many they were.

    None means that the instance keeps its events in no database that this function knows.
    """
    # Dagster exports none of these under a public name. They are imported here, so that the definitions still load when they move. A test
    # tells then.
    from dagster._core.storage.event_log.sql_event_log import SqlEventLogStorage

    storage = instance.event_log_storage
    if not isinstance(storage, SqlEventLogStorage):
        return None
    wiped = 0
    for asset in assets:
        # On SQLite, events of no run also stand in a database of their own (`wipe_copies`).
        wiped += _wipe(storage.index_connection, asset, before)
        _wipe(lambda: storage.run_connection(_WITHOUT_RUN), asset, before)
    return wiped


def wipe_copies(instance: dg.DagsterInstance, assets: Iterable[dg.AssetKey], most: int = _BATCH) -> int:
    """Delete the copies of events of no run that SQLite keeps beside its index, at most `most` of them in one transaction.

    Returns how many they were.

    Dagster's SQLite stores each event in the file of its run, and events of assets in its index too. The pages of an asset read the index.
    Nothing reads the file of the events that belong to no run (`history/runs/.db`), so the copies only make the event log twice as large.
    """
    from dagster._core.storage.event_log.schema import SqlEventLogStorageTable
    from dagster._core.storage.event_log.sql_event_log import SqlEventLogStorage

    storage = instance.event_log_storage
    # In other databases all events stand in one table, and these would be no copies.
    if not isinstance(storage, SqlEventLogStorage) or not storage.is_run_sharded:
        return 0
    events = SqlEventLogStorageTable.c
    ours = events.asset_key.in_([asset.to_string() for asset in assets])
    wiped, batch = 0, list(range(most))
    # Another process may hold the lock of the file for long. Then the next tick deletes them.
    with suppress(OperationalError):
        while len(batch) == most and wiped < _COPIES_AT_ONCE:
            with storage.run_connection(_WITHOUT_RUN) as connection:
                batch = [row[0] for row in connection.execute(select(events.id).where(ours).limit(most))]
                connection.execute(delete(SqlEventLogStorageTable).where(events.id.in_(batch)))
            wiped += len(batch)
    return wiped


def _wipe(connect: Callable[[], AbstractContextManager[Connection]], asset: dg.AssetKey, before: datetime) -> int:
    from dagster._core.storage.event_log.schema import AssetEventTagsTable, SqlEventLogStorageTable

    events, tags = SqlEventLogStorageTable.c, AssetEventTagsTable.c
    ours: Any = (events.asset_key == asset.to_string()) & events.dagster_event_type.in_(_KINDS)
    newest = select(func.max(events.id)).where(ours).group_by(events.partition, events.dagster_event_type)
    # Dagster stores naive times, in UTC.
    old = ours & (events.timestamp < before.astimezone(timezone.utc).replace(tzinfo=None))
    with connect() as connection:
        found = [row[0] for row in connection.execute(select(events.id).where(old, events.id.not_in(newest)).order_by(events.id))]
    for start in range(0, len(found), _BATCH):
        batch = found[start : start + _BATCH]
        with connect() as connection:
            connection.execute(delete(AssetEventTagsTable).where(tags.event_id.in_(batch)))
            connection.execute(delete(SqlEventLogStorageTable).where(events.id.in_(batch)))
    return len(found)
