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


@given(told, st.floats(0, 1e5))
def test_totals_are_cut_at_the_time_that_there_was(totals: SlotTotals, most: float) -> None:
    cut = totals.bounded(most)
    assert 0 <= cut.held <= most
    assert 0 <= cut.idle <= most
    assert cut.held + cut.idle <= most * (1 + 1e-12)


@given(st.lists(told, max_size=20), st.integers(1, 8))
def test_a_life_adds_up_whatever_is_told_twice_or_late(touches: list[SlotTotals], slots: int) -> None:
    """Each touch comes ten seconds after the one before."""
    before, life, lived = SlotTotals(), SlotTime(), timedelta(0)
    for number, totals in enumerate(touches):
        lived += timedelta(seconds=10)
        now = totals.bounded(slots * lived.total_seconds()).since(before)
        spent = passed(slots, timedelta(seconds=10), before, now, has_polled=number > 2)
        assert spent.held >= 0
        assert spent.idle >= 0
        life, before = life.plus(spent), now
    assert life.seconds == pytest.approx(slots * lived.total_seconds())
