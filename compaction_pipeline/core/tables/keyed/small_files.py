"""Which of the change files that a sink has committed it merges with each other now.

A sink that merges its own files commits small ones at once, so that readers see the changes. After a while it replaces those of each tree
node by one insert file and one delete file. Until then plans leave them alone: the snapshot that added them says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta, timezone

from compaction_pipeline.core.tables.data_file import LiveFile
from compaction_pipeline.core.tables.keyed.file_names import KeyedFileType, change_file
from compaction_pipeline.core.tables.node import TableNode

HELD_UNTIL_KEY = "compaction.sink.grow-until"
"""The key in a snapshot's summary that says until when the sink means to merge the files of the snapshot, in milliseconds since 1970."""
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def held_until(until: datetime) -> dict[str, str]:
    """What the summary of a snapshot says when its sink means to merge its files before this time."""
    return {HELD_UNTIL_KEY: str((until - _EPOCH) // timedelta(milliseconds=1))}


def held_by_sinks(changes: Iterable[LiveFile], summaries: Mapping[int, Mapping[str, str]], now: datetime) -> frozenset[str]:
    """The paths of the change files that a sink means to merge. `summaries` are those of the change store's snapshots by id.

    A text that is no number holds nothing: the files can be merged all the same.
    """
    ended = (now - _EPOCH) // timedelta(milliseconds=1)
    until = {number: text for number, summary in summaries.items() if (text := summary.get(HELD_UNTIL_KEY, "")).isdecimal()}
    holding = {number for number, text in until.items() if int(text) > ended}
    return frozenset(file.path for file in changes if file.added_snapshot_id in holding)


class SmallFiles:
    """The small change files of a sink that wait to be merged, by tree node."""

    def __init__(self, interval: timedelta, small_bytes: int, target_bytes: int) -> None:
        """Files of more than `small_bytes` are never merged. A node with `target_bytes` does not wait for the end of the interval."""
        self._interval, self._small_bytes, self._target_bytes = interval, small_bytes, target_bytes
        self._nodes: dict[TableNode, list[LiveFile]] = {}
        self._since: datetime | None = None

    def __len__(self) -> int:
        return sum(len(files) for files in self._nodes.values())

    def add(self, files: Iterable[LiveFile], now: datetime) -> None:
        """Take files that have just been committed."""
        for file in files:
            if file.file_size_bytes <= self._small_bytes:
                tree = change_file(file.path, file.data_sequence_number).node
                self._nodes.setdefault(TableNode(file.spec_id, file.partition, tree), []).append(file)
                self._since = self._since or now

    def due_at(self) -> datetime | None:
        """When the interval ends; None while no file waits."""
        return None if self._since is None else self._since + self._interval

    def due(self, now: datetime, *, ends: bool = False) -> Sequence[tuple[TableNode, Sequence[LiveFile]]]:
        """The nodes to merge now, with their files, which no longer wait. At the end of the interval, and of the sink, these are all nodes.

        A kind of which a node has only one file is left as it is.
        """
        at = self.due_at()
        if ends or (at is not None and now >= at):
            taken, self._nodes, self._since = self._nodes, {}, None
        else:
            full = [node for node, files in self._nodes.items() if _bytes(files) >= self._target_bytes]
            taken = {node: self._nodes.pop(node) for node in full}
        gaining = ((node, _gaining(files)) for node, files in taken.items())
        return [(node, files) for node, files in gaining if files]


def _bytes(files: Iterable[LiveFile]) -> int:
    return sum(file.file_size_bytes for file in files)


def _gaining(files: Sequence[LiveFile]) -> Sequence[LiveFile]:
    kinds: dict[KeyedFileType, list[LiveFile]] = {}
    for file in files:
        kinds.setdefault(change_file(file.path, file.data_sequence_number).type, []).append(file)
    return [file for each in kinds.values() if len(each) > 1 for file in each]
