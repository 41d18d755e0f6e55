"""Java finds every row through the bloom filters of our files, and skips files that they exclude."""

from __future__ import annotations

import duckdb
import pytest

from compaction_pipeline.core.work.kinds import CompactionType
from compaction_pipeline_tests.interop.warehouse import Compactions, Warehouse, live_files
from compaction_pipeline_tests.reference_reader import local_path

pytestmark = pytest.mark.interop

_COLUMNS = {
    "i": ("INT", "CAST(id * 3 AS INT)"),
    "l": ("BIGINT", "id * 3"),
    "f": ("FLOAT", "CAST(id * 3 AS FLOAT)"),
    "d": ("DOUBLE", "CAST(id * 3 AS DOUBLE)"),
    "small": ("DECIMAL(9,2)", "CAST(id * 3 AS DECIMAL(9,2))"),
    "middle": ("DECIMAL(18,2)", "CAST(id * 3 AS DECIMAL(18,2))"),
    "wide": ("DECIMAL(30,2)", "CAST(id * 3 AS DECIMAL(30,2))"),
    "name": ("STRING", "CONCAT('n', id * 3)"),
    "code": ("STRING", "CONCAT('c', id % 5)"),
    "raw": ("BINARY", "CAST(CONCAT('r', id * 3) AS BINARY)"),
    "day": ("DATE", "date_add(DATE '2020-01-01', CAST(id * 3 AS INT))"),
    "at": ("TIMESTAMP", "timestamp_micros(id * 3)"),
    "local": ("TIMESTAMP_NTZ", "CAST(timestamp_micros(id * 3) AS TIMESTAMP_NTZ)"),
}
_ROWS = 60


def test_java_finds_every_value_of_every_type_behind_our_filters(warehouse: Warehouse, compactions: Compactions) -> None:
    asked = ", ".join(f"'write.parquet.bloom-filter-enabled.column.{name}'='true'" for name in [*_COLUMNS, "s.x"])
    columns = ", ".join(f"{name} {kind}" for name, (kind, _) in _COLUMNS.items())
    warehouse.sql(
        f"CREATE TABLE {{t}} (id BIGINT, {columns}, s STRUCT<x: BIGINT>) USING iceberg TBLPROPERTIES "
        f"('format-version'='2', 'read.parquet.vectorization.enabled'='false', {asked})"
    )
    values = {name: value for name, (_, value) in _COLUMNS.items()} | {"s.x": "id * 3"}
    selected = ", ".join([*(value for _, value in _COLUMNS.values()), "named_struct('x', id * 3)"])
    for first, last in ((0, _ROWS // 2), (_ROWS // 2, _ROWS)):
        warehouse.sql(f"INSERT INTO {{t}} SELECT /*+ COALESCE(1) */ id, {selected} FROM range({first}, {last})")
    assert compactions.compact(CompactionType.FULL).committed
    [file] = live_files(warehouse.table())
    kept = duckdb.sql(f"SELECT count(bloom_filter_offset), count(*) FROM parquet_metadata('{local_path(file['file_path'])}')").fetchone()
    assert kept == (len(values), len(values) + 1)
    for number in (0, 1, 7, 31, 59):
        [known] = warehouse.sql(
            f"SELECT {', '.join(f'CAST({value} AS STRING)' for value in values.values())} FROM VALUES ({number}L) AS v(id)"
        )
        for (name, value), text in zip(values.items(), known, strict=True):
            kind = _COLUMNS[name][0] if name in _COLUMNS else "BIGINT"
            expected = _ROWS // 5 if name == "code" else 1
            [found] = warehouse.sql(f"SELECT count(*) FROM {{t}} WHERE {name} = CAST('{text}' AS {kind})")
            assert found[0] == expected, (name, value, text)
    # These values are within the bounds but in no row, so only the filter excludes them.
    assert warehouse.sql("SELECT count(*) FROM {t} WHERE l = 4 OR name = 'n4'")[0][0] == 0
