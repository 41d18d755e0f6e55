"""Finds the delete files that apply to a data file, by the rules of the Iceberg spec ("Scan Planning") and of Java's DeleteFileIndex.

- A position delete applies to a data file when the data file's data sequence number is at most the delete's own, both have the same
  spec and partition, and the delete's referenced file or path bounds allow the data file's path.
- An equality delete applies to a data file when the data file's data sequence number is below the delete's own, and both have the
  same spec and partition. A delete whose own spec is unpartitioned is global: it applies in every partition. A spec whose transforms are
  all void counts as unpartitioned.

The rules here are never narrower than the spec: a delete that might apply counts as one that applies.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from compaction_pipeline.core.tables.data_file import FileContent, LiveFile
from compaction_pipeline.core.tables.node import Partition

_Bucket = tuple[int, Partition]
"""Partition spec id and partition."""


class DeleteIndex:
    """Finds, in one set of delete files, those that apply to a data file."""

    def __init__(self, deletes: Iterable[LiveFile], unpartitioned_spec_ids: frozenset[int]) -> None:
        self._by_path: dict[str, list[LiveFile]] = defaultdict(list)
        self._positions: dict[_Bucket, list[LiveFile]] = defaultdict(list)
        self._equalities: dict[_Bucket, list[LiveFile]] = defaultdict(list)
        self._global: list[LiveFile] = []
        for delete in deletes:
            if delete.content is FileContent.POSITION_DELETES:
                if delete.referenced_data_file is not None:
                    self._by_path[delete.referenced_data_file].append(delete)
                else:
                    self._positions[_bucket(delete)].append(delete)
            elif delete.spec_id in unpartitioned_spec_ids:
                self._global.append(delete)
            else:
                self._equalities[_bucket(delete)].append(delete)

    def of(self, data: LiveFile) -> tuple[LiveFile, ...]:
        """Return every delete file that applies to `data`, position deletes first."""
        bucket = _bucket(data)
        sequence = data.data_sequence_number
        positions = [
            delete
            for delete in (*self._by_path.get(data.path, ()), *self._positions.get(bucket, ()))
            if sequence <= delete.data_sequence_number and _may_hold(delete, data.path)
        ]
        equalities = [delete for delete in (*self._global, *self._equalities.get(bucket, ())) if sequence < delete.data_sequence_number]
        return (*positions, *equalities)


def _bucket(file: LiveFile) -> _Bucket:
    return (file.spec_id, file.partition)


def _may_hold(delete: LiveFile, path: str) -> bool:
    if delete.path_lower is not None and path < delete.path_lower:
        return False
    return delete.path_upper is None or path <= delete.path_upper
