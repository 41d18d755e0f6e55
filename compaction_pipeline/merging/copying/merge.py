"""Merges the files of a task whose rows stay in one partition and need no order. What no delete touches is copied as bytes.

Key columns come first: they alone tell whether equality deletes touch a row group. Only then are its other columns read, or its bytes
copied. Row groups that a delete touches are decoded, filtered and encoded. One output may hold both.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from pyiceberg.schema import Schema

from compaction_pipeline.core.tables.data_file import LiveFile, OutputFile
from compaction_pipeline.formats.parquet.chunks import Piece
from compaction_pipeline.formats.parquet.footer import Group
from compaction_pipeline.formats.parquet.segments import Part, Segment
from compaction_pipeline.merging.copying.assemble import Assembler
from compaction_pipeline.merging.copying.proof import CopyProof, kept_rows, part_of
from compaction_pipeline.merging.copying.source import CopyLimits, CopySource, Way
from compaction_pipeline.merging.deletes.deleted_rows import DeletedRows, Mask
from compaction_pipeline.merging.deletes.deletes import FileMasks, TaskDeletes
from compaction_pipeline.merging.reading.evolution import Projection
from compaction_pipeline.merging.reading.read import DataReader, OpenFile
from compaction_pipeline.merging.writing.metrics import NanCounter
from compaction_pipeline.merging.writing.sizing import Progress

Masks = tuple[Mask | None, Mask | None]
# After this many consecutive row groups that deletes touch, keys and values are read together, because the next ones are most likely
# touched too. After `_LOOK_AGAIN` such row groups, the keys of one are read alone again, to see whether deletes still touch it.
_TOUCHED_IN_A_ROW = 3
_LOOK_AGAIN = 16


class CopyMerge:
    """Reads the inputs of one task in order, and hands them to an assembler. Counts are of rows."""

    def __init__(
        self,
        reader: DataReader,
        deletes: TaskDeletes,
        schema: Schema,
        progress: Progress,
        writer: Assembler,
        read: CopyProof,
        limits: CopyLimits,
    ) -> None:
        self.rows_read = 0
        self.deleted = DeletedRows()
        self.writer = writer
        self.read = read
        self.schema = schema
        self.progress = progress
        self.limits = limits
        self.next_row = 0
        self.ids = [field.field_id for field in schema.fields]
        self._reader = reader
        self._deletes = deletes
        self._touched_in_a_row = 0
        self._looked_past = 0

    def merge(self, inputs: Sequence[LiveFile]) -> tuple[OutputFile, ...]:
        """Write the files that hold the rows of the inputs."""
        try:
            for file in inputs:
                with self._reader.open(file, keep_dictionaries=True) as opened:
                    self._merge_file(file, opened)
            return self.writer.finish()
        except BaseException:
            self.writer.abort()
            raise

    def _merge_file(self, file: LiveFile, opened: OpenFile) -> None:
        self.progress.note_file(opened.dictionary_encoded)
        each = _FileMerge(self, self._reader, file, opened, self._deletes.of(file, opened))
        source = CopySource.of(opened, self.writer.template, self.ids)
        begun = 0
        for group in source.groups if source is not None else ():
            assert source is not None
            way = source.way(group, self.limits)
            if way is None:
                continue
            touched, masks = self._touched(each, group)
            if touched and masks is None:
                continue
            each.decode(range(begun, group.number))
            if touched:
                each.decode(range(group.number, group.number + 1), masks)
            elif way.whole:
                each.copy_whole(source, group)
            else:
                each.copy_columns(source, group, way)
            begun = group.number + 1
        each.decode(range(begun, opened.parquet.metadata.num_row_groups))

    def _touched(self, each: _FileMerge, group: Group) -> tuple[bool, Masks | None]:
        """Returns (touched or possibly touched, the masks of the row group if they are known)."""
        if any(mask is not None and mask.any() for mask in each.masks.marked(group.first, group.rows)):
            return True, None
        if not each.masks.projections:
            return False, None
        if self._touched_in_a_row >= _TOUCHED_IN_A_ROW and self._looked_past < _LOOK_AGAIN:
            self._looked_past += 1
            return True, None
        self._looked_past = 0
        masks = each.probed(group)
        touched = any(mask is not None and mask.any() for mask in masks)
        self._touched_in_a_row = self._touched_in_a_row + 1 if touched else 0
        return touched, masks if touched else None

    def count(self, rows: int, kept: int) -> None:
        """Count rows that were read, and how many of them stay."""
        self.rows_read += rows
        self.progress.rows_seen += rows
        self.progress.rows_kept += kept
        self.read.rows += kept


class _FileMerge:
    """Merges one input."""

    def __init__(self, merge: CopyMerge, reader: DataReader, file: LiveFile, opened: OpenFile, masks: FileMasks) -> None:
        self.masks = masks
        self._merge = merge
        self._reader = reader
        self._file = file
        self._opened = opened
        self._output = self._projection(range(len(merge.ids)))
        self._all = tuple(range(len(merge.ids)))

    def _projection(self, columns: Sequence[int]) -> Projection:
        fields = [self._merge.schema.fields[top] for top in columns]
        return self._reader.projection(self._opened, self._file, fields, keep_dictionaries=True)

    def probed(self, group: Group) -> Masks:
        """Find the deleted rows of the group from its key columns alone."""
        found = [self.masks.deleted(*each) for each in self._opened.batches(self.masks.projections, _only(group))]
        return _joined([positional for positional, _ in found]), _joined([equal for _, equal in found])

    def decode(self, groups: range, known: Masks | None = None) -> None:
        """Read rows and leave out the deleted ones. `known` holds the masks of these row groups if they have been found already."""
        if not groups:
            return
        merge, start = self._merge, None
        for position, batch in self._opened.batches([self._output, *(() if known else self.masks.projections)], groups):
            start = position if start is None else start
            if known is not None:
                positional, equal = (None if mask is None else mask[position - start :][: batch.num_rows] for mask in known)
            else:
                positional, equal = self.masks.deleted(position, batch)
            deleted = merge.deleted.among(batch.num_rows, positional, equal)
            self._add_rows(self._output.apply(batch), None if deleted is None else ~deleted)

    def _add_rows(self, projected: pa.RecordBatch, keep: Mask | None) -> None:
        merge, first = self._merge, self._merge.next_row
        rows = projected if keep is None else kept_rows(projected, keep)
        # Columns without a dictionary are a part of their own, because they are encoded first.
        parts = tuple(part_of(tops, rows.select(list(tops)), first, merge.read) for tops in self._by_dictionary() if tops)
        kept = projected.num_rows if keep is None else int(keep.sum())
        merge.count(projected.num_rows, kept)
        merge.next_row += kept
        if rows.num_rows:
            merge.writer.add(Segment(rows.num_rows, 0.0, parts=parts))

    def _by_dictionary(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        writer = self._merge.writer
        dictionaries = writer.dictionary_columns()
        wanted = [writer.wants_dictionary(top, dictionaries) for top in self._all]
        return tuple(top for top in self._all if not wanted[top]), tuple(top for top in self._all if wanted[top])

    def copy_whole(self, source: CopySource, group: Group) -> None:
        """Copy the row group as it is."""
        merge = self._merge
        nans = NanCounter(merge.schema, merge.writer.format.modes)
        floats = sorted(nans.columns)
        if floats:
            self._count_nans(group, floats, nans)
        merge.count(group.rows, group.rows)
        merge.writer.add_row_group(group.rows, *source.whole(group), nans.counts)

    def _count_nans(self, group: Group, columns: Sequence[int], nans: NanCounter) -> None:
        projection = self._projection(columns)
        for _, batch in self._opened.batches([projection], _only(group)):
            for top, array in zip(columns, projection.arrays(batch), strict=True):
                nans.add_column(top, array)

    def copy_columns(self, source: CopySource, group: Group, way: Way) -> None:
        """Copy the bytes of some columns and decode the others. Both make one segment."""
        merge, first = self._merge, self._merge.next_row
        template = merge.writer.template
        pieces: dict[int, tuple[Piece, ...]] = {}
        for top, found in source.pages(group, way.columns).items():
            pieces[top] = tuple(Piece(data, chunk, group.rows) for chunk, data, _ in found)
            for leaf, (_, data, checksum) in zip(template.columns[top].leaves, found, strict=True):
                merge.read.add_bytes(leaf, first, group.rows, len(data), checksum)
        decoded = tuple(top for top in self._all if top not in pieces)
        counted = {top: NanCounter(merge.schema, merge.writer.format.modes) for top in pieces}
        counted = {top: nans for top, nans in counted.items() if top in nans.columns}
        parts = self._parts(group, first, decoded, counted)
        merge.count(group.rows, group.rows)
        merge.next_row += group.rows
        nans = {top: {number: count for number, count in each.counts.items() if count} for top, each in counted.items()}
        size = sum(chunk.length for chunk in group.chunks)
        merge.writer.add(Segment(group.rows, size, pieces, parts, nans))

    def _parts(self, group: Group, first: int, decoded: tuple[int, ...], counted: dict[int, NanCounter]) -> tuple[Part, ...]:
        """Read the columns that are decoded. NaN in the columns that are copied are counted on the way."""
        if not decoded and not counted:
            return ()
        parts = []
        projection, floats = self._projection(decoded), self._projection(tuple(counted))
        for _, batch in self._opened.batches([projection, floats], _only(group)):
            if decoded:
                parts.append(part_of(decoded, projection.apply(batch), first, self._merge.read))
            first += batch.num_rows
            for top, array in zip(counted, floats.arrays(batch), strict=True):
                counted[top].add_column(top, array)
        return tuple(parts)


def _only(group: Group) -> range:
    return range(group.number, group.number + 1)


def _joined(masks: Sequence[Mask | None]) -> Mask | None:
    present = [mask for mask in masks if mask is not None]
    return np.concatenate(present) if present else None
