"""The share of garbage collections of a driver, from totals that come late, twice, or from a JVM that has started again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compaction_pipeline.core.capacity.driver_gc import MOST_SHARE, OBSERVATIONS, DriverGc, observed
from compaction_pipeline.core.queue.spark_memory import more_driver_memory


def told(*totals: tuple[float, float]) -> DriverGc | None:
    known = None
    for gc_seconds, up_seconds in totals:
        known = observed(known, DriverGc(gc_seconds, up_seconds))
    return known


def test_three_minutes_of_many_collections_in_a_row_call_for_memory() -> None:
    high = [(10.0 * number, 60.0 * number) for number in range(OBSERVATIONS + 1)]
    known = told(*high)
    assert known == DriverGc(30.0, 180.0, pytest.approx(1 / 6), 3)
    assert known is not None
    assert known.needs_memory
    # The first totals are no observation, what comes within a minute is none, and one calm minute ends the row.
    two = high[:-1]
    for few in (told(*two), told(*two, (29.0, 179.0)), told(*high, (31.0, 240.0)), told(*two, (21.0, 180.0), (40.0, 240.0))):
        assert few is not None
        assert not few.needs_memory
    assert told(*high, (0.5, 3.0)) == DriverGc(0.5, 3.0)


@given(st.lists(st.tuples(st.floats(0, 1e9), st.floats(0, 1e9)), min_size=1))
def test_whatever_is_told_a_share_is_one(totals: list[tuple[float, float]]) -> None:
    known = told(*totals)
    assert known is not None
    assert known.share is None or 0 <= known.share <= 1
    assert known.high == 0 or (known.share or 0.0) > MOST_SHARE
    # Whoever says the same again changes nothing.
    assert told(*totals, totals[-1]) in (known, DriverGc(*totals[-1]))


@pytest.mark.parametrize(
    ("properties", "memory"),
    [
        ({}, "2048m"),
        ({"spark.driver.memory": "3g"}, "6144m"),
        ({"spark.driver.memory": "512m"}, "1024m"),
        ({"spark.driver.memory": "?"}, "2048m"),
    ],
)
def test_a_driver_gets_twice_its_memory(properties: dict[str, str], memory: str) -> None:
    assert more_driver_memory(properties) == memory
