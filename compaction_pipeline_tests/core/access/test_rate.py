from __future__ import annotations

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from compaction_pipeline.core.access.rate import BURST, PER_SECOND, Allowance, after_request, is_full
from compaction_pipeline_tests.builders import NOW


def test_a_burst_is_allowed_and_then_a_steady_rate() -> None:
    left: Allowance | None = None
    for _ in range(int(BURST)):
        left, wait = after_request(left, NOW)
        assert wait == 0
    left, wait = after_request(left, NOW)
    assert wait == 1 / PER_SECOND
    left, wait = after_request(left, NOW + timedelta(seconds=wait))
    assert wait == 0
    assert not is_full(left, NOW)
    assert is_full(left, NOW + timedelta(seconds=BURST / PER_SECOND + 1))


@given(st.lists(st.integers(-2_000, 5_000), max_size=200))
def test_no_more_is_allowed_than_a_burst_and_the_rate(steps_ms: list[int]) -> None:
    """This also holds when the clock goes back: the time after such a step counts like any other."""
    left, now, allowed, passed = None, NOW, 0, 0.0
    for step in steps_ms:
        now += timedelta(milliseconds=step)
        passed += max(step, 0) / 1_000
        left, wait = after_request(left, now)
        allowed += wait == 0
        assert 0 <= left.requests <= BURST
    assert allowed <= BURST + passed * PER_SECOND + 1
