"""Tells Dagster what was committed anywhere: one event per record and one per node that it compacted.

Pure. A record of 10,000 nodes must not block a daemon, so events are cut into pages and the place is kept; an event may be told
twice after a crash, never left out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import dagster as dg

from compaction_pipeline.core.commit.record import CompactionRecord, RecordStatus
from compaction_pipeline.core.queue.task import CompactionTask
from compaction_pipeline.core.tables.node import node_key
from compaction_pipeline.defs.keys import COMPACTED_FILES, COMPACTION_RECORDS
from compaction_pipeline.defs.partitions import table_key
from compaction_pipeline.defs.work_metadata import merged_metadata, record_metadata

TasksOf = Callable[[CompactionRecord], Sequence[CompactionTask]]
"""The tasks of a record that are still kept."""


@dataclass(frozen=True, slots=True)
class Page:
    """Events of one tick. `told` are the records whose events are all in it (or were before); the next page begins at `offset`
    of the record after them."""

    events: tuple[dg.AssetMaterialization, ...]
    told: tuple[str, ...]
    offset: int


def page_of(records: Iterable[CompactionRecord], tasks_of: TasksOf, limit: int, offset: int = 0) -> Page:
    """The first `limit` events of these records, oldest record first; `offset` events of the first one were told before."""
    events: list[dg.AssetMaterialization] = []
    told: list[str] = []
    for record in records:
        of_record = events_of(record, tasks_of(record))[offset:]
        room = limit - len(events)
        events += of_record[:room]
        if len(of_record) > room:
            return Page(tuple(events), tuple(told), offset + room)
        told.append(record.record_id)
        offset = 0
    return Page(tuple(events), tuple(told), 0)


def events_of(record: CompactionRecord, tasks: Sequence[CompactionTask]) -> list[dg.AssetMaterialization]:
    """Every event of one record: its nodes first, so that the record's own is the last word. None unless it was committed."""
    if record.status is not RecordStatus.COMMITTED or not record.committed_task_ids:
        return []
    return [*node_events(record, tasks), record_event(record)]


def record_event(record: CompactionRecord) -> dg.AssetMaterialization:
    """A materialization of `compaction_records` for the record's table."""
    return dg.AssetMaterialization(
        COMPACTION_RECORDS,
        partition=table_key(record.table),
        description=f"{len(record.committed_task_ids)} task(s) committed as snapshot {record.snapshot_after}",
        metadata=record_metadata(record),
    )


def node_events(record: CompactionRecord, tasks: Sequence[CompactionTask]) -> list[dg.AssetMaterialization]:
    """A materialization of `compacted_files` for every node of which a task was committed."""
    committed = frozenset(record.committed_task_ids)
    by_node: dict[str, list[CompactionTask]] = defaultdict(list)
    for task in tasks:
        if task.task_id in committed:
            by_node[node_key(task.table, task.work.node)].append(task)
    return [
        dg.AssetMaterialization(COMPACTED_FILES, partition=key, metadata=merged_metadata(of_node, record))
        for key, of_node in sorted(by_node.items())
    ]
