"""An attempt is charged for its time by day, and a worker's word is cut at what is possible."""

from __future__ import annotations

from dataclasses import replace
from datetime import date, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compaction_pipeline.core.capacity.ledger import (
    MOST_BYTES,
    MOST_CORES,
    Share,
    Used,
    believable,
    charges,
    days_between,
    gb_hours,
    used_by,
    used_until_now,
)
from compaction_pipeline.core.work.result import UsedSoFar
from compaction_pipeline_tests.behaviours.example_tasks import example, failed, prepared

USED = Used(90.0, 9.0, 500, 1_000_001, 77)
moments = st.datetimes(datetime(2026, 1, 1), datetime(2026, 12, 31), timezones=st.just(timezone.utc))
spans = st.timedeltas(timedelta(0), timedelta(days=4))


def test_an_attempt_over_midnight_is_charged_to_both_days_by_time() -> None:
    begun = datetime(2026, 11, 27, 23, 59, 30, tzinfo=timezone.utc)
    first, second = charges(begun, begun + timedelta(seconds=90), USED)
    assert (first.day, first.slot_seconds, second.day, second.slot_seconds) == (date(2026, 11, 27), 30.0, date(2026, 11, 28), 60.0)
    assert (first.used.cpu_seconds, second.used.cpu_seconds) == (pytest.approx(30), pytest.approx(60))
    assert (first.used.bytes_read, second.used.bytes_read) == (333_333, 666_668)
    # The memory of a process is not divided: it had that peak.
    assert first.used.peak_memory_bytes == second.used.peak_memory_bytes == 500


def test_a_day_is_one_of_utc_whatever_the_zone_of_the_moments() -> None:
    zone = timezone(timedelta(hours=5))
    begun = datetime(2026, 11, 28, 4, 59, tzinfo=zone)
    assert days_between(begun, begun + timedelta(minutes=2)) == {date(2026, 11, 27): 60.0, date(2026, 11, 28): 60.0}


def test_an_attempt_without_length_has_one_row_with_all_that_it_used() -> None:
    midnight = datetime(2026, 11, 28, tzinfo=timezone.utc)
    (only,) = charges(midnight, midnight, USED)
    assert (only.day, only.slot_seconds, only.used) == (date(2026, 11, 28), 0.0, USED)
    # A clock that was set back charges nothing, and loses nothing.
    assert charges(midnight, midnight - timedelta(hours=1), USED) == (only,)


@given(moments, spans, st.integers(0, 2**62), st.floats(0, 1e9))
def test_the_rows_of_an_attempt_add_up_to_it(begun: datetime, span: timedelta, size: int, cpu: float) -> None:
    rows = charges(begun, begun + span, Used(cpu, None, 5, size, None))
    assert [row.day for row in rows] == sorted({row.day for row in rows})
    assert all(row.slot_seconds > 0 for row in rows) or len(rows) == 1
    assert sum(row.slot_seconds for row in rows) == pytest.approx(span.total_seconds(), abs=1e-6)
    assert sum(row.used.cpu_seconds or 0 for row in rows) == pytest.approx(cpu)
    assert sum(row.used.bytes_read or 0 for row in rows) == size
    assert {row.used.overhead_cpu_seconds for row in rows} == {row.used.bytes_written for row in rows} == {None}


@pytest.mark.parametrize(
    ("told", "believed"),
    [
        (Used(19.9, 39.9, 100), Used(19.9, 39.9, 100)),
        (Used(20.1, 0.0, 100), Used(20.0, 0.0, 100, is_cut=True)),
        (Used(0.0, 40.1, 100), Used(0.0, 40.0, 100, is_cut=True)),
        (Used(0.0, 0.0, 101), Used(0.0, 0.0, 100, is_cut=True)),
        (Used(-1.0, -1.0, -1), Used(0.0, 0.0, 0, is_cut=True)),
        (Used(None, None, None), Used(None, None, None)),
    ],
)
def test_a_worker_used_no_more_than_its_cores_and_its_memory_allow(told: Used, believed: Used) -> None:
    held, lived = timedelta(seconds=10), timedelta(seconds=20)
    assert believable(told, Share(100, 2.0), held, lived) == believed


def test_a_worker_that_tells_no_cores_is_not_believed_without_a_bound() -> None:
    lie = believable(Used(1e300, None, 2**80), Share(), timedelta(seconds=1), timedelta(seconds=1))
    assert (lie.cpu_seconds, lie.peak_memory_bytes, lie.is_cut) == (MOST_CORES, MOST_BYTES, True)


@given(st.lists(st.tuples(st.integers(0, 10**9), st.integers(0, 10**6), st.integers(0, 300)), min_size=1))
def test_what_a_running_attempt_has_used_only_grows_and_never_beyond_what_is_possible(told: list[tuple[int, int, int]]) -> None:
    share, before = Share(1_000, 2.0), None
    for cpu_ms, peak, held in sorted(told, key=lambda each: each[2]):
        now = used_until_now(UsedSoFar(cpu_ms, peak), before, share, timedelta(seconds=held))
        assert now.cpu_seconds is not None
        assert now.peak_memory_bytes is not None
        assert min(cpu_ms / 1000, 2.0 * held) <= now.cpu_seconds <= 2.0 * held
        assert min(peak, 1_000) <= now.peak_memory_bytes <= 1_000
        assert now.is_cut == ((before is not None and before.is_cut) or cpu_ms / 1000 > 2.0 * held or peak > 1_000)
        if before is not None:
            assert now.cpu_seconds >= (before.cpu_seconds or 0)
            assert now.peak_memory_bytes >= (before.peak_memory_bytes or 0)
        assert used_until_now(UsedSoFar(cpu_ms, peak), now, share, timedelta(seconds=held)) == now
        before = now


def test_what_a_merge_read_and_wrote_is_what_the_task_and_its_files_say() -> None:
    task = replace(example("t1"), attempt_id="a1")
    result = replace(prepared(task), cpu_ms=1_500, overhead_cpu_ms=250, peak_memory_bytes=3)
    read = sum(file.file_size_bytes for file in (*task.work.inputs, *task.work.deletes))
    assert used_by(task.work, result) == Used(1.5, 0.25, 3, read, 100)
    assert used_by(task.work, replace(failed(task), cpu_ms=1)) == Used(0.001)
    assert used_by(task.work, None) == Used()


def test_gb_hours_count_decimal_gigabytes() -> None:
    assert gb_hours(4 * 10**9, 1800) == 2.0
