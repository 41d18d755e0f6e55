"""Histories of tables for tests: some drawn, and some made by hand."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta, timezone

from hypothesis import strategies as st

from compaction_pipeline.core.upkeep.history import MAIN, History, Ref, Snapshot
from compaction_pipeline.core.upkeep.retention import Retention

NOW = datetime(2026, 6, 15, tzinfo=timezone.utc)
DAY = timedelta(days=1)


def snapshot(number: int, parent: int | None, days_old: float, absent_days_ago: float | None = None, **summary: str) -> Snapshot:
    absent = None if absent_days_ago is None else NOW - absent_days_ago * DAY
    return Snapshot(number, parent, NOW - days_old * DAY, {"operation": "append", **summary}, absent_at=absent)


def history(*snapshots: Snapshot, **refs: Ref | int) -> History:
    """The snapshots, with these refs; main is on the last snapshot unless the refs say another."""
    named = {MAIN: snapshots[-1].snapshot_id, **refs}
    made = {name: ref if isinstance(ref, Ref) else Ref(name, ref, is_branch=name == MAIN) for name, ref in named.items()}
    return History({one.snapshot_id: one for one in snapshots}, made)


def line(*days_old: float) -> History:
    """Snapshots 1, 2, … of one branch, of these ages."""
    return history(*(snapshot(number, number - 1 or None, days) for number, days in enumerate(days_old, start=1)))


_AGES = st.one_of(st.none(), st.integers(0, 12).map(lambda days: days * DAY))
_SUMMARIES = st.sampled_from(
    [
        {"operation": "append"},
        {"operation": "append"},
        {"operation": "replace"},
        {"operation": "overwrite", "flink.job-id": "a", "flink.operator-id": "x"},
        {"operation": "append", "flink.job-id": "a", "flink.operator-id": "y"},
        {"operation": "append", "flink.job-id": "b"},
        {"operation": "append", "spark.sql.streaming.queryId": "q"},
        {"operation": "append", "kafka.connect.offsets.control.group": "{}", "kafka.connect.valid-through-ts": "t"},
        {"operation": "append", "my-etl.job": "nightly"},
        {"operation": "append", "watermark": "5"},
        {"operation": "overwrite", "optimized-sequence.exist": "true"},
    ]
)


@st.composite
def histories(draw: st.DrawFn) -> History:
    """Histories with branches, tags, staged snapshots, gaps, wrong clocks, refs without snapshots, and rings."""
    count = draw(st.integers(1, 14))
    snapshots: dict[int, Snapshot] = {}
    for number in range(1, count + 1):
        parent = draw(st.one_of(st.none(), st.just(number - 1 or None), st.integers(1, count + 1)))
        made_at = NOW - draw(st.integers(-2, 14)) * DAY
        absent = draw(st.one_of(st.none(), st.integers(0, 14).map(lambda days: NOW - days * DAY)))
        snapshots[number] = Snapshot(number, parent, made_at, draw(_SUMMARIES), absent_at=absent)
    refs = {MAIN: Ref(MAIN, draw(st.integers(1, count)), True, draw(st.one_of(st.none(), st.integers(1, 4))), draw(_AGES), draw(_AGES))}
    for name in draw(st.lists(st.sampled_from("abcd"), unique=True)):
        is_branch = draw(st.booleans())
        least, age = (draw(st.one_of(st.none(), st.integers(1, 4))), draw(_AGES)) if is_branch else (None, None)
        refs[name] = Ref(name, draw(st.integers(1, count + 1)), is_branch, least, age, draw(_AGES))
    return History(snapshots, refs)


retentions = st.builds(
    Retention,
    max_snapshot_age=st.integers(0, 8).map(lambda days: days * DAY),
    min_to_keep=st.integers(1, 4),
    max_ref_age=st.one_of(st.just(1000 * DAY), st.integers(0, 12).map(lambda days: days * DAY)),
    amoro_age=st.integers(0, 3).map(lambda days: days * DAY),
    amoro_count=st.integers(1, 3),
    writer_retention=st.integers(0, 10).map(lambda days: days * DAY),
    writer_keys=st.sampled_from([(), ("my-etl.job",)]),
)


def after(history: History, removed: tuple[int, ...], dropped: Mapping[str, str]) -> History:
    """The history once these snapshots and refs are gone. Parents stay as they were written."""
    snapshots = {number: one for number, one in history.snapshots.items() if number not in removed}
    return History(snapshots, {name: ref for name, ref in history.refs.items() if name not in dropped})
