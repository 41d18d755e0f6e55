"""The memory of a task stays within its bound, with delete sets of 0.1, 1 and 4 times that bound."""

from __future__ import annotations

import multiprocessing
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from compaction_pipeline.core.tables.data_file import FileContent, LiveFile
from compaction_pipeline.core.work.result import MergeResult
from compaction_pipeline.merging.reading.evolution import arrow_field
from compaction_pipeline_tests.merging.files import MIB, SIMPLE, Table, long
from compaction_pipeline_tests.works import merge_task

BOUND = 128 * MIB


def _merge_in_a_fresh_process(table: Table) -> MergeResult:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        # The first merge loads libraries, whose memory does not belong to a task. So another merge runs before the measured one.
        warm = Table(table.folder / "warm")
        warm.append([{"id": 1, "name": "a"}])
        warm.delete_equal([{"id": index} for index in range(100_000)], [long(1, "id")])
        pool.apply(merge_task, (warm.task(memory=1 << 20), warm.layout(), {}))
        return pool.apply(merge_task, (table.task(memory=BOUND), table.layout(), {}))


@pytest.mark.spark
@pytest.mark.parametrize("share", [0.1, 1, pytest.param(4, marks=pytest.mark.long)])
def test_memory_stays_within_the_bound(tmp_path: Path, share: float) -> None:
    _stays_within_the_bound(Table(tmp_path), rows=600_000, keys=int(share * BOUND / 8))


@pytest.mark.spark
def test_memory_stays_within_the_bound_when_too_many_keys_have_a_row(tmp_path: Path) -> None:
    # A million keys have a row. A set of these keys would not fit into the memory.
    _stays_within_the_bound(Table(tmp_path), rows=2_000_000, keys=1_900_000)


def _stays_within_the_bound(table: Table, *, rows: int, keys: int) -> None:
    schema = pa.schema([arrow_field(field) for field in SIMPLE.fields])
    ids = np.random.default_rng(1).permutation(rows).astype(np.int64)
    for part in np.array_split(ids, 3):
        names = pa.array(np.char.add("name-", part.astype(str)))
        table.append(pa.Table.from_arrays([pa.array(part), names.cast(pa.string())], schema=schema))
    # A key takes 8 bytes. Half of the rows have a key, and the other keys have no row.
    path = table.folder / "delete.parquet"
    with pq.ParquetWriter(path, pa.schema([arrow_field(long(1, "id"))]), compression="zstd", store_schema=False) as writer:
        for start in range(0, keys, 1 << 20):
            values = np.arange(start, min(start + (1 << 20), keys), dtype=np.int64) * 2
            writer.write_table(pa.table([pa.array(values)], schema=writer.schema))
    table.deletes.append(LiveFile(str(path), FileContent.EQUALITY_DELETES, 0, (), path.stat().st_size, keys, 99, equality_ids=(1,)))
    result = _merge_in_a_fresh_process(table)
    assert result.error is None
    assert result.rows_deleted_by_equality == min(rows // 2, keys)
    assert result.peak_memory_bytes <= BOUND


@pytest.mark.spark
@pytest.mark.parametrize("row_group_rows", [200_000, 2_000_000])
def test_memory_stays_within_the_bound_where_bytes_are_copied(tmp_path: Path, row_group_rows: int) -> None:
    """With many small files their pages are put together, and with one large row group that is copied whole."""
    table = Table(tmp_path)
    schema = pa.schema([arrow_field(field) for field in SIMPLE.fields])
    for number in range(2_400_000 // row_group_rows):
        values = np.random.default_rng(number).integers(0, 1 << 60, row_group_rows)
        names = pa.array(values).cast(pa.string())
        rows = pa.Table.from_arrays([pa.array(values), names], schema=schema)
        table.append(rows, use_dictionary=False, row_group_size=row_group_rows)
    result = _merge_in_a_fresh_process(table)
    assert result.error is None
    assert len(result.outputs[0].split_offsets) == (4 if row_group_rows == 200_000 else 1)
    assert result.peak_memory_bytes <= BOUND // 2
