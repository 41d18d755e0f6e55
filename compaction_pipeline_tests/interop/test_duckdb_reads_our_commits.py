"""DuckDB, whose reader shares no code with Java's, sees the same rows before and after each of our commits."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record

from compaction_pipeline.core.commit.ports import CommitState
from compaction_pipeline.core.work.kinds import CompactionType
from compaction_pipeline_tests.iceberg.lake import Lake
from compaction_pipeline_tests.interop.duckdb_reader import duckdb_rows
from compaction_pipeline_tests.reference_reader import reference_rows
from compaction_pipeline_tests.scenarios.example import Example
from compaction_pipeline_tests.scenarios.examples.unpacking import PLAIN_EXAMPLES

pytestmark = pytest.mark.interop

BY_NAME = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "name"), spec_id=0)


@pytest.mark.parametrize("name", PLAIN_EXAMPLES)
def test_duckdb_reads_an_example_after_every_type(name: str, tmp_path: Path) -> None:
    example = Example(name, tmp_path)
    seen = [example.table()]
    for kind in CompactionType:
        if example.compact(kind).records:
            seen.append(example.table())
    before, *after = (Counter(rows) for rows in duckdb_rows(*seen))
    assert before.total() == len(reference_rows(seen[0]))
    assert after
    assert [rows - before for rows in after] == [before - rows for rows in after] == [Counter()] * len(after)


def test_duckdb_reads_a_merge_beside_a_conversion(tmp_path: Path) -> None:
    t = Lake(tmp_path).table(spec=BY_NAME)
    x, y = Record("x"), Record("y")
    a = t.insert(*({"id": number, "name": "x"} for number in (1, 2, 3)), partition=x)
    b = t.insert(*({"id": number, "name": "x"} for number in (4, 5, 6)), partition=x)
    t.insert({"id": 7, "name": "y"}, {"id": 8, "name": "y"}, partition=y)
    t.delete_positions((a.path, 0), partition=x)
    delete = t.delete_ids(2, 5, partition=x)
    t.delete_ids(8, partition=y)
    late = t.merge([a.path], "m1"), t.convert([b.path], [delete.path], "c1")
    t.delete_ids(3, partition=x)
    t.insert({"id": 2, "name": "x"}, partition=x)
    written = t.lake.catalog.load_table(("db", "t"))
    outcome = t.commit(*late)
    assert outcome.state is CommitState.COMMITTED
    assert set(outcome.committed) == {"m1", "c1"}
    after = t.lake.catalog.load_table(("db", "t"))
    ids = [sorted(int(row[0] or 0) for row in rows) for rows in duckdb_rows(written, after)]
    assert ids == [[2, 4, 6, 7]] * 2
    assert sorted(row["id"] for row in reference_rows(after)) == ids[1]
