"""Indexes the live files of the head, which is the snapshot that a commit is built on, for the questions that a commit asks.

A delete file reaches a data file when the spec's rules apply it to that data file. `core.tables.deletes.applies` finds the deletes
of a data file. This module follows the same rules in the other direction: it finds the data files that a delete reaches. It looks
them up by bucket (partition spec and partition) and by sorted sequence number, so it never visits every pair.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from compaction_pipeline.core.tables.data_file import FileContent, LiveFile
from compaction_pipeline.core.tables.node import Partition

Bucket = tuple[int, Partition]
"""Partition spec id and partition. A delete file that is not global reaches only data files of its own bucket."""


def bucket_of(file: LiveFile) -> Bucket:
    """Return the bucket of a file."""
    return (file.spec_id, file.partition)


@dataclass(frozen=True, slots=True)
class HeadLayout:
    """What the rules need of the head's metadata. `field_ids` maps a schema id to its field ids, nested ones included.

    `last_sequence_number` is the highest number that a snapshot of the table has had, as the metadata says.
    """

    unpartitioned_spec_ids: frozenset[int]
    field_ids: Mapping[int, frozenset[int]]
    last_sequence_number: int


def is_global(delete: LiveFile, layout: HeadLayout) -> bool:
    """Return whether a delete is an equality delete of an unpartitioned spec: it may reach data files of every partition."""
    return delete.content is FileContent.EQUALITY_DELETES and delete.spec_id in layout.unpartitioned_spec_ids


def is_partition_scoped(delete: LiveFile) -> bool:
    """Return whether a position delete may name any file of its partition. Only its content says which files it names."""
    return delete.content is FileContent.POSITION_DELETES and delete.referenced_data_file is None


def within_bounds(delete: LiveFile, path: str) -> bool:
    """Return whether the path bounds of a position delete allow this path. A missing bound allows every path."""
    return (delete.path_lower is None or delete.path_lower <= path) and (delete.path_upper is None or path <= delete.path_upper)


class DataIndex:
    """Answers which data files a delete file reaches.

    `duplicates` are paths of data files that are live more than once; Iceberg's `add_files` without its check makes such files. A delete
    may reach one copy and not the other. Such a file therefore always counts as reached, and no task may take it.
    """

    def __init__(self, data: Iterable[LiveFile], layout: HeadLayout) -> None:
        self.by_path: dict[str, LiveFile] = {}
        self.duplicates: set[str] = set()
        self._layout = layout
        self._sequences: dict[Bucket, list[int]] = defaultdict(list)
        self._paths: dict[Bucket, list[str]] = defaultdict(list)
        self._all_sequences: list[int] = []
        for file in data:
            known = self.by_path.get(file.path)
            if known is not None:
                self.duplicates.add(file.path)
            if known is None or file.data_sequence_number < known.data_sequence_number:
                # The oldest copy is the one that most deletes reach.
                self.by_path[file.path] = file
            self._sequences[bucket_of(file)].append(file.data_sequence_number)
            self._paths[bucket_of(file)].append(file.path)
            self._all_sequences.append(file.data_sequence_number)
        for sequences in self._sequences.values():
            sequences.sort()
        for paths in self._paths.values():
            paths.sort()
        self._all_sequences.sort()

    def count_reached_by_equality(self, delete: LiveFile) -> int:
        """Return how many data files an equality delete reaches: those of its scope whose data sequence number is below its own."""
        sequences = self._all_sequences if is_global(delete, self._layout) else self._sequences.get(bucket_of(delete), [])
        return bisect_left(sequences, delete.data_sequence_number)

    def is_reached(self, path: str, delete: LiveFile) -> bool:
        """Return whether a delete reaches the data file at `path`; False when no such data file is live.

        For a partition-scoped position delete the answer is True when bucket, sequence number and bounds allow it.
        """
        file = self.by_path.get(path)
        if file is None:
            return False
        if path in self.duplicates:
            return True
        if delete.content is FileContent.EQUALITY_DELETES:
            same = is_global(delete, self._layout) or bucket_of(file) == bucket_of(delete)
            return same and file.data_sequence_number < delete.data_sequence_number
        if file.data_sequence_number > delete.data_sequence_number:
            return False
        if delete.referenced_data_file is not None:
            return delete.referenced_data_file == path
        return bucket_of(file) == bucket_of(delete) and within_bounds(delete, path)

    def may_be_reached_by_positions(self, delete: LiveFile) -> Iterator[str]:
        """Yield the paths that a partition-scoped position delete may hold, as far as bucket, sequence number and bounds tell."""
        paths = self._paths.get(bucket_of(delete), [])
        start = 0 if delete.path_lower is None else bisect_left(paths, delete.path_lower)
        end = len(paths) if delete.path_upper is None else bisect_right(paths, delete.path_upper)
        return (path for path in paths[start:end] if self.by_path[path].data_sequence_number <= delete.data_sequence_number)


class HeadFiles:
    """The live data and delete files of the head, with the deletes indexed by bucket and by the data file that they name.

    `duplicate_deletes` are paths of delete files that are live more than once. A path does not tell the copies apart, so a commit
    drops none of them.
    """

    def __init__(self, files: Iterable[LiveFile], layout: HeadLayout) -> None:
        data: list[LiveFile] = []
        deletes: list[LiveFile] = []
        for file in files:
            (data if file.is_data else deletes).append(file)
        self.layout = layout
        self.data = DataIndex(data, layout)
        self.deletes: dict[str, LiveFile] = {delete.path: delete for delete in deletes}
        self.duplicate_deletes: frozenset[str] = frozenset()
        if len(self.deletes) < len(deletes):
            self.duplicate_deletes = frozenset(path for path, count in Counter(delete.path for delete in deletes).items() if count > 1)
        self._by_reference: dict[str, list[LiveFile]] = defaultdict(list)
        self._by_bucket: dict[Bucket, list[LiveFile]] = defaultdict(list)
        self._global: list[LiveFile] = []
        for delete in deletes:
            if delete.referenced_data_file is not None:
                self._by_reference[delete.referenced_data_file].append(delete)
            elif is_global(delete, layout):
                self._global.append(delete)
            else:
                self._by_bucket[bucket_of(delete)].append(delete)

    def deletes_near(self, buckets: Iterable[Bucket], paths: Iterable[str]) -> Iterator[LiveFile]:
        """Yield every delete that could reach a file of these buckets or of these paths, whatever its sequence number."""
        yield from self._global
        for bucket in set(buckets):
            yield from self._by_bucket.get(bucket, ())
        for path in paths:
            yield from self._by_reference.get(path, ())
