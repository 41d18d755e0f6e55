"""Decides which change files leave the change store of a keyed table: those that no reader needs, because the base store has their changes.

A reader of a keyed table goes by the optimized sequences of the snapshot of the base store that it reads, and may read an old one. So a
file goes only when every snapshot that the metadata of the base store has says that the changes of the file are in it. Amoro goes by the
newest snapshot alone (`ChangeTableMaintainer`). The laws are in `core/upkeep/CONTRACT.md`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone

from compaction_pipeline.core.tables.data_file import LiveFile
from compaction_pipeline.core.tables.keyed.file_names import change_file, is_delete_file
from compaction_pipeline.core.tables.keyed.keyed_files import KeyedFiles
from compaction_pipeline.core.tables.keyed.optimized_sequence import OptimizedSequences
from compaction_pipeline.core.tables.keyed.partition_paths import PartitionKey, key_of, looks_like_null
from compaction_pipeline.core.tables.node import Partition, Place
from compaction_pipeline.core.upkeep.commit_record import UpkeepPlan
from compaction_pipeline.core.upkeep.turns import AGAIN
from compaction_pipeline.core.words import bytes_text, count_text, time_text

MOST_FILES = 50_000
"""At most so many files leave by one snapshot, because their manifest entries are held in memory. The next run takes the next ones."""


@dataclass(frozen=True, slots=True)
class ChangeHistory:
    """What the stores tell beside their files.

    `readers` has the optimized sequences of every snapshot of the base store, with its id and its time. They are read only as far as they
    are needed. There are none while nobody has merged anything into main.
    `committed_at` has the time of each snapshot of the change store, by its id. `first_open` is the lowest transaction that began within
    `compaction.transaction.timeout`; None when there is none. It holds back also when it has ended: whoever looks for its end looks for its
    files. `expired` has the highest numbers that left the change store before.
    """

    readers: Iterable[tuple[int, datetime, OptimizedSequences]]
    committed_at: Mapping[int, datetime]
    first_open: int | None
    expired: OptimizedSequences


@dataclass(frozen=True, slots=True)
class MergedChanges:
    """The change files that go, and how many stay.

    `numbers` has for each partition of them the highest data sequence number that has left the change store then. `reason` says it in
    words. At `next_look` time alone may let further files go; None when it will not.
    """

    files: tuple[LiveFile, ...]
    kept: int
    numbers: Mapping[Partition, int]
    reason: str
    next_look: datetime | None

    @property
    def said(self) -> UpkeepPlan:
        """The same in words and figures. `bytes` and `rows` are those of the files that go."""
        figures = {
            "change_files": len(self.files),
            "delete_files": sum(is_delete_file(file.path) for file in self.files),
            "rows": sum(file.record_count for file in self.files),
            "bytes": sum(file.file_size_bytes for file in self.files),
            "change_files_kept": self.kept,
        }
        return UpkeepPlan(bool(self.files), self.reason, figures, self.next_look)


def decide_merged_changes(
    files: KeyedFiles, history: ChangeHistory, ttl: timedelta, now: datetime, most_files: int = MOST_FILES
) -> MergedChanges:
    """Return which change files go now: those that every reader has in the base store, and that were committed at least `ttl` ago.

    A file whose snapshot has expired is old enough. Raises TableRefused for a name that cannot be.
    """
    before = now - ttl
    # A delete file of Iceberg's own is none of the change store's writers, and may be about files that stay.
    old = [file for file in files.changes if file.is_data and history.committed_at.get(file.added_snapshot_id, before) <= before]
    copies, keys = Counter(file.path for file in files.changes), _keys(files)
    left: dict[Place, list[tuple[int, str, LiveFile]]] = defaultdict(list)
    for file in old:
        last, place = _last(file, files), (file.spec_id, file.partition)
        if copies[file.path] == 1 and place in keys and (history.first_open is None or last < history.first_open):
            left[place].append((last, file.path, file))
    why = _without_unmerged(left, keys, history)
    gone = [file for _, _, file in sorted(each for changes in left.values() for each in changes)[:most_files]]
    numbers: dict[Partition, int] = {}
    for file in gone:
        former = numbers.get(file.partition) or history.expired.of_spec(file.spec_id).of(file.partition) or 0
        numbers[file.partition] = max(former, file.data_sequence_number)
    kept = len(files.changes) - len(gone)
    looks = [at + ttl for at in map(history.committed_at.get, {file.added_snapshot_id for file in files.changes}) if at and at > before]
    looks += [now + AGAIN] if history.first_open is not None else []
    reason = _in_words(gone, kept, len(old), before, why)
    return MergedChanges(tuple(gone), kept, numbers, reason, min(looks, default=None))


def _keys(files: KeyedFiles) -> Mapping[Place, PartitionKey]:
    """What tells each partition in the optimized sequences. NULL and the text `null` share a number, which may be about either of them, so
    both are left out. So is that text alone: Amoro takes its number for that of NULL."""
    places = {(file.spec_id, file.partition) for file in (*files.base, *files.changes)}
    keys = {(spec_id, partition): key_of(partition, files.sequences.of_spec(spec_id).fields) for spec_id, partition in places}
    counts = Counter((place[0], key) for place, key in keys.items())
    return {place: key for place, key in keys.items() if counts[place[0], key] == 1 and not looks_like_null(place[1], key)}


def _last(file: LiveFile, files: KeyedFiles) -> int:
    """The highest transaction of the rows of a change file, or its data sequence number where that is higher."""
    span = files.row_spans.get(file.path)
    transaction = change_file(file.path, file.data_sequence_number).transaction_id if span is None else span.highest
    return max(transaction, file.data_sequence_number)


def _without_unmerged(
    left: Mapping[Place, list[tuple[int, str, LiveFile]]],
    keys: Mapping[Place, PartitionKey],
    history: ChangeHistory,
) -> str:
    """Take out of `left` the files that a reader does not have in the base store. Return why the last of them stay; "" when none does.

    A file that landed after a snapshot of the base store is not in it, whatever its number says: a change store that was set back, or made
    anew, gives away numbers a second time.
    """
    if not left:
        return ""
    for changes in left.values():
        changes.sort()
    why, snapshot_id, until = "", None, datetime.max.replace(tzinfo=timezone.utc)
    for snapshot_id, at, sequences in history.readers:
        for place, changes in left.items():
            merged = sequences.of_spec(place[0]).by_partition.get(keys[place], -1)
            while changes and changes[-1][0] > merged:
                changes.pop()
                why = f"readers of snapshot {snapshot_id} of the base store, which has not expired, need others"
        if at < until:
            until, why = at, _without_later(left, history, snapshot_id, at) or why
        if not any(left.values()):
            break
    if snapshot_id is None:
        for changes in left.values():
            changes.clear()
        why = "main of the base store has no snapshot"
    return why


def _without_later(left: Mapping[Place, list[tuple[int, str, LiveFile]]], history: ChangeHistory, snapshot_id: int, at: datetime) -> str:
    """Take out of `left` the files that landed after a snapshot of the base store. Return why they stay; "" when there is none."""
    why = ""
    for changes in left.values():
        earlier = [change for change in changes if history.committed_at.get(change[-1].added_snapshot_id, at) <= at]
        if len(earlier) < len(changes):
            changes[:] = earlier
            why = (
                f"others landed after snapshot {snapshot_id} of the base store, whose numbers say that it has them: look whether the "
                "change store was set back or made anew, or the clock of a writer is fast"
            )
    return why


def _in_words(gone: Sequence[LiveFile], kept: int, old: int, before: datetime, why: str) -> str:
    if gone:
        rows, size = sum(file.record_count for file in gone), sum(file.file_size_bytes for file in gone)
        text = f"{count_text(len(gone), 'merged change file')} with {count_text(rows, 'row')} ({bytes_text(size)}) → 0, {kept} stay"
    elif not kept:
        text = "there is no change file"
    elif not old:
        text = f"none of {count_text(kept, 'change file')} landed before {time_text(before)} UTC"
    else:
        text = f"of {count_text(kept, 'change file')}, {old} landed before {time_text(before)} UTC, and a reader may need each of them"
    return f"{text}; {why}" if why else text
