"""Reads the transactions that have begun from the metadata of both stores of a keyed table."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta, timezone

from pyiceberg.table.metadata import TableMetadata

from compaction_pipeline.core.tables.data_file import LiveFile
from compaction_pipeline.core.tables.keyed.transactions import (
    BEGIN_KEY,
    OVERWRITE_BEGIN_KEY,
    OVERWRITE_KEY,
    BegunTransaction,
    carried_transactions,
    open_transactions,
    transaction_timeout,
)

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def read_open_transactions(
    change: TableMetadata, base: TableMetadata, change_files: Iterable[LiveFile], base_files: Iterable[LiveFile], now: datetime
) -> tuple[BegunTransaction, ...]:
    """The transactions that may still bring changes, by ascending number.

    The files are the live ones of this very metadata. The change store's metadata must have been loaded before the base store's: else a
    transaction that ended in between would look open, which does no harm, but its changes would be missing. Raises ConfigError for a bad
    timeout in the properties of the base store, and TableRefused for a file whose name cannot be.
    """
    ended = carried_transactions(base_files, change_files) | ended_by_base(base)
    return open_transactions(begun_transactions(change), ended, now, transaction_timeout(base.properties))


def begun_transactions(change: TableMetadata) -> tuple[BegunTransaction, ...]:
    """The transactions whose begin snapshot the change store still has, whether they have ended or not.

    Snapshots that are no ancestors of the head count too: a writer does not look whether the table was rolled back meanwhile.
    """
    return tuple(
        BegunTransaction(
            snapshot.sequence_number,
            _EPOCH + timedelta(milliseconds=snapshot.timestamp_ms),
            OVERWRITE_BEGIN_KEY not in snapshot.summary.additional_properties,
        )
        for snapshot in change.snapshots
        if snapshot.sequence_number is not None and snapshot.summary is not None and BEGIN_KEY in snapshot.summary.additional_properties
    )


def ended_by_base(base: TableMetadata) -> frozenset[int]:
    """The transactions that snapshots of the base store name: those of insert-overwrites."""
    named = (snapshot.summary.additional_properties.get(OVERWRITE_KEY, "") for snapshot in base.snapshots if snapshot.summary is not None)
    return frozenset(int(text) for text in named if text.isdecimal())
