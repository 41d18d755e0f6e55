"""Java skips equality deletes by column bounds, so the bounds of the kernel's files must not hide a row from a delete."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import DoubleType, LongType, NestedField, UUIDType

from compaction_pipeline.core.commit.ports import CommitState
from compaction_pipeline.demo.row_delta import row_delta
from compaction_pipeline_tests.interop.java import Java, Register
from compaction_pipeline_tests.works import merge_task

pytestmark = pytest.mark.interop

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "d", DoubleType(), required=False),
    NestedField(3, "u", UUIDType(), required=False),
)
LOW, MIDDLE, HIGH = b"\0" * 15 + b"\1", b"\x10" * 16, b"\xff" * 16
HUNDRED = struct.pack("<d", 100.0)


@pytest.mark.parametrize(
    ("number", "deleted", "bound"),
    [
        # Java leaves NaN out of the bounds that it writes.
        (2, {"d": pa.array([math.nan, 100.0])}, HUNDRED),
        # Java compares UUIDs as two signed numbers.
        (3, {"u": pa.array([MIDDLE], pa.binary(16)).cast(pa.uuid())}, MIDDLE),
    ],
)
def test_a_delete_after_a_merge_reaches_its_row(
    tmp_path: Path, spark_catalog: Register, number: int, deleted: Mapping[str, Any], bound: bytes
) -> None:
    java = Java(tmp_path, spark_catalog)
    t = java.lake.table(schema=SCHEMA)
    t.insert({"id": 1, "d": math.nan, "u": MIDDLE})
    t.insert({"id": 2, "d": 1.0, "u": LOW}, {"id": 3, "d": 5.0, "u": HIGH})
    task = replace(t.merge(), attempt_id="a1")
    result = merge_task(task, t.head().layout, t.lake.properties)
    assert result.error is None
    assert t.commit(replace(task, result=result)).state is CommitState.COMMITTED
    file = replace(t.equality_file(deleted, (number,)), lower_bounds={number: bound.hex()}, upper_bounds={number: bound.hex()})
    row_delta(t.table, equality_deletes=[(file, [number])])
    assert java.ids() == t.live_ids() == [2, 3]
