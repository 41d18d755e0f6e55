"""Decides by numbers whether a node is due for a MINOR or a FULL. `planning.plain.major` decides about MAJOR, because that needs the files.

The count and the size are judged for data files and for delete files separately. The interval counts both together. Data files of an open
task (Pending, Executing, Prepared, or FAILED and waiting for its retry) do not count. Delete files always count.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from compaction_pipeline.core.fragmentation.verdict import NodeHistory, PlanReasonCode
from compaction_pipeline.core.tables.data_file import LiveFile
from compaction_pipeline.core.tables.figures import NodeMetrics
from compaction_pipeline.core.tables.node import TableNode
from compaction_pipeline.core.tables.properties import TableProperties
from compaction_pipeline.core.words import bytes_text, count_text, duration_text
from compaction_pipeline.core.work.kinds import CompactionType

_COVERS: Mapping[CompactionType, tuple[CompactionType, ...]] = {
    # A MAJOR also does the work of a MINOR, and a FULL does the work of all types.
    CompactionType.MINOR: (CompactionType.MINOR, CompactionType.MAJOR, CompactionType.FULL),
    CompactionType.MAJOR: (CompactionType.MAJOR, CompactionType.FULL),
    CompactionType.FULL: (CompactionType.FULL,),
}


_Sum = tuple[int, int]
"""A number of files, and their size in bytes."""


@dataclass(frozen=True, slots=True)
class Trigger:
    """Whether a type of compaction is due, and the text that says why or why not. `waits` is why it must wait, although it would be due."""

    due: bool
    text: str
    waits: PlanReasonCode | None = None


def minor_trigger(
    node: TableNode, data: Sequence[LiveFile], deletes: Sequence[LiveFile], history: NodeHistory, properties: TableProperties, now: datetime
) -> Trigger:
    """Decide whether a MINOR is due.

    It is due when the small data files, or the small delete files, reach the count or the size of the table's properties. It is also
    due when the interval has passed and there are two small files. `deletes` are the delete files that a reader of the node opens: its
    own, and global ones that reach its data files.
    """
    return minor_trigger_of(node, _small(data, properties), _small(deletes, properties), history, properties, now)


def new_files_trigger(data: Sequence[LiveFile], deletes: Sequence[LiveFile], properties: TableProperties) -> Trigger:
    """Decide whether files that came after a task was planned make a MINOR due by themselves: by their number or their size.

    The interval does not count, because the work that it asks for waits already.
    """
    small_data, small_deletes = _small(data, properties), _small(deletes, properties)
    enough = _enough(small_data, small_deletes, properties)
    return Trigger(False, _lacking(small_data, small_deletes, properties)) if enough is None else Trigger(True, enough)


def minor_trigger_of(
    node: TableNode, small_data: _Sum, small_deletes: _Sum, history: NodeHistory, properties: TableProperties, now: datetime
) -> Trigger:
    """Decide the same as `minor_trigger`, from the counts and bytes of the small files."""
    enough = _enough(small_data, small_deletes, properties)
    if enough is not None:
        return Trigger(True, enough)
    small = small_data[0] + small_deletes[0]
    if small >= 2 and interval_passed(node, CompactionType.MINOR, properties.minor_interval, history, now):
        return Trigger(True, f"{count_text(small, 'small file')}, and no MINOR for {duration_text(properties.minor_interval)}")
    return Trigger(False, _lacking(small_data, small_deletes, properties))


def enough_small_files(metrics: NodeMetrics, properties: TableProperties) -> str | None:
    """Say that the small files of a node make a MINOR due, by their number or their size; None when they do not.

    `metrics` count the node's own delete files only. So this may miss global delete files, which a plan counts too.
    """
    return _enough(
        (metrics.small_data_files, metrics.small_data_bytes), (metrics.small_delete_files, metrics.small_delete_bytes), properties
    )


def _enough(small_data: _Sum, small_deletes: _Sum, properties: TableProperties) -> str | None:
    least, volume = properties.minor_file_count, properties.minor_total_size_bytes
    for word, (count, size) in (("data", small_data), ("delete", small_deletes)):
        if count >= least:
            return f"{count_text(count, f'small {word} file')}, and {least} make a MINOR due"
        if count and size >= volume:
            return f"{bytes_text(size)} in {count_text(count, f'small {word} file')}, and {bytes_text(volume)} make a MINOR due"
    return None


def _lacking(small_data: _Sum, small_deletes: _Sum, properties: TableProperties) -> str:
    """Say how many small files there are, and how many are needed."""
    least, volume = properties.minor_file_count, properties.minor_total_size_bytes
    amounts = [f"{count_text(small_data[0], 'small data file')} of {least} needed; {bytes_text(small_data[1])} of {bytes_text(volume)}"]
    if small_deletes[0]:
        amounts.append(f"{count_text(small_deletes[0], 'small delete file')} of {least}; {bytes_text(small_deletes[1])}")
    return "; ".join(amounts)


def _small(files: Sequence[LiveFile], properties: TableProperties) -> _Sum:
    sizes = [file.file_size_bytes for file in files if file.file_size_bytes <= properties.fragment_size_bytes]
    return len(sizes), sum(sizes)


def full_trigger(node: TableNode, history: NodeHistory, properties: TableProperties, now: datetime) -> Trigger:
    """Decide whether a FULL is due: only by its interval, which is off by default."""
    if properties.full_interval is None or not interval_passed(node, CompactionType.FULL, properties.full_interval, history, now):
        return Trigger(False, "no FULL is due")
    return Trigger(True, f"no FULL for {duration_text(properties.full_interval)}")


def interval_passed(node: TableNode, type: CompactionType, interval: timedelta, history: NodeHistory, now: datetime) -> bool:
    """Return whether `interval` has passed since this type, or one that includes it, was last done on the node.

    When none was ever done, the interval counts from the time when the node was first seen.
    """
    last_done = {covering: moment for covering in _COVERS[type] if (moment := history.last_done.get((node, covering))) is not None}
    ends = interval_end(type, interval, last_done, history.first_seen.get(node))
    return ends is not None and now >= ends


def interval_end(
    type: CompactionType, interval: timedelta, last_done: Mapping[CompactionType, datetime], first_seen: datetime | None
) -> datetime | None:
    """Return when `interval` ends for a node with these times (see `interval_passed`); None when it does not end."""
    since = max((last_done[covering] for covering in _COVERS[type] if covering in last_done), default=first_seen)
    try:
        return since + interval if since is not None else None
    except OverflowError:
        # The interval ends after the year 9999.
        return None
