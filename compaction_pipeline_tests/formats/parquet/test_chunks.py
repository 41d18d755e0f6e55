"""Chunks that are moved into a new file, and data pages that are put one behind the other. PyArrow reads the result."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import DoubleType, LongType, NestedField, StringType

from compaction_pipeline.formats.parquet.chunks import (
    Piece,
    Template,
    decoded_bound,
    file_end,
    footer_of,
    in_memory,
    moved_chunk,
    row_group,
)
from compaction_pipeline.formats.parquet.footer import MAGIC
from compaction_pipeline.formats.parquet.thrift import DamagedParquet

_SCHEMA = Schema(NestedField(1, "n", LongType()), NestedField(2, "t", StringType()), NestedField(3, "d", DoubleType()))


def _field(name: str, kind: Any, number: int) -> Any:
    return pa.field(name, kind, metadata={"PARQUET:field_id": str(number)})


_ARROW = pa.schema([_field("n", pa.int64(), 1), _field("t", pa.string(), 2), _field("d", pa.float64(), 3)])


def _written(rows: list[dict[str, Any]]) -> Any:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(rows, _ARROW), sink, use_dictionary=False, compression="zstd", store_schema=False)
    return sink.getvalue()


_TEMPLATE = Template.of(footer_of(_written([]))[0], _SCHEMA, "zstd")
_FIRST = [{"n": 3, "t": "b", "d": 0.0}, {"n": None, "t": None, "d": None}]
_SECOND = [{"n": -1, "t": "ß", "d": -2.5}]


def test_pages_of_two_files_make_one_chunk_with_the_bounds_of_both() -> None:
    sources = [footer_of(_written(rows)) for rows in (_FIRST, _SECOND)]
    parts, offset, columns = [MAGIC], len(MAGIC), []
    for place, leaf in enumerate(_TEMPLATE.leaves):
        chunks = [footer.groups[0].chunks[place] for footer, _ in sources]
        columns.append(moved_chunk(chunks, leaf, _TEMPLATE.codec, offset))
        data = b"".join(view[chunk.start : chunk.start + chunk.length] for chunk, (_, view) in zip(chunks, sources, strict=True))
        parts.append(data)
        offset += len(data)
    content = pa.py_buffer(b"".join([*parts, file_end(_TEMPLATE, [row_group(columns, 3, len(MAGIC), 0)])]))
    assert pq.read_table(pa.BufferReader(content)).to_pylist() == _FIRST + _SECOND
    [numbers, texts, doubles] = [pq.read_metadata(pa.BufferReader(content)).row_group(0).column(place).statistics for place in range(3)]
    assert (numbers.min, numbers.max, numbers.null_count) == (-1, 3, 1)
    assert (texts.min, texts.max) == ("b", "ß")
    assert (doubles.min, doubles.max, doubles.null_count) == (-2.5, 0.0, 1)


def test_a_file_in_memory_holds_only_the_columns_that_are_asked_for() -> None:
    footer, view = footer_of(_written(_FIRST))
    chunk = footer.groups[0].chunks[1]
    made = in_memory(_TEMPLATE, [1], [(2, [Piece(view[chunk.start : chunk.start + chunk.length], chunk, 2)])])
    assert pq.read_table(pa.BufferReader(made)).to_pylist() == [{"t": "b"}, {"t": None}]


@pytest.mark.parametrize(("place", "raw"), [(0, b"short"), (1, b"\xc3"), (2, b"")])
def test_a_bound_that_is_no_value_of_its_type_is_damaged(place: int, raw: bytes) -> None:
    with pytest.raises(DamagedParquet):
        decoded_bound(_TEMPLATE.leaves[place], raw)
