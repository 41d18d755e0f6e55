"""How the bounds of bodies were measured."""

from __future__ import annotations

import json

from pydantic import TypeAdapter

from compaction_pipeline.core.access.body_bounds import LARGEST_REPORT_BYTES, REPORT, marks_in
from compaction_pipeline.core.ids import AttemptId, TaskId
from compaction_pipeline.core.tables.data_file import FileContent, OutputFile
from compaction_pipeline.core.tables.node import PartitionValue
from compaction_pipeline.core.work.result import MergeResult

COLUMNS = range(1, 101)
PARTITION = (PartitionValue("day", "date", "2026-11-22"),)
FOOTER_TELLS = ("column_sizes", "value_counts", "null_value_counts", "lower_bounds", "upper_bounds", "split_offsets")


def path(number: int) -> str:
    """A path of 180 characters."""
    return f"s3://warehouse/lake/shop.db/orders/data/day=2026-11-22/{number:05}-".ljust(172, "x") + ".parquet"


def largest() -> MergeResult:
    """The largest report that `LARGEST_REPORT_BYTES` speaks of."""
    counts, bounds = dict.fromkeys(COLUMNS, 123_456), dict.fromkeys(COLUMNS, "ab" * 16)
    positions = [
        OutputFile(path(number), FileContent.POSITION_DELETES, 0, PARTITION, 12_345, 12_345, referenced_data_file=path(number))
        for number in range(1_024)
    ]
    data = [
        OutputFile(path(number), FileContent.DATA, 0, PARTITION, 1_048_576, 12_345, counts, counts, counts, counts, bounds, bounds, (4,))
        for number in range(128)
    ]
    return MergeResult(TaskId("t" * 12), AttemptId("a" * 12), (*positions, *data))


def test_the_largest_report_of_a_merge_fits_its_bound_four_times() -> None:
    report = TypeAdapter(MergeResult).dump_python(largest(), mode="json")
    today = json.dumps(report).encode()
    # Today's reports also tell what the footers of their files tell. They fit the bound too.
    assert len(today) < REPORT.most_bytes
    assert marks_in(today) < REPORT.most_marks
    for output in report["outputs"]:
        for field in FOOTER_TELLS:
            del output[field]
    without = json.dumps(report).encode()
    assert LARGEST_REPORT_BYTES * 0.75 < len(without) <= LARGEST_REPORT_BYTES
    assert REPORT.most_bytes == 4 * LARGEST_REPORT_BYTES
