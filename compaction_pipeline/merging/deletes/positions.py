"""Finds rows that are deleted by position, and holds one bit for each row of a data file.

A delete file that names one data file is read by the task that merges this data file. A partition-scoped delete file may name several data
files of its partition. It is read once, as a whole, and kept for the next tasks of the process. If it is too large for that, only the row
groups that may name a file of the task are read.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType

from compaction_pipeline.core.tables.columns import PATH_ID, POSITION_ID
from compaction_pipeline.core.tables.data_file import FileContent, LiveFile
from compaction_pipeline.merging.deletes.deleted_rows import Mask
from compaction_pipeline.merging.deletes.shared_deletes import DeleteFile, PathPositions, SharedDeletes
from compaction_pipeline.merging.reading.read import DataReader, OpenFile

PATH_FIELD = NestedField(PATH_ID, "file_path", StringType(), required=True)
POSITION_FIELD = NestedField(POSITION_ID, "pos", LongType(), required=True)
POSITION_DELETE_SCHEMA = Schema(PATH_FIELD, POSITION_FIELD)
"""The columns of a position-delete file (spec: "Position Delete Files")."""
_POSITION_BYTES = 40
"""How many bytes of memory a position takes while its file is read whole."""


class Bits:
    """One bit per row of a file."""

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self._bytes = np.zeros(-(-rows // 8), dtype=np.uint8)

    def set(self, positions: NDArray[np.int64]) -> None:
        """Set the bits of these rows. Positions that lie outside of the file are ignored."""
        inside = positions[(positions >= 0) & (positions < self.rows)]
        np.bitwise_or.at(self._bytes, inside >> 3, np.left_shift(1, inside & 7).astype(np.uint8))

    def part(self, start: int, length: int) -> Mask:
        """The bits of `length` rows from `start` on."""
        first = start >> 3
        last = -(-(start + length) // 8)
        bits = np.unpackbits(self._bytes[first:last], bitorder="little")
        return bits[start - first * 8 :][:length].astype(bool)


def kept_for_others(deletes: Iterable[LiveFile], limit_bytes: int) -> dict[str, DeleteFile]:
    """The delete files to read whole, by path: those of many data files, if all of them together fit the limit."""
    many = [each for each in deletes if each.content is FileContent.POSITION_DELETES and each.referenced_data_file is None]
    fit = sum(each.record_count for each in many) * _POSITION_BYTES <= limit_bytes
    return {each.path: DeleteFile.of(each) for each in many} if fit else {}


def deleted_positions(
    reader: DataReader,
    inputs: Mapping[str, LiveFile],
    applied: Mapping[str, Sequence[LiveFile]],
    whole: Mapping[str, DeleteFile],
    shared: SharedDeletes,
) -> dict[str, Bits]:
    """The deleted rows of each input, by its path.

    `applied` holds the deletes that apply to each input, and `whole` comes from `kept_for_others`.
    """
    applies: dict[str, list[str]] = defaultdict(list)
    files: dict[str, LiveFile] = {}
    for path, deletes in applied.items():
        for delete in deletes:
            if delete.content is FileContent.POSITION_DELETES:
                applies[delete.path].append(path)
                files[delete.path] = delete
    bits: dict[str, Bits] = {}
    for delete_path, paths in applies.items():
        found: Iterable[tuple[str, NDArray[np.int64]]]
        if delete_path in whole:
            every = _whole(reader, files[delete_path], whole[delete_path], shared)
            found = [(path, every[path]) for path in paths if path in every]
        else:
            found = _named(reader, files[delete_path], paths)
        for path, positions in found:
            if path not in bits:
                bits[path] = Bits(inputs[path].record_count)
            bits[path].set(positions)
    return bits


def _whole(reader: DataReader, delete: LiveFile, known: DeleteFile, shared: SharedDeletes) -> PathPositions:
    kept = shared.positions(known)
    if kept is None:
        parts: dict[str, list[NDArray[np.int64]]] = defaultdict(list)
        for path, positions in _named(reader, delete, None):
            parts[path].append(positions)
        kept = {path: np.concatenate(each) for path, each in parts.items()}
        shared.keep_positions(known, kept)
    return kept


def _named(reader: DataReader, delete: LiveFile, wanted: Sequence[str] | None) -> Iterator[tuple[str, NDArray[np.int64]]]:
    """Yields (path, positions) for the `wanted` data files, or for all if `wanted` is None. One path may be yielded several times."""
    only = set(wanted) if wanted is not None else None
    with reader.open(delete, keep_dictionaries=True) as opened:
        projection = reader.projection(opened, delete, [PATH_FIELD, POSITION_FIELD], keep_dictionaries=True)
        for groups in [None] if only is None else _stretches(opened, projection.source_columns[0], only):
            for _, batch in opened.batches([projection], groups):
                named, positions = projection.arrays(batch)
                if not pa.types.is_dictionary(named.type):
                    named = pc.dictionary_encode(named)
                yield from _by_path(named, positions.to_numpy(zero_copy_only=False).astype(np.int64), only)


def _by_path(named: pa.Array, positions: NDArray[np.int64], only: set[str] | None) -> Iterator[tuple[str, NDArray[np.int64]]]:
    """The positions of a batch, by their path. `named` is a dictionary array; a NULL in it names no file."""
    codes = named.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    order = None
    if len(codes) > 1 and (codes[1:] < codes[:-1]).any():
        order = np.argsort(codes, kind="stable")
        codes, positions = codes[order], positions[order]
    begins = np.flatnonzero(np.append(True, codes[1:] != codes[:-1])) if len(codes) else np.empty(0, dtype=np.int64)
    for begin, end in zip(begins.tolist(), [*begins[1:].tolist(), len(codes)], strict=True):
        path = named.dictionary[int(codes[begin])].as_py() if codes[begin] >= 0 else None
        if path is not None and (only is None or path in only):
            yield path, positions[begin:end]


def _stretches(opened: OpenFile, column: str, wanted: set[str]) -> Iterator[range]:
    """The row groups that may name one of these paths, by the bounds in the file's footer. Adjacent groups are one range."""
    metadata = opened.parquet.metadata
    place = opened.schema.get_field_index(column)
    begin = 0
    for number in range(metadata.num_row_groups):
        chunk = metadata.row_group(number).column(place)
        if chunk.path_in_schema == column and not _may_name(chunk.statistics, wanted):
            if begin < number:
                yield range(begin, number)
            begin = number + 1
    if begin < metadata.num_row_groups:
        yield range(begin, metadata.num_row_groups)


def _may_name(statistics: Any, wanted: set[str]) -> bool:
    if statistics is None or not statistics.has_min_max or not isinstance(statistics.min, str) or not isinstance(statistics.max, str):
        return True
    # Python compares text by code points. Its UTF-8 bytes have the same order.
    return any(statistics.min <= path <= statistics.max for path in wanted)
