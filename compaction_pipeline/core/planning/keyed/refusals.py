"""Which keyed tables are read but never compacted, because a merge of their changes could lose rows, bring them back or double them.

Each function raises TableRefused with a sentence, or returns None. Other refusals are where their facts are read: files that lost their
deletes and files in the wrong store in `core/tables/keyed/merge_on_read.py`, statistics files without their blob in
`iceberg/keyed/sequences.py`, and partitions whose paths are one text in the plan of a partition.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from compaction_pipeline.core.errors import TableRefused
from compaction_pipeline.core.tables.data_file import LiveFile
from compaction_pipeline.core.tables.keyed.file_names import base_file
from compaction_pipeline.core.tables.keyed.optimized_sequence import EXPIRED_KEY, SEQUENCE_FLAG, OptimizedSequences
from compaction_pipeline.core.tables.keyed.partition_paths import PartitionKey, PathField
from compaction_pipeline.core.tables.keyed.transactions import OVERWRITE_KEY

_PRODUCER_KEY, _OPTIMIZER = "snapshot.producer", "OPTIMIZE"
"""Amoro's optimizer writes these into the summaries of its snapshots."""
_DECIMAL = re.compile(r"decimal\(\d+, ?(\d+)\)")


@dataclass(frozen=True, slots=True)
class FlaggedSnapshot:
    """A snapshot of the base store that has optimized sequences. `summary` is the snapshot's."""

    snapshot_id: int
    sequences: OptimizedSequences
    summary: Mapping[str, str]


def refuse_partitioning(store: str, specs: Mapping[int, Sequence[PathField]]) -> None:
    """Refuse a store with several partition specs, or with one by year. `store` is its name, for messages."""
    if len(specs) > 1:
        raise TableRefused(
            f"{store} of a keyed table has the partition specs {', '.join(map(str, sorted(specs)))}: deletes are found by partition, so "
            "those of one spec would not meet rows of another. Copy the rows into a new keyed table with one spec"
        )
    for fields in specs.values():
        for each in fields:
            if each.transform == "year":
                raise TableRefused(
                    f"{store} of a keyed table is partitioned by year ({each.name!r}), and Amoro reads the optimized sequences of such "
                    "partitions wrongly: merged changes would appear twice. Copy the rows into a new keyed table by month or day"
                )


def refuse_promoted_keys(key_types: Mapping[str, Iterable[str]]) -> None:
    """Refuse a primary key whose columns have changed their type. `key_types` are the Iceberg types of each column in all schemas.

    The hash of a key depends on its type: that of a negative int is not that of the same long. So files that were written before the change
    hold rows in other nodes than their deletes. A decimal with more digits has the same hash, as long as its scale is the same.
    """
    for column, types in key_types.items():
        kinds = sorted({_DECIMAL.sub(r"decimal with scale \1", kind) for kind in types})
        if len(kinds) > 1:
            raise TableRefused(
                f"column {column!r} of the primary key has had the types {' and '.join(kinds)}: keys of the two have different hashes, so "
                "deletes may lie in other nodes than their rows. Copy the rows into a new keyed table"
            )


def refuse_lost_sequences(
    base: Iterable[LiveFile], *, has_flagged_snapshot: bool, legacy: OptimizedSequences | None, parents_expired: bool
) -> None:
    """Refuse a base store that has merged changes, but does not say which.

    `legacy` are the numbers in the property of old versions; None without the property. `parents_expired` tells whether an ancestor of the
    head is missing in the metadata: it may have said which changes were merged.
    """
    if has_flagged_snapshot:
        return
    named = ((file, base_file(file.path).transaction_id) for file in base if file.is_data)
    # The property stays as it was when later versions keep their numbers elsewhere. So it does not count when files are newer than it.
    merged = next((each for each in named if each[1] > ((legacy.of(each[0].partition) if legacy is not None else None) or 0)), None)
    if merged is None and (legacy is not None or not parents_expired):
        return
    why = (
        f"its file {merged[0].path} has changes of transaction {merged[1]}"
        if merged is not None
        else "older snapshots, which may have said so, are expired"
    )
    outdated = "" if legacy is None else ", and the property of old versions has a lower number"
    raise TableRefused(
        f"no snapshot of the base store says '{SEQUENCE_FLAG}', but {why}{outdated}: which changes are already in the base store is "
        "unknown, and they could appear twice. Roll the table back to a snapshot with its statistics file; when an expiry by another "
        "program has removed that snapshot, restore the file, and register the metadata of before"
    )


def refuse_new_change_store(name: str, sequences: OptimizedSequences, last_sequence: int) -> None:
    """Refuse the table `name` when its change store cannot have had the changes that its base store says are merged.

    `last_sequence` is the number of the change store's newest snapshot. A store that was dropped and created anew numbers its snapshots
    from 1 again. Its changes would count as merged, so whatever is written would be acknowledged and never seen.
    """
    if sequences.highest > last_sequence:
        raise TableRefused(
            f"table {name}: changes up to {sequences.highest} are in its base store, but its change store has given the number "
            f"{last_sequence} last, so it was made anew or taken back to old metadata: readers would skip its changes up to "
            f"{sequences.highest}. Register the metadata of the former change store under its name again, or copy the rows of the base "
            "store into a new keyed table and write to that"
        )


def refuse_set_back(name: str, sequences: OptimizedSequences, expired: OptimizedSequences) -> None:
    """Refuse the table `name` when its base store, with these `sequences`, lacks changes that have left its change store.

    `expired` has the highest data sequence number of each partition that has left. No snapshot of the base store lacked these changes then,
    so its metadata was taken back since, or an insert-overwrite of another program ended after its timeout.
    """
    for spec_id, gone in (expired.by_spec or {0: expired}).items():
        for key, number in gone.by_partition.items():
            now = sequences.of_spec(spec_id).by_partition.get(key)
            if now is None or now < number:
                raise TableRefused(
                    f"table {name}: changes up to {number} of partition {_in_words(key, gone.fields)!r} were in its base store, and have "
                    f"left its change store, but now the base store has those up to {'none' if now is None else now} only: rows would be "
                    "missing, or come back. Take the base store to a snapshot that has them, or register its newer metadata again. Or roll "
                    f"the change store back to a snapshot that still has them, and remove its property '{EXPIRED_KEY}'"
                )


def refuse_other_columns(base: Mapping[int, tuple[str, str]], change: Mapping[int, tuple[str, str]]) -> None:
    """Refuse stores in which one field id means two columns. Both map field ids of the current schema to (full name, type)."""
    for number in sorted(base.keys() & change.keys()):
        if base[number] != change[number]:
            (base_name, base_type), (change_name, change_type) = base[number], change[number]
            raise TableRefused(
                f"column id {number} is {base_name!r} ({base_type}) in the base store and {change_name!r} ({change_type}) in the change "
                "store: a merge would move values into another column. Make the same change of the schema in both stores, in the same order"
            )


def refuse_lowered_sequences(history: Sequence[FlaggedSnapshot]) -> None:
    """Refuse a base store whose optimized sequence of a partition has become lower, or got lost. `history` is newest first.

    `history` are the flagged ancestors of the head, without gaps from the newest on. After a rollback the higher number is in no ancestor.
    An insert-overwrite sets the number to its own transaction, which may be lower.
    """
    for newer, older in pairwise(history):
        overwritten = newer.summary.get(OVERWRITE_KEY)
        for key, before in older.sequences.by_partition.items():
            now = newer.sequences.by_partition.get(key)
            if (now is None or now < before) and (now is None or str(now) != overwritten):
                raise TableRefused(
                    f"snapshot {newer.snapshot_id} of the base store has the optimized sequence {'none' if now is None else now} for the "
                    f"partition {_in_words(key, older.sequences.fields)!r}, but snapshot {older.snapshot_id} before it has {before}: "
                    f"changes between them would appear twice. Roll the table back to snapshot {older.snapshot_id}"
                )


def refuse_other_optimizer(summaries: Sequence[tuple[int, Mapping[str, str]]], our_key: str) -> None:
    """Refuse a table that Amoro's optimizer works on too. Two optimizers on one table are not supported.

    `summaries` are (snapshot id, summary) of the head of the base store and of its ancestors, newest first. Snapshots of this program have
    `our_key` in their summaries. A table may come from Amoro: its snapshots before the first of this program do not count.
    """
    foreign: int | None = None
    for snapshot_id, summary in summaries:
        if our_key in summary:
            if foreign is not None:
                raise TableRefused(
                    f"snapshot {foreign} of the base store was committed by another optimizer ('{_PRODUCER_KEY}' is '{_OPTIMIZER}') after "
                    f"snapshot {snapshot_id} of this program: two optimizers on one keyed table are not supported. Switch one of them off, "
                    "and expire the snapshot"
                )
        elif summary.get(_PRODUCER_KEY) == _OPTIMIZER:
            foreign = snapshot_id


def _in_words(key: PartitionKey, fields: Sequence[PathField]) -> str:
    return "/".join(f"{each.name}={value}" for each, value in zip(fields, key, strict=False))
