"""An optimizer that is idle, one that waits for storage, and one that has too much memory each get their remedy, which raises the score."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from compaction_pipeline.core.capacity.low_use import LowUseLimits, Size, SlotUse, Use, use_of

LIMITS = LowUseLimits()
WINDOW = LIMITS.window.total_seconds()
FOUR = Size(4, 12 * 10**9, 4.0)


def busy(slots: float, cpu: float = 4.0, peak: int | None = 2 * 10**9) -> SlotUse:
    """So many slots were busy all the time, and used so many cores."""
    return SlotUse(slots * WINDOW, slots * WINDOW, cpu * WINDOW, peak)


def test_an_optimizer_that_is_well_used_has_all_points() -> None:
    assert use_of(FOUR, busy(3.5), LIMITS) == Use(100)


def test_idle_slots_go_with_their_memory() -> None:
    use = use_of(FOUR, busy(2, 2.0), LIMITS)
    assert use.reasons == ("2 of 4 slots idle for 30 min on average",)
    assert (use.score, use.remedy, use.better) == (67, "parallelism 2 saves 4.9 GB", Size(2, 7_100_000_000, 4.0))


def test_fewer_slots_leave_the_processes_what_they_need() -> None:
    """In proportion, one of eight slots would get half of a GB."""
    use = use_of(Size(8, 4 * 10**9, 4.0), SlotUse(WINDOW, WINDOW, 4.0 * WINDOW, 100_000_000), LIMITS)
    assert (use.remedy, use.better) == ("parallelism 1 saves 2.0 GB", Size(1, 2 * 10**9, 4.0))


def test_an_optimizer_without_a_task_need_not_run() -> None:
    use = use_of(FOUR, SlotUse(), LIMITS)
    assert (use.score, use.ends, use.better, use.remedy) == (0, True, None, "no task came: it need not run, which saves 12.0 GB")
    assert use.is_low


def test_slots_that_wait_for_storage_become_more() -> None:
    use = use_of(FOUR, busy(4, 0.2), LIMITS)
    assert use.reasons[0] == "5% of 4 cores used"
    assert (use.score, use.better) == (25, Size(8, 23_900_000_000, 4.0))


def test_slots_that_compute_are_not_of_low_use_for_cpu() -> None:
    """Two slots use two of sixteen cores, which is less than a fifth. More slots would not use the cores of this work better."""
    host = Size(2, 6 * 10**9, 16.0)
    assert use_of(host, busy(2, 2.0), LIMITS) == Use(100)
    # Where one slot of four computes, the idle ones go, and what is left is not called one that waits for storage.
    few = use_of(replace(host, slots=4), busy(1, 1.0), LIMITS)
    assert few.reasons == ("3 of 4 slots idle for 30 min on average",)
    assert few.better is not None
    assert few.better.slots == 1
    assert use_of(few.better, busy(1, 1.0), LIMITS) == Use(100)
    assert use_of(host, busy(2, 0.5), LIMITS).remedy.startswith("its slots wait for storage: parallelism 4")


def test_cores_that_others_of_the_host_use_are_not_of_low_use() -> None:
    waits = busy(4, 0.2)
    assert use_of(FOUR, waits, LIMITS, waits).score == 25
    assert use_of(FOUR, waits, LIMITS, waits.plus(busy(2, 2.0, None))) == Use(100)
    # Of another one of the host, nobody knows what it used.
    assert use_of(FOUR, waits, LIMITS, waits.plus(SlotUse(WINDOW))) == Use(100)
    assert waits.plus(busy(1, 1.0, None)).peak_memory_bytes == waits.peak_memory_bytes
    assert SlotUse().plus(SlotUse()) == SlotUse()


def test_memory_that_nobody_uses_goes() -> None:
    use = use_of(FOUR, busy(4, 4.0, 100_000_000), LIMITS)
    assert use.reasons == ("26% of 12.0 GB of memory used at the peak",)
    # 1.5 GB for the processes, and for each slot a worker and its merge with some room.
    assert use.better == Size(4, 3_200_000_000, 4.0)
    assert use_of(Size(1, 2 * 10**9, 4.0), busy(1, 4.0, 1_000), LIMITS) == Use(100)


def test_what_nobody_knows_is_not_judged() -> None:
    unknown = Size(4, 0, None)
    assert use_of(unknown, busy(4, 0.0, None), LIMITS) == Use(100)
    # Half of the time is of attempts that told no CPU.
    assert use_of(FOUR, SlotUse(4 * WINDOW, 2 * WINDOW, 0.0, 2 * 10**9), LIMITS) == Use(100)


uses = st.builds(busy, st.floats(0, 5), st.floats(0, 4), st.one_of(st.none(), st.integers(1, 3 * 10**9)))


@given(uses, st.integers(1, 8))
def test_a_remedy_lowers_no_score(used: SlotUse, slots: int) -> None:
    """The same work on the better size. More slots that wait for storage use more CPU, because each brings its own work."""
    size = Size(slots, slots * 3 * 10**9, 4.0)
    use = use_of(size, used, LIMITS)
    assert 0 <= use.score <= 100
    if use.better is None:
        return
    assert use.remedy
    # 1.5 GB for the processes, and 0.3 GB and the largest merge for each slot.
    needed = 1_500_000_000 + use.better.slots * (300_000_000 + (used.peak_memory_bytes or 0))
    assert use.better.memory_bytes >= min(needed, size.memory_bytes)
    grown = max(use.better.slots / size.slots, 1.0)
    done = replace(
        used, busy_seconds=used.busy_seconds * grown, told_seconds=used.told_seconds * grown, cpu_seconds=used.cpu_seconds * grown
    )
    after = use_of(use.better, done, LIMITS)
    assert after.score >= use.score
