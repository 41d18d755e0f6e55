"""Which delete files apply to a data file, by the spec's rules (spec: "Scan Planning"; Java's DeleteFileIndex).

- a position delete applies to data files of a data sequence number ≤ its own, of the same spec and partition, that its
  referenced file or its path bounds allow;
- an equality delete applies to data files of a data sequence number < its own, of the same spec and partition, or of any
  when its own spec is unpartitioned (all-void counts as unpartitioned).

Never narrower than the spec: a delete that might apply does.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from compaction_pipeline.core.tables.data_file import FileContent, LiveFile
from compaction_pipeline.core.tables.node import Partition

_Bucket = tuple[int, Partition]


class DeleteIndex:
    """Answers `of(data file)` for one set of delete files."""

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
        """Every delete file that applies to `data`, position deletes first."""
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
