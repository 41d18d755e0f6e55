"""Java reads the same from files that we made of copied bytes as from Spark's files: by rows, by batches and through its filters."""

from __future__ import annotations

import pyarrow.parquet as pq
import pytest

from compaction_pipeline.core.work.kinds import CompactionType
from compaction_pipeline.formats.parquet.levels import DEFAULT_LEVEL
from compaction_pipeline.formats.parquet.segments import Segment
from compaction_pipeline.merging.copying import assemble
from compaction_pipeline.merging.copying.assemble import Assembler
from compaction_pipeline_tests.interop.warehouse import Compactions, Warehouse, live_files
from compaction_pipeline_tests.reference_reader import local_path

pytestmark = pytest.mark.interop

# With this target, row groups of 62 kB or more are copied whole, and pages of 122 bytes or more are kept.
_MADE = """
    CREATE TABLE {t} (
        id BIGINT NOT NULL, n INT, d DOUBLE, f FLOAT, price DECIMAL(12,2), wide DECIMAL(30,4), name STRING, code STRING, at TIMESTAMP,
        day DATE, raw BINARY, s STRUCT<x: BIGINT, y: STRING>, l ARRAY<STRING>, m MAP<STRING, DOUBLE>, ok BOOLEAN
    ) USING iceberg
    TBLPROPERTIES ('format-version'='2', 'write.delete.mode'='merge-on-read', 'self-optimizing.target-size'='1000000')"""
_ROWS = """
    INSERT INTO {t} SELECT /*+ COALESCE(1) */
        id, IF(id %% 7 = 0, NULL, hash(id)), rand(1) - 0.5, CAST(rand(2) AS FLOAT), CAST(rand(3) * 100000 AS DECIMAL(12,2)),
        CAST(xxhash64(id) AS DECIMAL(30,4)), hex(xxhash64(id)), CONCAT('code-', id %% 5),
        timestamp_micros(xxhash64(id) %% 1000000000000000),
        date_add(DATE '2020-01-01', CAST(pmod(xxhash64(id), 20000) AS INT)), unhex(hex(xxhash64(id))),
        IF(id %% 11 = 0, NULL, named_struct('x', xxhash64(id), 'y', hex(id))), IF(id %% 13 = 0, NULL, array(hex(xxhash64(id)), NULL)),
        map(hex(id), IF(id %% 17 = 0, double('NaN'), rand(4))), id %% 3 = 0
    FROM range(%d, %d)"""
_FLAT = "id, n, d, f, price, wide, name, code, at, day, raw, ok"
_QUESTIONS = {
    # Java reads only flat columns by batches.
    "true": [(_FLAT, where) for where in ("true", "n IS NULL", "price > 50000", "name > 'A' AND code = 'code-3'", "d < 0")],
    "false": [(f"{_FLAT}, s, l, to_json(m)", where) for where in ("true", "s.x > 0 AND day < DATE '2030-01-01'")],
}


def _answers(warehouse: Warehouse) -> list[tuple[int, ...]]:
    """The count and the hash of the rows that match each filter, read by batches and by rows."""
    found = []
    for vectorized, questions in _QUESTIONS.items():
        warehouse.sql(f"ALTER TABLE {{t}} SET TBLPROPERTIES ('read.parquet.vectorization.enabled'='{vectorized}')")
        for columns, where in questions:
            [row] = warehouse.sql(f"SELECT count(*), sum(CAST(xxhash64({columns}) AS DECIMAL(38,0))) FROM {{t}} WHERE {where}")
            found.append(tuple(int(value) for value in row))
    return found


def test_java_reads_what_was_copied_from_sparks_files(
    warehouse: Warehouse, compactions: Compactions, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied = {"whole": 0, "columns": 0}
    add, add_row_group = Assembler.add, Assembler.add_row_group

    def counted(self: Assembler, segment: Segment) -> None:
        copied["columns"] += len(segment.pieces)
        add(self, segment)

    def counted_whole(self: Assembler, *arguments: object) -> None:
        copied["whole"] += 1
        add_row_group(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(Assembler, "add", counted)
    monkeypatch.setattr(Assembler, "add_row_group", counted_whole)
    warehouse.sql(_MADE)
    for first, last in ((0, 3000), (3000, 3300), (3300, 3600), (3600, 3900), (3900, 4200), (4200, 4500)):
        warehouse.sql(_ROWS % (first, last))
    expected = _answers(warehouse)
    assert expected[0][0] == 4500
    for number, kind in enumerate((CompactionType.MINOR, CompactionType.FULL)):
        outcome = compactions.compact(kind)
        assert outcome.records or number, outcome.reason
        assert _answers(warehouse) == expected
        warehouse.sql(f"DELETE FROM {{t}} WHERE id BETWEEN {100 * number} AND {100 * number + 3}")
        warehouse.sql(_ROWS % (5000 + 400 * number, 5400 + 400 * number))
        expected = _answers(warehouse)
    assert copied["whole"] > 0
    assert copied["columns"] > 30
    for file in live_files(warehouse.table()):
        pq.read_table(local_path(file["file_path"]), partitioning=None).validate(full=True)


def test_java_reads_remaining_rows_that_were_encoded_before_their_row_group_was_full(
    warehouse: Warehouse, compactions: Compactions, monkeypatch: pytest.MonkeyPatch
) -> None:
    ahead, levels = [], set()
    monkeypatch.setattr(assemble, "_AHEAD_BYTES", 1_000)
    monkeypatch.setattr(assemble._Group, "ahead", lambda *arguments, of=assemble._Group.ahead: (ahead.append(1), of(*arguments))[1])
    monkeypatch.setattr(assemble, "best_level", lambda column, of=assemble.best_level: (level := of(column), levels.add(level))[0])
    warehouse.sql(_MADE)
    for first, last in ((0, 6000), (6000, 12000), (12000, 12300)):
        warehouse.sql(_ROWS % (first, last))
    warehouse.sql("DELETE FROM {t} WHERE id % 10 = 3")
    expected = _answers(warehouse)
    assert expected[0][0] == 11070
    outcome = compactions.compact(CompactionType.FULL)
    assert outcome.records, outcome.reason
    assert _answers(warehouse) == expected
    assert len(ahead) > 1
    assert min(levels) < DEFAULT_LEVEL
    for file in live_files(warehouse.table()):
        pq.read_table(local_path(file["file_path"]), partitioning=None).validate(full=True)
