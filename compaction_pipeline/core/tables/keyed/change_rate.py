"""How many change files the streams of a keyed table leave a day, and how many they may leave at most.

Each commit leaves an insert file and a delete file in each node that it touches, for each writer that writes rows of this node.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from compaction_pipeline.core.tables.data_file import LiveFile
from compaction_pipeline.core.tables.keyed.file_names import change_file
from compaction_pipeline.core.tables.node import Partition

_DAY = timedelta(days=1)
_LEAST_SPAN = timedelta(hours=1)
_KINDS = 2
"""An insert file and a delete file."""


@dataclass(frozen=True, slots=True)
class ChangeRate:
    """What was seen of the commits to a change store in the last day.

    `commits` are those of a day, as the newest commits let expect. `writers` is the highest number of files of one kind that one commit has
    left in one node. `nodes` are those of one partition.
    """

    commits: int
    writers: int
    partitions: int
    nodes: int

    @property
    def most_files(self) -> int:
        """How many change files a day there may be at most: when each commit touches every node."""
        return self.commits * self.writers * self.partitions * self.nodes * _KINDS

    @property
    def text(self) -> str:
        """The bound and what it is made of."""
        parts = f"{self.commits:,} commits × {self.writers:,} writers × {self.partitions:,} partitions × {self.nodes:,} nodes"
        return f"at most {self.most_files:,} change files a day: {parts} × {_KINDS} (inserts and deletes)"


def change_rate(
    commits: Iterable[datetime], changes: Iterable[LiveFile], partitions: Collection[Partition], nodes: int, now: datetime
) -> ChangeRate:
    """Measure the commits of the last day.

    `commits` are the times of all commits that added changes, `changes` the live change files, and `partitions` those of the table. When
    the oldest commit is between an hour and a day old, the commits of a whole day are reckoned from the time between the commits.
    """
    recent = sorted(moment for moment in commits if moment > now - _DAY)
    alike = Counter((file.added_snapshot_id, file.partition, change_file(file.path, file.data_sequence_number)) for file in changes)
    return ChangeRate(_in_a_day(recent, now), max(alike.values(), default=1), max(len(partitions), 1), nodes)


def _in_a_day(recent: Sequence[datetime], now: datetime) -> int:
    # A few commits in one minute, as of a first load, say nothing about a day.
    if not recent or not _LEAST_SPAN <= now - recent[0] <= _DAY * 0.9:
        return len(recent)
    between = (now - recent[0]) / len(recent)
    return round(_DAY / between)
