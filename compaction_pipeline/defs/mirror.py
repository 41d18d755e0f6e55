"""Makes Dagster's events of commits, wherever they were made: one for each record, and one for each node that the record compacted.

Pure. The events of a record with 10,000 nodes would block a daemon, so they come in pages. The sensor remembers its place. After a
crash an event may be told twice, but none is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import dagster as dg

from compaction_pipeline.core.commit.record import CompactionRecord, RecordStatus
from compaction_pipeline.core.insight.node_change import before_and_after
from compaction_pipeline.core.tables.node_keys import table_key
from compaction_pipeline.core.words import count_change_text, count_text
from compaction_pipeline.core.work.merged import MergedWork
from compaction_pipeline.core.work.work import Work
from compaction_pipeline.defs.names import Names
from compaction_pipeline.defs.page_links import node_links
from compaction_pipeline.defs.work_metadata import merged_metadata, record_metadata

TasksByKey = Mapping[str, Sequence[MergedWork[Work]]]
"""Tasks of a record by the keys of their nodes."""

TasksOf = Callable[[CompactionRecord], TasksByKey]
"""Returns the tasks of a record that are still kept."""


@dataclass(frozen=True, slots=True)
class Page:
    """The events of one tick.

    `told` are the records whose last events are in this page. The next page begins with the record after them, at its event number
    `offset`.
    """

    events: tuple[dg.AssetMaterialization, ...]
    told: tuple[str, ...]
    offset: int


def page_of(names: Names, records: Iterable[CompactionRecord], tasks_of: TasksOf, limit: int, offset: int = 0) -> Page:
    """The first `limit` events of these records, in the order given. The first `offset` events of the first record were told before."""
    events: list[dg.AssetMaterialization] = []
    told: list[str] = []
    for record in records:
        of_record = events_of(names, record, tasks_of(record))[offset:]
        room = limit - len(events)
        events += of_record[:room]
        if len(of_record) > room:
            return Page(tuple(events), tuple(told), offset + room)
        told.append(record.record_id)
        offset = 0
    return Page(tuple(events), tuple(told), 0)


def events_of(names: Names, record: CompactionRecord, tasks: TasksByKey) -> list[dg.AssetMaterialization]:
    """Every event of one record, in which those of its nodes come first. There are none unless the record was committed."""
    if record.status is not RecordStatus.COMMITTED or not record.committed_task_ids:
        return []
    return [*node_events(names, record, tasks), record_event(names, record)]


def record_event(names: Names, record: CompactionRecord) -> dg.AssetMaterialization:
    """A materialization of `compaction_records` for the record's table."""
    tasks = count_text(len(record.committed_task_ids), "task")
    return dg.AssetMaterialization(
        names.compaction_records,
        partition=table_key(record.table),
        description=f"{tasks} committed as snapshot {record.snapshot_after}: {record.figures.of_commit}",
        metadata=record_metadata(names, record),
    )


def node_events(names: Names, record: CompactionRecord, tasks: TasksByKey) -> list[dg.AssetMaterialization]:
    """A materialization of `compacted_files` for every node that has a committed task."""
    committed = frozenset(record.committed_task_ids)
    by_key = {key: [task for task in of_node if task.task_id in committed] for key, of_node in tasks.items()}
    return [
        dg.AssetMaterialization(
            names.compacted_files, partition=key, description=_change(of_node), metadata=_node_metadata(names, key, of_node, record)
        )
        for key, of_node in sorted(by_key.items())
        if of_node
    ]


def _node_metadata(names: Names, key: str, tasks: Sequence[MergedWork[Work]], record: CompactionRecord) -> dict[str, dg.MetadataValue]:
    """The picture of the change first, then links, then figures."""
    metadata = merged_metadata(tasks, record)
    return {"before_after": metadata["before_after"], "counted": metadata["counted"], **node_links(names, key, record), **metadata}


def _change(tasks: Sequence[MergedWork[Work]]) -> str:
    before, after = before_and_after(tasks)
    return f"{count_change_text(before.files, after.files, 'file')} for readers of the merged rows"
