"""Which snapshots are the last word of a streaming writer, or tell readers of a base store what is merged."""

from __future__ import annotations

import pytest

from compaction_pipeline.core.upkeep.expiry import decide_expiry
from compaction_pipeline.core.upkeep.keepers import Stay
from compaction_pipeline.core.upkeep.retention import Retention, resolve_retention
from compaction_pipeline_tests.core.upkeep.histories import DAY, NOW, history, snapshot

_RETENTION = Retention(max_snapshot_age=DAY, writer_retention=7 * DAY)


@pytest.mark.parametrize(
    "summary",
    [
        {"flink.job-id": "j"},
        {"flink.job-id": "j", "flink.operator-id": "o"},
        {"spark.sql.streaming.queryId": "q"},
        {"kafka.connect.offsets.control.group": "{}"},
    ],
)
def test_the_newest_snapshot_of_a_streaming_writer_stays_until_its_retention_is_over(summary: dict[str, str]) -> None:
    young = history(snapshot(1, None, 6, **summary), snapshot(2, 1, 5, **summary), snapshot(3, 2, 4))
    assert decide_expiry(young, _RETENTION, (), NOW).removed == (1,)
    assert decide_expiry(young, _RETENTION, (), NOW + 3 * DAY).removed == (1, 2)


def test_two_operators_of_one_job_of_flink_are_two_writers() -> None:
    one, other = ({"flink.job-id": "j", "flink.operator-id": operator} for operator in "ab")
    found = history(snapshot(1, None, 7), snapshot(2, 1, 6, **one), snapshot(3, 2, 5, **other), snapshot(4, 3, 4))
    assert decide_expiry(found, _RETENTION, (), NOW).removed == (1,)


NUMBERS = {"optimized-sequence.exist": "true"}


@pytest.mark.parametrize("kept_by", ["a tag", "its age", "a hold"])
def test_what_leads_from_a_snapshot_that_stays_to_its_numbers_stays_too(kept_by: str) -> None:
    """In a base store: without the numbers a reader of the tag would read merged changes twice."""
    snapshots = (
        snapshot(1, None, 9, **NUMBERS),
        snapshot(2, 1, 8, **NUMBERS),
        snapshot(3, 2, 7),
        snapshot(4, 3, 0.5 if kept_by == "its age" else 6),
        snapshot(5, 2, 5, **NUMBERS),
    )
    held = [(4, Stay("a person looks at it", None))] if kept_by == "a hold" else []
    found = history(*snapshots, **({"release": 4} if kept_by == "a tag" else {}))
    assert decide_expiry(found, Retention(max_snapshot_age=DAY), held, NOW).removed == (1,)


def test_in_a_table_without_numbers_a_tag_keeps_its_snapshot_alone() -> None:
    found = history(snapshot(1, None, 9), snapshot(2, 1, 8), snapshot(3, 2, 7), release=2)
    assert decide_expiry(found, Retention(max_snapshot_age=DAY), (), NOW).removed == (1,)


def test_the_newest_snapshot_that_says_a_watermark_stays_and_one_that_says_none_takes_no_place() -> None:
    found = history(snapshot(1, None, 9), snapshot(2, 1, 8, watermark="5"), snapshot(3, 2, 7, watermark="-1"), snapshot(4, 3, 6))
    assert decide_expiry(found, Retention(max_snapshot_age=DAY), (), NOW).removed == (1,)


def test_a_watermark_under_a_key_of_the_table_stays_too() -> None:
    found = history(snapshot(1, None, 9), snapshot(2, 1, 8, our="5"), snapshot(3, 2, 7))
    assert decide_expiry(found, Retention(max_snapshot_age=DAY), (), NOW).removed == (1, 2)
    for properties in ({"compaction.watermark-keys": "our"}, {"compaction.watermark-writers": "eu:our"}):
        retention = resolve_retention({"history.expire.max-snapshot-age-ms": "86400000", **properties}, {})
        assert decide_expiry(found, retention, (), NOW).removed == (1,)
