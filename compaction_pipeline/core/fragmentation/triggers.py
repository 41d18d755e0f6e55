"""Which type of compaction a node is due for, and why, in numbers.

Insert and delete files are judged apart; sizes and counts are of files that no running or waiting task holds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from compaction_pipeline.core.fragmentation.verdict import NodeHistory
from compaction_pipeline.core.queue.task import CompactionType
from compaction_pipeline.core.tables.data_file import LiveFile
from compaction_pipeline.core.tables.node import TableNode
from compaction_pipeline.core.tables.properties import TableProperties
from compaction_pipeline.core.words import bytes_text, count_text, duration_text

_COVERS: Mapping[CompactionType, tuple[CompactionType, ...]] = {
    # A major merges the small files too, and a full everything.
    CompactionType.MINOR: (CompactionType.MINOR, CompactionType.MAJOR, CompactionType.FULL),
    CompactionType.MAJOR: (CompactionType.MAJOR, CompactionType.FULL),
    CompactionType.FULL: (CompactionType.FULL,),
}


_Sum = tuple[int, int]
"""Number of files and their bytes."""


@dataclass(frozen=True, slots=True)
class Trigger:
    """Whether a type is due, and the sentence that says why or why not."""

    due: bool
    text: str


def minor_trigger(
    node: TableNode, data: Sequence[LiveFile], deletes: Sequence[LiveFile], history: NodeHistory, properties: TableProperties, now: datetime
) -> Trigger:
    """Due by small files' count or bytes, data and delete files each alone, or by the interval with two of them.

    `deletes` are the delete files that the node's readers open: its own and global ones that reach its data.
    """
    limit = properties.fragment_size_bytes
    small_data = [file.file_size_bytes for file in data if file.file_size_bytes <= limit]
    small_deletes = [file.file_size_bytes for file in deletes if file.file_size_bytes <= limit]
    return minor_trigger_of(node, (len(small_data), sum(small_data)), (len(small_deletes), sum(small_deletes)), history, properties, now)


def minor_trigger_of(
    node: TableNode, small_data: _Sum, small_deletes: _Sum, history: NodeHistory, properties: TableProperties, now: datetime
) -> Trigger:
    """The same from the numbers and bytes of small files."""
    least, volume = properties.minor_file_count, properties.minor_total_size_bytes
    for word, (count, size) in (("data", small_data), ("delete", small_deletes)):
        if count >= least:
            return Trigger(True, f"{count} small {word} files, {least} are enough")
        if count and size >= volume:
            return Trigger(True, f"{bytes_text(size)} in {count_text(count, f'small {word} file')}, {bytes_text(volume)} are enough")
    small = small_data[0] + small_deletes[0]
    if small >= 2 and interval_passed(node, CompactionType.MINOR, properties.minor_interval, history, now):
        return Trigger(True, f"{small} small files and no minor for {duration_text(properties.minor_interval)}")
    amounts = [f"{count_text(small_data[0], 'small data file')} of {least} needed; {bytes_text(small_data[1])} of {bytes_text(volume)}"]
    if small_deletes[0]:
        amounts.append(f"{count_text(small_deletes[0], 'small delete file')} of {least}; {bytes_text(small_deletes[1])}")
    return Trigger(False, "; ".join(amounts))


def full_trigger(node: TableNode, history: NodeHistory, properties: TableProperties, now: datetime) -> Trigger:
    """Due by its interval only, which is off by default."""
    if properties.full_interval is None or not interval_passed(node, CompactionType.FULL, properties.full_interval, history, now):
        return Trigger(False, "no full is due")
    return Trigger(True, f"no full for {duration_text(properties.full_interval)}")


def interval_passed(node: TableNode, type: CompactionType, interval: timedelta, history: NodeHistory, now: datetime) -> bool:
    """Whether so long ago the type, or one that includes it, was last done on the node, or the node first seen."""
    moments = [moment for covering in _COVERS[type] if (moment := history.last_done.get((node, covering))) is not None]
    since = max(moments, default=history.first_seen.get(node))
    return since is not None and now - since >= interval
