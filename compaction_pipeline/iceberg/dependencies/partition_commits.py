"""Finds out how many files partitions have won or lost since an earlier reading, and which snapshots added files to them.

A snapshot that rewrites what is there adds nothing: a REPLACE, and every commit of compaction and upkeep, ours and Amoro's.

The manifests that the head has and the last read snapshot had not, and the other way round, tell the counts, whatever became of single
entries in between. Which snapshot added a file is told by that snapshot's own manifests. Later snapshots may have merged them or dropped
them. So a snapshot's own list is read, too, unless the head still lists as many added files as the summary of the snapshot names.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import TypeVar

from pyiceberg.manifest import ManifestEntryStatus, ManifestFile

from compaction_pipeline.core.dependencies.ports import PartitionCommits, PartitionReading, StoreFacts, TableFacts
from compaction_pipeline.core.tables.node import Place
from compaction_pipeline.core.upkeep.history import MAIN, History, Snapshot
from compaction_pipeline.core.upkeep.keepers import is_of_upkeep
from compaction_pipeline.iceberg.dependencies.manifest_places import Listed, ManifestPlaces

_ADDED = ("added-data-files", "added-delete-files")
_THREADS = 8

_T = TypeVar("_T")
_R = TypeVar("_R")


def read_partitions(
    facts: TableFacts, since: Sequence[int | None] | None, openable: Callable[[StoreFacts], StoreFacts]
) -> PartitionReading:
    """What the stores' manifests say since a reading with these heads. See the port for what it returns.

    `openable` gives a store that has something new a handle that opens its files now.

    Raises TableRefused for manifests that cannot be read: encrypted ones, those of format v4, and partitions by an unknown transform.
    """
    heads = tuple(_head(store.history) for store in facts.stores)
    if since is None or len(since) != len(heads) or not all(map(_descends, facts.stores, since)):
        last: Sequence[int | None] = [None] * len(heads)
        anew = True
    else:
        last, anew = since, False
    found = _Found()
    for store, head, before in zip(facts.stores, heads, last, strict=True):
        if head is not None and head != before:
            _StoreReading(openable(store), found).read(head, before, anew=anew)
    return PartitionReading(heads, anew, found.commits())


def _head(history: History) -> int | None:
    main = history.refs.get(MAIN)
    return None if main is None else main.snapshot_id


def _descends(store: StoreFacts, last: int | None) -> bool:
    """Whether main is at a snapshot that was read, or descends from it. A store that had no snapshot then had no files."""
    head = _head(store.history)
    return last is None or (head is not None and any(one.snapshot_id == last for one in store.history.ancestry(head)))


class _Found:
    """By partition: how many files it has more, and the newest snapshot that added some."""

    def __init__(self) -> None:
        self._files: Counter[Place] = Counter()
        self._added: dict[Place, tuple[datetime, int]] = {}

    def count(self, entries: Counter[Listed], sign: int) -> None:
        """Add or take away the live files of a manifest."""
        for one, files in entries.items():
            if one.status != ManifestEntryStatus.DELETED:
                self._files[one.place] += sign * files

    def added(self, place: Place, snapshot: Snapshot) -> None:
        # Writers' clocks differ, so the newest time counts, and not the newest snapshot.
        known = self._added.get(place)
        if known is None or known[0] < snapshot.made_at:
            self._added[place] = snapshot.made_at, snapshot.snapshot_id

    def commits(self) -> Sequence[PartitionCommits]:
        places = {**dict.fromkeys(self._files), **dict.fromkeys(self._added)}
        found = (PartitionCommits(*place, self._files[place], *self._added.get(place, (None, None))) for place in places)
        return tuple(one for one in found if one.files or one.added_at is not None)


class _StoreReading:
    """One reading of one store."""

    def __init__(self, store: StoreFacts, found: _Found) -> None:
        self._history = store.history
        self._places = ManifestPlaces(store)
        self._found = found

    def read(self, head: int, last: int | None, *, anew: bool) -> None:
        """Note what the snapshots behind `last` did, or with `anew` what the head has."""
        now = self._places.manifests(head)
        before = self._places.manifests(last) if last is not None else ()
        listed, known = {one.manifest_path for one in now}, {one.manifest_path for one in before}
        new = [one for one in now if one.manifest_path not in known]
        for entries in _in_threads(self._places.entries, new):
            self._found.count(entries, 1)
        for entries in _in_threads(self._places.entries, [one for one in before if one.manifest_path not in listed]):
            self._found.count(entries, -1)
        if anew:
            self._note_dates(head, new)
        else:
            self._note_added(head, last, new)

    def _note_added(self, head: int, last: int | None, new: Sequence[ManifestFile]) -> None:
        """Note what each snapshot behind `last` added."""
        lost: list[Snapshot] = []
        for snapshot in self._history.ancestry(head):
            if snapshot.snapshot_id == last:
                break
            if is_of_upkeep(snapshot):
                continue
            own: Sequence[ManifestFile] = [one for one in new if one.added_snapshot_id == snapshot.snapshot_id]
            if sum(one.added_files_count or 0 for one in own) == _added_files(snapshot):
                self._note(snapshot, own)
            else:
                lost.append(snapshot)
        for snapshot, own in zip(lost, _in_threads(self._own_manifests, lost), strict=True):
            self._note(snapshot, own)

    def _own_manifests(self, snapshot: Snapshot) -> Sequence[ManifestFile]:
        return [one for one in self._places.manifests(snapshot.snapshot_id) if one.added_snapshot_id == snapshot.snapshot_id]

    def _note(self, snapshot: Snapshot, own: Iterable[ManifestFile]) -> None:
        for manifest in own:
            for one in self._places.entries(manifest):
                if one.status == ManifestEntryStatus.ADDED and one.snapshot_id == snapshot.snapshot_id:
                    self._found.added(one.place, snapshot)

    def _note_dates(self, head: int, manifests: Iterable[ManifestFile]) -> None:
        """Note for the live files when they were added, at the latest."""
        main = list(self._history.ancestry(head))
        numbered = sorted((one for one in main if one.sequence_number), key=lambda one: one.sequence_number)
        numbers = [one.sequence_number for one in numbered]
        for manifest in manifests:
            for one in self._places.entries(manifest):
                if one.status == ManifestEntryStatus.DELETED:
                    continue
                by = self._history.snapshots.get(one.snapshot_id, main[-1])
                place = bisect_left(numbers, one.sequence)
                if is_of_upkeep(by) and place < len(numbers):
                    # No row of a rewritten file is newer than its data sequence number, which is 0 for all of format v1. It was there at
                    # the first snapshot from there on.
                    by = min(by, numbered[place], key=lambda each: each.made_at)
                self._found.added(one.place, by)


def _added_files(snapshot: Snapshot) -> int | None:
    """How many files the summary says that a snapshot has added; None when it does not say."""
    said = [snapshot.summary[key] for key in _ADDED if key in snapshot.summary]
    return sum(map(int, said)) if said and all(each.isdigit() for each in said) else None


def _in_threads(ask: Callable[[_T], _R], items: Sequence[_T]) -> list[_R]:
    if len(items) < 2:
        return [ask(one) for one in items]
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="manifests") as pool:
        return list(pool.map(ask, items))
