"""Commits change files to a change store: all of them once, or none."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from uuid import uuid4

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation

from compaction_pipeline.core.errors import CommitStateUnknown, ConfigError, RacesLost
from compaction_pipeline.core.tables.data_file import OutputFile
from compaction_pipeline.core.tables.keyed.changes import Batch, marks_of, sinks, watermark_ms
from compaction_pipeline.iceberg.failures import translated
from compaction_pipeline.iceberg.manifests.entries import data_file_of
from compaction_pipeline.iceberg.manifests.partitions import partition_struct
from compaction_pipeline.iceberg.rewrite_files import AddedFile, SnapshotChange, Transaction, delete_quietly

_ATTEMPTS = 20
_WRITE_ID = "compaction.write-id"
"""The key in a snapshot's summary by which a writer finds out whether its commit has landed."""
_WATERMARK = "watermark"
"""The key in a snapshot's summary that holds the watermark of the table, in milliseconds since 1970."""


def append_changes(
    change: Table,
    files: Sequence[OutputFile],
    batch: Batch | None,
    check: Callable[[Table], None],
    sleep: Callable[[float], None] = time.sleep,
) -> int | None:
    """Commit the files as one snapshot, on the newest metadata. Returns its data sequence number; None when the batch is there already.

    `check` looks at the metadata of each attempt, and raises when the files do not fit it any more. A lost race is tried again. Raises
    RacesLost when the last try has lost, and CommitStateUnknown when nothing proves whether the files were committed. Only after
    CommitStateUnknown may the files be live.
    """
    write_id, name = uuid4().hex, ".".join(change.name())
    for attempt in range(_ATTEMPTS):
        with translated(f"change store {name}"):
            change.refresh()
        if batch is not None and batch.has_landed(change.properties):
            return None
        check(change)
        struct = partition_struct(change.metadata, change.metadata.default_spec_id)
        transaction = Transaction(change, attempt=attempt)
        added = [AddedFile(data_file_of(file, struct)) for file in files]
        marks = batch.marks(change.properties) if batch is not None else {}
        watermark = watermark_ms({**change.properties, **marks})
        summary = {} if watermark is None else {_WATERMARK: str(watermark)}
        transaction.stage(SnapshotChange(Operation.APPEND, added, properties={_WRITE_ID: write_id, **summary}))
        transaction.set_properties(marks)
        try:
            transaction.commit()
        except CommitFailedException:
            # A client may send a request twice. When the first one landed and its answer got lost, the second one loses a race against it.
            with translated(f"change store {name}"):
                change.refresh()
            landed = _landed(change, write_id)
            if landed is not None:
                return landed
            delete_quietly(change.io, transaction.written)
            sleep(random.uniform(0.01, 0.05) * (attempt + 1))
            continue
        except Exception as error:
            with suppress(Exception):
                change.refresh()
            landed = _landed(change, write_id)
            if landed is None:
                raise CommitStateUnknown(
                    f"change store {name}: the catalog's answer to a commit got lost ({type(error).__name__}: {error}), and the table does "
                    "not show it yet; it may still land. Write the batch again with the same sink_id and number: it lands once"
                ) from error
            return landed
        return transaction.staged[-1].snapshot.sequence_number
    raise RacesLost(f"change store {name}: other writers were faster {_ATTEMPTS} times; nothing was written, write it again")


def _landed(change: Table, write_id: str) -> int | None:
    """The data sequence number of the snapshot with this id; None while the table does not show it."""
    for snapshot in change.metadata.snapshots:
        if snapshot.summary is not None and snapshot.summary.additional_properties.get(_WRITE_ID) == write_id:
            return snapshot.sequence_number
    return None


def forget_sink(change: Table, sink_id: str, sleep: Callable[[float], None] = time.sleep) -> None:
    """Remove the marks of a sink from a change store.

    Raises ConfigError when the sink has none, and RacesLost when other writers were always faster.
    """
    name = ".".join(change.name())
    for attempt in range(_ATTEMPTS):
        with translated(f"change store {name}"):
            change.refresh()
            marks = [key for key in marks_of(sink_id) if key in change.properties]
            if not marks:
                known = ", ".join(sinks(change.properties)) or "none"
                raise ConfigError(f"change store {name} has no marks of sink {sink_id!r}; the sinks with marks are: {known}")
            try:
                with change.transaction() as transaction:
                    transaction.remove_properties(*marks)
            except CommitFailedException:
                sleep(random.uniform(0.01, 0.05) * (attempt + 1))
            else:
                return
    raise RacesLost(f"change store {name}: other writers were faster {_ATTEMPTS} times; the marks of sink {sink_id!r} stay, try it again")
