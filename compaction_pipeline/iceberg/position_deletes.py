"""Reads which data files a position-delete file names, from its column `file_path` alone."""

from __future__ import annotations

import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.io import FileIO

from compaction_pipeline.core.tables.data_file import LiveFile
from compaction_pipeline.iceberg.failures import translated
from compaction_pipeline.iceberg.second_look import looked_at_twice


class PositionDeletePaths:
    """Answers `paths_in` for one attempt. It reads each file row group by row group, unless `known` says what an earlier attempt read."""

    def __init__(self, io: FileIO, known: dict[str, frozenset[str] | None]) -> None:
        self._io = io
        self._known = known

    def __call__(self, delete: LiveFile) -> frozenset[str] | None:
        """The paths that the file names. None if the file is gone."""
        if delete.path not in self._known:
            self._known[delete.path] = self._read(delete.path)
        return self._known[delete.path]

    @looked_at_twice
    def _read(self, path: str) -> frozenset[str] | None:
        held: set[str] = set()
        with translated(f"position-delete file {path}", is_file=True):
            try:
                with self._io.new_input(path).open() as stream:
                    file = pq.ParquetFile(stream)
                    for group in range(file.num_row_groups):
                        column = file.read_row_group(group, columns=["file_path"]).column(0)
                        held.update(pc.unique(column).to_pylist())
            except FileNotFoundError:
                return None
        return frozenset(held)
