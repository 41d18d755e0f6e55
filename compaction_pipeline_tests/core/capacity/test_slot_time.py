"""The life of an optimizer is divided among what its slots did. What it tells is never more than the time that passed."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compaction_pipeline.core.capacity.slot_time import SlotTime, SlotTotals, passed

told = st.builds(SlotTotals, st.floats(-1e6, 1e6), st.floats(-1e6, 1e6))


def test_what_is_neither_held_nor_idle_is_the_start_before_the_first_poll_and_the_drain_after_it() -> None:
    minute = timedelta(minutes=1)
    assert passed(2, minute, SlotTotals(), SlotTotals(), has_polled=False) == SlotTime(starting=120)
    after = passed(2, minute, SlotTotals(10, 5), SlotTotals(60, 45), has_polled=True)
    assert after == SlotTime(held=50, idle=40, ending=30)


@given(told, told, st.floats(0, 1e5))
def test_totals_grow_by_no_more_than_the_time_that_there_was(before: SlotTotals, totals: SlotTotals, most: float) -> None:
    grown = before.grown_to(totals, most)
    assert grown.held >= before.held
    assert grown.idle >= before.idle
    assert (grown.held - before.held) + (grown.idle - before.idle) <= most + 1e-6


@given(st.lists(told, max_size=20), st.integers(1, 8))
def test_a_life_adds_up_whatever_is_told_twice_or_late(touches: list[SlotTotals], slots: int) -> None:
    """Each touch comes ten seconds after the one before."""
    before, life = SlotTotals(), SlotTime()
    for number, totals in enumerate(touches):
        now = before.grown_to(totals, slots * 10.0)
        spent = passed(slots, timedelta(seconds=10), before, now, has_polled=number > 2)
        assert min(spent.held, spent.idle) >= 0
        assert min(spent.starting, spent.ending) >= -1e-6
        life, before = life.plus(spent), now
    assert life.seconds == pytest.approx(slots * 10 * len(touches), abs=1e-3)
