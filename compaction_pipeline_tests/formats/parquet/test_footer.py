"""Footers: read as PyArrow reads them, written again byte for byte, and refused when they are damaged."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from compaction_pipeline.formats.parquet.chunks import footer_of
from compaction_pipeline.formats.parquet.footer import Footer, checked_pages, proven_pages
from compaction_pipeline.formats.parquet.footer_metadata import FooterMetadata
from compaction_pipeline.formats.parquet.thrift import DamagedParquet, write_struct

_ROWS = pa.table({"n": [1, 2, None], "t": ["a", "ß", None], "l": [[1.5], [], None]})


def _file(**options: Any) -> Any:
    sink = pa.BufferOutputStream()
    pq.write_table(_ROWS, sink, row_group_size=2, use_dictionary=False, write_page_checksum=True, store_schema=False, **options)
    return sink.getvalue()


def _footer_bytes(data: Any) -> bytes:
    view = memoryview(data)
    return bytes(view[-8 - int.from_bytes(view[-8:-4], "little") : -8])


def test_a_footer_tells_what_pyarrow_tells() -> None:
    data = _file()
    footer, _ = footer_of(data)
    known, ours = pq.read_metadata(pa.BufferReader(data)), FooterMetadata(footer)
    assert [group.rows for group in footer.groups] == [2, 1]
    assert (ours.num_row_groups, ours.num_columns, footer.created_by) == (known.num_row_groups, known.num_columns, known.created_by)
    for number in range(known.num_row_groups):
        for leaf in range(known.num_columns):
            column, other = ours.row_group(number).column(leaf), known.row_group(number).column(leaf)
            for name in ("total_compressed_size", "num_values", "has_dictionary_page", "data_page_offset"):
                assert getattr(column, name) == getattr(other, name)
            assert column.statistics is not None
            assert column.statistics.null_count == other.statistics.null_count
            assert column.statistics.has_min_max == other.statistics.has_min_max


def test_a_footer_is_written_again_byte_for_byte() -> None:
    content = _footer_bytes(_file())
    assert write_struct(Footer.of(content).meta) == content


def test_a_footer_that_was_cut_anywhere_is_damaged() -> None:
    content = _footer_bytes(_file())
    for end in range(len(content)):
        with pytest.raises(DamagedParquet):
            Footer.of(content[:end])


@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_a_page_with_one_other_bit_is_noticed(version: str) -> None:
    footer, view = footer_of(_file(data_page_version=version, compression="none"))
    chunk = footer.groups[0].chunks[0]
    data = bytearray(view[chunk.start : chunk.start + chunk.length])
    assert checked_pages(chunk, memoryview(data))
    assert b"".join(proven_pages(chunk, [memoryview(data)[:7], memoryview(data)[7:]])) == data
    data[-1] ^= 1
    with pytest.raises(DamagedParquet, match="not what its checksum says"):
        checked_pages(chunk, memoryview(data))


@pytest.mark.parametrize(
    ("created_by", "trusted"),
    [("parquet-cpp version 1.5.1-SNAPSHOT", False), ("parquet-cpp-arrow version 3.0.0", False), ("parquet-cpp-arrow version 4.0.0", True)],
)
def test_files_of_writers_with_known_faults_are_not_copied(created_by: str, trusted: bool) -> None:
    assert Footer((), (), (), (), created_by).trustworthy is trusted
