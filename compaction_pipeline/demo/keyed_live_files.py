"""The files that a reader of the demo's keyed table opens, as PyIceberg reads both stores. No code of ours decides which these are."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace

from pyiceberg.table import Table

from compaction_pipeline.demo.live_files import LiveEntry, LiveFiles


class KeyedLiveFiles(LiveFiles):
    """The files of both stores that count. The table is not partitioned, so its nodes are the buckets that the names of files tell."""

    def __init__(self, base: Table, change: Table) -> None:
        super().__init__(base)
        self._base = base
        self._changes = LiveFiles(change)

    def entries(self) -> Iterator[LiveEntry]:
        """Every base file, and every change file above the optimized sequence."""
        # The change store is read first, so that no file is missed that moves on meanwhile.
        changes = list(self._changes.entries())
        for entry in super().entries():
            yield _in_bucket(entry)
        merged = self._optimized_sequence()
        for entry in changes:
            if entry.sequence_number > merged:
                yield _in_bucket(entry)

    def stored_bytes(self) -> int:
        """The size of all files in the folders of both stores."""
        return super().stored_bytes() + self._changes.stored_bytes()

    def _optimized_sequence(self) -> int:
        snapshot = self._base.current_snapshot()
        found = [each for each in self._base.metadata.statistics if snapshot is not None and each.snapshot_id == snapshot.snapshot_id]
        if not found:
            return 0
        with self._base.io.new_input(found[0].statistics_path).open() as stream:
            content = stream.read()
        # The footer of a Puffin file ends with its size, four bytes of flags and the magic. Its JSON tells where each blob lies.
        size = int.from_bytes(content[-12:-8], "little")
        footer = json.loads(content[-12 - size : -12])
        (place,) = (each for each in footer["blobs"] if each["type"] == "optimized-sequence")
        sequences = json.loads(content[place["offset"] : place["offset"] + place["length"]])
        return int(sequences.get("", 0))


def _in_bucket(entry: LiveEntry) -> LiveEntry:
    return replace(entry, node=(0, entry.path.rpartition("/")[2].partition("-")[0]))
