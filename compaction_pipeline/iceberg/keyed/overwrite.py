"""Replaces partitions of a base store by new rows: commits an insert-overwrite (Amoro: `OverwriteBaseFiles`).

An insert-overwrite is a transaction of the change store, with a number that is given before anything is written. The new base files are
called by it. In the same commit the optimized sequence of each partition becomes this number. So the changes up to it no longer count, and
those of later transactions apply to the new rows. Changes of an earlier transaction must not land after it: they come
before the new rows.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from pyiceberg.table.snapshots import Operation

from compaction_pipeline.core.errors import RacesLost, TableRefused
from compaction_pipeline.core.tables.data_file import LiveFile, OutputFile
from compaction_pipeline.core.tables.keyed.changes import Batch
from compaction_pipeline.core.tables.keyed.file_names import change_file
from compaction_pipeline.core.tables.keyed.optimized_sequence import OptimizedSequences
from compaction_pipeline.core.tables.keyed.partition_paths import key_of, looks_like_null, path_of
from compaction_pipeline.core.tables.keyed.transactions import OVERWRITE_KEY, TRANSACTION_TIMEOUT_KEY, transaction_timeout
from compaction_pipeline.core.tables.node import Partition
from compaction_pipeline.core.words import time_text
from compaction_pipeline.iceberg.keyed.append import watermark_summary
from compaction_pipeline.iceberg.keyed.change_plan import refuse_unsure
from compaction_pipeline.iceberg.keyed.statistics import STATISTICS_FLAGS, attach_statistics
from compaction_pipeline.iceberg.keyed.stores import KeyedStores
from compaction_pipeline.iceberg.keyed.transactions import read_open_transactions
from compaction_pipeline.iceberg.keyed.write_commits import commit_write
from compaction_pipeline.iceberg.manifests.entries import data_file_of
from compaction_pipeline.iceberg.manifests.partitions import partition_struct
from compaction_pipeline.iceberg.rewrite_files import AddedFile, SnapshotChange, Transaction


class TransactionPassed(RacesLost):
    """Later changes are in the base store already, so the overwrite needs a new transaction. Nothing was committed."""


@dataclass(frozen=True)
class Overwrite:
    """The new base files, which replace all rows of their partitions. Their names tell `transaction_id`."""

    transaction_id: int
    files: Sequence[OutputFile]
    batch: Batch | None

    @property
    def partitions(self) -> frozenset[Partition]:
        return frozenset(file.partition for file in self.files)


def overwrite_partitions(
    stores: KeyedStores,
    overwrite: Overwrite,
    load: Callable[[], KeyedStores],
    clock: Callable[[], datetime],
    sleep: Callable[[float], None] = time.sleep,
) -> bool:
    """Commit an overwrite whose files were written for these stores. Returns False when the batch is there already.

    `load` loads the stores of each attempt anew. Raises TransactionPassed when the overwrite has to begin again, RacesLost when a writer
    may still bring changes that would come before it, TableRefused when the table cannot be overwritten or got another layout meanwhile,
    and else as `commit_write` does.
    """

    # The stores are refreshed when an answer gets lost, so what the files were written for is noted first.
    layout = _layout(stores)

    def stage(summary: Mapping[str, str], attempt: int) -> Transaction | None:
        now = load()
        known, marks = now.marks, {}
        if overwrite.batch is not None:
            if overwrite.batch.has_landed(known):
                return None
            marks = overwrite.batch.marks(known)
        if _layout(now) != layout:
            raise TableRefused(
                f"table {now.name} got other columns, partitions or keys, or was created anew, while rows were written: write them again"
            )
        base, changes = _files_to_overwrite(now, clock(), overwrite.transaction_id)
        _check_partitions(now, overwrite, now.sequences(), (*base, *changes))
        _check_late(now, overwrite, changes)
        removed = [file for file in base if file.partition in overwrite.partitions]
        _refuse_live_twice(removed)
        struct = partition_struct(now.base.metadata, now.base.metadata.default_spec_id)
        added = [AddedFile(data_file_of(file, struct)) for file in overwrite.files]
        about = {OVERWRITE_KEY: str(overwrite.transaction_id), **STATISTICS_FLAGS, **watermark_summary(known, marks)}
        transaction = Transaction(now.base, attempt=attempt)
        transaction.stage(SnapshotChange(Operation.OVERWRITE, added, removed, {**summary, **about}))
        with transaction.dropped_on_failure():
            moved = dict.fromkeys(overwrite.partitions, overwrite.transaction_id)
            attach_statistics(now.name, now.base, transaction, f"overwrite-{overwrite.transaction_id}", moved)
        transaction.set_properties(marks)
        return transaction

    return commit_write(stores.base, f"base store {stores.name}", stage, sleep) is not None


def refuse_overwrite(stores: KeyedStores, now: datetime) -> None:
    """Raise TableRefused when the table cannot be overwritten, and RacesLost when that cannot begin before a writer has ended."""
    _files_to_overwrite(stores, now, None)
    stores.sequences()


def _files_to_overwrite(stores: KeyedStores, now: datetime, number: int | None) -> tuple[list[LiveFile], list[LiveFile]]:
    """The live files of the base store and of the change store. `number` is the transaction of the overwrite, or None before it begins.

    Raises as `refuse_overwrite`. Changes of a lower transaction that land later would apply to none of the new rows, and their inserts
    would be live beside them: readers compare transactions.
    """
    base, changes = stores.files()
    refuse_unsure(stores, base)
    opened = read_open_transactions(stores.change.metadata, stores.base.metadata, changes, base, now)
    before = [each for each in opened if each.brings_changes and (number is None or each.transaction_id < number)]
    if before:
        first, until = before[0], before[0].begun_at + transaction_timeout(stores.base.properties)
        raise RacesLost(
            f"table {stores.name}: transaction {first.transaction_id} began at {time_text(first.begun_at)} and has not ended. Its changes "
            "come before the new rows, and when they land later, rows of one key could be live twice: nothing was overwritten. Overwrite "
            f"again when its writer has ended. It may hold overwrites back until {time_text(until)} ('{TRANSACTION_TIMEOUT_KEY}' of the "
            "base store); when its writer is gone for good, lower that"
        )
    return base, changes


def _layout(stores: KeyedStores) -> object:
    """What the written files depend on."""
    base = stores.base.metadata
    return base.table_uuid, base.current_schema_id, base.default_spec_id, stores.change.metadata.table_uuid, stores.key


def _check_partitions(stores: KeyedStores, overwrite: Overwrite, sequences: OptimizedSequences, live: Iterable[LiveFile]) -> None:
    """Each partition may get the transaction as its optimized sequence. `live` are the live files of both stores."""
    fields = sequences.fields
    all_partitions = {*overwrite.partitions, *(file.partition for file in live)}
    for partition in overwrite.partitions:
        key = key_of(partition, fields)
        is_shared = None in key and any(key_of(other, fields) == key for other in all_partitions - {partition})
        if is_shared or looks_like_null(partition, key):
            raise TableRefused(
                f"table {stores.name}: {path_of(partition, fields)!r} is the path of two partitions, NULL and a text, and one optimized "
                "sequence would stand for both; give the rows of one of them another partition value"
            )
        sequence = sequences.of(partition)
        if sequence is not None and sequence >= overwrite.transaction_id:
            raise TransactionPassed(
                f"table {stores.name}: while rows of partition {path_of(partition, fields)!r} were written, changes up to "
                f"{sequence} went into the base store, and the overwrite is transaction {overwrite.transaction_id}: nothing was "
                f"overwritten, write it again. If the write takes longer than '{TRANSACTION_TIMEOUT_KEY}' of the base store allows, "
                "raise that"
            )


def _check_late(stores: KeyedStores, overwrite: Overwrite, changes: Iterable[LiveFile]) -> None:
    """No change file that landed after the overwrite began is of a transaction before it: its inserts would be live beside the new rows.

    A later transaction replaces its rows too, because they have landed before that one begins.
    """
    for file in changes:
        transaction_id = change_file(file.path, file.data_sequence_number).transaction_id
        if file.partition in overwrite.partitions and transaction_id < overwrite.transaction_id < file.data_sequence_number:
            raise TransactionPassed(
                f"table {stores.name}: while rows were written, changes of transaction {transaction_id} landed, which began before the "
                f"overwrite, transaction {overwrite.transaction_id}: nothing was overwritten, write it again"
            )


def _refuse_live_twice(files: Iterable[LiveFile]) -> None:
    for (path, _), count in Counter((file.path, file.manifest_path) for file in files).items():
        if count > 1:
            raise TableRefused(
                f"file {path} is live more than once in the base store, so it cannot be removed: remove one entry of it first"
            )
