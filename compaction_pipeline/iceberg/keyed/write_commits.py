"""Commits what a writer of a keyed table has written to one of its stores: all of it once, or nothing."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from uuid import uuid4

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from compaction_pipeline.core.errors import CommitStateUnknown, RacesLost
from compaction_pipeline.iceberg.rewrite_files import Transaction, delete_quietly

_ATTEMPTS = 20
_WRITE_ID = "compaction.write-id"
"""The key in a snapshot's summary by which a writer finds out whether its commit has landed."""


def commit_write(
    store: Table,
    what: str,
    stage: Callable[[Mapping[str, str], int], Transaction | None],
    sleep: Callable[[float], None] = time.sleep,
) -> Snapshot | None:
    """Commit the snapshot that `stage` makes. Returns it; None when `stage` makes none.

    `stage` gets what the snapshot's summary must have, and the number of the attempt. It builds on the newest metadata, and raises when the
    files do not fit it any more. `what` names the store in messages. A lost race is tried again. Raises RacesLost when the last try has
    lost, and CommitStateUnknown when nothing proves whether the write was committed. Only after CommitStateUnknown may its files be live.
    """
    write_id = uuid4().hex
    for attempt in range(_ATTEMPTS):
        transaction = stage({_WRITE_ID: write_id}, attempt)
        if transaction is None:
            return None
        try:
            transaction.commit()
        except Exception as error:
            # A client may send a request twice. When the first one landed and its answer got lost, the second one loses a race against it.
            # So after any error only the table tells.
            is_read = _refreshed(store)
            landed = _landed(store, write_id)
            if landed is not None:
                return landed
            if not isinstance(error, CommitFailedException) or not is_read:
                seen = "the table does not show it yet" if is_read else "the table cannot be read now"
                raise CommitStateUnknown(
                    f"{what}: the catalog's answer to a commit got lost ({type(error).__name__}: {error}), and {seen}; it may still land. "
                    "Write the batch again with the same sink_id and number: it lands once"
                ) from error
            delete_quietly(store.io, transaction.written)
            lost_race_pause(attempt, sleep)
            continue
        return transaction.staged[-1].snapshot
    raise RacesLost(f"{what}: other writers were faster {_ATTEMPTS} times; nothing was written, write it again")


def lost_race_pause(attempt: int, sleep: Callable[[float], None]) -> None:
    """Wait before the next attempt, a random time, so that two writers that met once do not meet again."""
    sleep(random.uniform(0.01, 0.05) * (attempt + 1))


def _refreshed(store: Table) -> bool:
    """Load the newest metadata. Returns False when that fails, for whatever reason."""
    with suppress(Exception):
        store.refresh()
        return True
    return False


def _landed(store: Table, write_id: str) -> Snapshot | None:
    """The snapshot with this id; None while the table does not show it."""
    for snapshot in store.metadata.snapshots:
        if snapshot.summary is not None and snapshot.summary.additional_properties.get(_WRITE_ID) == write_id:
            return snapshot
    return None
