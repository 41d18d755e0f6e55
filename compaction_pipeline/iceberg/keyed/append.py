"""Commits change files to a change store, begins insert-overwrites there, and forgets the marks of sinks."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from uuid import uuid4

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation, Snapshot

from compaction_pipeline.core.errors import ConfigError, RacesLost
from compaction_pipeline.core.tables.data_file import OutputFile
from compaction_pipeline.core.tables.keyed.changes import Batch, marks_of, sinks, watermark_ms
from compaction_pipeline.core.tables.keyed.transactions import BEGIN_KEY, OVERWRITE_BEGIN_KEY
from compaction_pipeline.iceberg.commit.attempts import LostRace, RetryPolicy, until_won
from compaction_pipeline.iceberg.deletions import let_pyiceberg_ask
from compaction_pipeline.iceberg.failures import translated
from compaction_pipeline.iceberg.keyed.stores import KeyedStores
from compaction_pipeline.iceberg.keyed.write_commits import commit_write
from compaction_pipeline.iceberg.manifests.entries import data_file_of
from compaction_pipeline.iceberg.manifests.partitions import partition_struct
from compaction_pipeline.iceberg.rewrite_files import AddedFile, SnapshotChange, Transaction

_WATERMARK = "watermark"
"""The key in a snapshot's summary that holds the watermark of the table, in milliseconds since 1970."""


def append_changes(
    stores: KeyedStores,
    files: Sequence[OutputFile],
    batch: Batch | None,
    check: Callable[[Table], None],
    summary: Mapping[str, str],
    sleep: Callable[[float], None] = time.sleep,
) -> Snapshot | None:
    """Commit the files as one snapshot, on the newest metadata. Returns it; None when the batch is there already.

    `check` looks at the metadata of each attempt, and raises when the files do not fit it any more. `summary` is added to what the
    snapshot's summary says. Raises as `commit_write` does.
    """
    return _append(stores, files, batch, check, summary, sleep)


def begin_overwrite(stores: KeyedStores, sleep: Callable[[float], None] = time.sleep) -> int:
    """Begin the transaction of an insert-overwrite by an empty snapshot of the change store. Returns its number.

    Raises as `commit_write` does.
    """
    snapshot = _append(stores, (), None, lambda change: None, {BEGIN_KEY: uuid4().hex, OVERWRITE_BEGIN_KEY: "true"}, sleep)
    assert snapshot is not None, "only a batch may have landed before"
    return snapshot.sequence_number or 0


def _append(
    stores: KeyedStores,
    files: Sequence[OutputFile],
    batch: Batch | None,
    check: Callable[[Table], None],
    properties: Mapping[str, str],
    sleep: Callable[[float], None],
) -> Snapshot | None:
    change, name = stores.change, f"change store {'.'.join(stores.change.name())}"

    def stage(summary: Mapping[str, str], attempt: int) -> Transaction | None:
        with translated(name):
            change.refresh()
        if batch is not None:
            # An insert-overwrite may have left the mark of this batch in the base store meanwhile.
            with translated(f"table {stores.name}"):
                stores.base.refresh()
        known = stores.marks
        if batch is not None and batch.has_landed(known):
            return None
        check(change)
        struct = partition_struct(change.metadata, change.metadata.default_spec_id)
        transaction = Transaction(change, attempt=attempt)
        added = [AddedFile(data_file_of(file, struct)) for file in files]
        marks = batch.marks(known) if batch is not None else {}
        transaction.stage(SnapshotChange(Operation.APPEND, added, properties={**summary, **properties, **watermark_summary(known, marks)}))
        transaction.set_properties(marks)
        return transaction

    return commit_write(change, name, stage, sleep)


def watermark_summary(known: Mapping[str, str], marks: Mapping[str, str]) -> dict[str, str]:
    """What a snapshot's summary says about the watermark of a table with these marks, together with those that the snapshot sets."""
    watermark = watermark_ms({**known, **marks})
    return {} if watermark is None else {_WATERMARK: str(watermark)}


def forget_sink(stores: KeyedStores, sink_id: str, sleep: Callable[[float], None] = time.sleep) -> None:
    """Remove the marks of a sink from both stores.

    Raises ConfigError when the sink has none, and RacesLost when other writers were always faster.
    """
    known = {**stores.base.properties, **stores.change.properties}
    if not any(key in known for key in marks_of(sink_id)):
        names = ", ".join(sinks(known)) or "none"
        raise ConfigError(f"table {stores.name} has no marks of sink {sink_id!r}; the sinks with marks are: {names}")
    for store in (stores.change, stores.base):
        _forget(store, sink_id, sleep)


def _forget(store: Table, sink_id: str, sleep: Callable[[float], None]) -> None:
    name = ".".join(store.name())

    def attempt(number: int) -> LostRace | None:
        with translated(f"table {name}"):
            store.refresh()
            marks = [key for key in marks_of(sink_id) if key in store.properties]
            if marks:
                let_pyiceberg_ask(store)
                try:
                    with store.transaction() as transaction:
                        transaction.remove_properties(*marks)
                except CommitFailedException:
                    return LostRace(RetryPolicy.WRITER, number)
        return None

    lost = until_won(attempt, sleep, random.random)
    if lost is not None:
        raise RacesLost(f"table {name}: other writers were faster {lost.attempts} times; the marks of sink {sink_id!r} stay, try it again")
