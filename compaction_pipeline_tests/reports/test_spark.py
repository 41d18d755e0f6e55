"""What the listener for Spark reads from the summary of a snapshot. `interop/test_stream_reports_its_commits.py` has it on real streams."""

from __future__ import annotations

from compaction_pipeline.reports.spark import files_added


def test_files_are_counted_by_partition_where_the_summary_has_partitions() -> None:
    summary = {
        "added-data-files": "5",
        "partition-summaries-included": "true",
        "partitions.day=1": "added-data-files=2,added-records=9",
        "partitions.day=2/region=a%3Db": "added-data-files=3,added-delete-files=1,added-records=1",
        "partitions.day=3": "deleted-data-files=1",
    }
    assert files_added(summary) == {"day=1": 2, "day=2/region=a%3Db": 4}


def test_without_partitions_all_files_count_together() -> None:
    assert files_added({"added-data-files": "5", "added-delete-files": "2", "operation": "overwrite"}) == {"": 7}
    assert files_added({}) == {}
