"""Transforms at the ends of a type's range; `interop/test_transforms_read_by_java.py` compares every type with Java."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.transforms import DayTransform, HourTransform, MonthTransform, YearTransform
from pyiceberg.types import TimestampType

from compaction_pipeline.merging.writing.transforms import transformed


@pytest.mark.parametrize(
    ("transform", "lowest", "highest"),
    [
        (YearTransform(), -292278, 292277),
        (MonthTransform(), -3507325, 3507324),
        (DayTransform(), -106751992, 106751991),
        # In Java, too, these hours do not fit into 32 bits.
        (HourTransform(), 1732919507, -1732919508),
    ],
    ids=str,
)
def test_the_first_and_the_last_moment_have_a_partition(transform: Any, lowest: int, highest: int) -> None:
    moments = pa.array([-(2**63), -1, None, 0, 2**63 - 1], pa.int64()).cast(pa.timestamp("us"))
    of = transformed(transform, TimestampType())
    assert of is not None
    assert of(moments).to_pylist() == [lowest, -1, None, 0, highest]
