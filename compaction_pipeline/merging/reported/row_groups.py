"""Compares the statistics of a row group with its rows. Readers leave row groups out because of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.schema import Schema
from pyiceberg.types import BinaryType, StringType

from compaction_pipeline.formats.parquet.leaves import Leaf, leaves
from compaction_pipeline.merging.writing.metrics import bounds_of_bytes, comparable
from compaction_pipeline.merging.writing.parquet_options import ParquetOptions, parquet_writer

_PLAIN = ParquetOptions.of({"write.parquet.compression-codec": "none"})


def problem_of_statistics(groups: Sequence[Any], rows: pa.Table, schema: Schema) -> str | None:
    """Why the statistics of a row group are not true of its `rows`; None when they are.

    `groups` are the metadata of the row group in the form of PyArrow, once for each reader of the footer, and `rows` are a table of this
    schema. A bound may lie farther out than the values, and statistics may be missing.
    """
    # Arrow writes the same rows again, only to compute their statistics.
    sink, footers = pa.BufferOutputStream(), list[pq.FileMetaData]()
    writer = parquet_writer(sink, rows.schema, _PLAIN, [], footers)
    writer.write_table(rows, row_group_size=max(rows.num_rows, 1))
    writer.close()
    own = pq.read_metadata(pa.BufferReader(sink.getvalue())).row_group(0)
    for index, leaf in enumerate(leaves(schema)):
        for group in groups:
            said, true = group.column(index), own.column(index)
            problem = _problem(said, true, leaf) or _problem_of_bounds(said.statistics, _bounds(true.statistics, rows, schema, leaf), leaf)
            if problem is not None:
                return f"column {leaf.name}: {problem}"
    return None


def _problem(said: Any, true: Any, leaf: Leaf) -> str | None:
    if said.num_values != true.num_values:
        return f"it has {true.num_values} values, but says {said.num_values}"
    claimed, known = said.statistics, true.statistics
    if claimed is None:
        return None
    if claimed.has_null_count and (known is None or claimed.null_count != known.null_count):
        return f"it says that {claimed.null_count} values are NULL, which is not so"
    return None


def _bounds(known: Any, rows: pa.Table, schema: Schema, leaf: Leaf) -> tuple[bytes, bytes] | None:
    """The true bounds of a column; None when it has no value with an order."""
    if known is not None and known.has_min_max:
        return known.min_raw, known.max_raw
    # Arrow keeps no bounds of more than 4 KiB. Other writers cut them, and a merge may copy their columns as they are.
    return bounds_of_bytes(rows, schema, leaf.field_id) if isinstance(leaf.type, (StringType, BinaryType)) else None


def _problem_of_bounds(claimed: Any, true: tuple[bytes, bytes] | None, leaf: Leaf) -> str | None:
    if claimed is None or not claimed.has_min_max:
        return None
    if true is None:
        return "it has bounds, but its values have none"
    lower, upper = comparable(leaf.type, claimed.min_raw), comparable(leaf.type, claimed.max_raw)
    if lower > comparable(leaf.type, true[0]) or upper < comparable(leaf.type, true[1]):
        return "some of its values lie outside of its bounds"
    return None
