"""The time of a task is predicted from the last attempts, and how far off that is, is said."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compaction_pipeline.core.capacity.calibration import PastRun, fit

MB = 10**6
_bytes = st.one_of(st.none(), st.integers(0, 2**60))
runs = st.lists(
    st.builds(PastRun, st.integers(0, 2**60), st.floats(0, 1e9), st.one_of(st.none(), st.floats(0, 1e9)), _bytes, _bytes),
    min_size=1,
    max_size=20,
)
# What an attempt counts that has one newer one beside it, of which it counts 1.
OLDER = 0.5 ** (1 / 5)


def test_a_fixed_time_and_a_time_for_each_byte_are_found() -> None:
    past = [PastRun(size * MB, 2 + size / 10, (2 + size / 10) * 4 / 3600) for size in (10, 20, 50, 80)]
    found = fit(past)
    assert found is not None
    assert (found.fixed, found.per_byte * MB, found.gb) == (pytest.approx(2), pytest.approx(0.1), pytest.approx(4))
    assert found.seconds(100 * MB) == pytest.approx(12)
    assert found.gb_hours(100 * MB) == pytest.approx(12 * 4 / 3600)
    assert found.error == pytest.approx(1)


def test_attempts_of_one_size_are_taken_as_proportional() -> None:
    found = fit([PastRun(10 * MB, 5.0), PastRun(10 * MB, 7.0)])
    assert found is not None
    # The middle of the weight lies between 5 s and 7 s, nearer to the newer attempt.
    assert found.seconds(20 * MB) == pytest.approx(2 * (5 + 2 * OLDER / (1 + OLDER)))
    assert 11 < found.seconds(20 * MB) < 12
    # Nobody knows how much memory the slot had, and two attempts tell nothing of an error.
    assert (found.gb_hours(20 * MB), found.error) == (None, None)


def test_the_error_is_that_of_attempts_that_the_fit_did_not_know() -> None:
    found = fit([PastRun(10 * MB, 5.0), PastRun(10 * MB, 5.0), PastRun(10 * MB, 10.0)])
    assert found is not None
    # The others predict the same for the first and the second: between 5 s and 10 s. They predict 5 s for the third.
    assert found.error == pytest.approx((5 + 5 * OLDER / (1 + OLDER)) / 5)
    assert 1.4 < found.error < 1.5


def test_nothing_is_predicted_from_nothing() -> None:
    assert fit([]) is None


def test_attempts_of_far_sizes_tell_the_time_of_a_byte_and_those_of_near_sizes_only_noise() -> None:
    """Eight attempts of about 1 MB differ by seconds for other reasons than their bytes. Three of up to 100 MB took 0.1 s for each MB."""
    near = [PastRun(MB + number * 1000, 1.0 + number % 3) for number in range(8)]
    found = fit([*(PastRun(size * MB, 1.5 + size / 10) for size in (100, 80, 60)), *near])
    assert found is not None
    assert found.seconds(120 * MB) == pytest.approx(13.5, rel=0.05)


def test_a_table_whose_load_has_changed_is_predicted_well_after_five_runs() -> None:
    before = [PastRun(size * MB, size / 10) for size in range(10, 25)]
    after = [PastRun(size * MB, size / 2) for size in range(40, 46)]
    found = fit([*after, *before][:20])
    assert found is not None
    assert found.seconds(50 * MB) == pytest.approx(25, rel=0.2)


def test_the_written_bytes_are_those_that_plans_expected_times_what_was_found() -> None:
    past = [PastRun(MB, 1.0, None, written, 1000) for written in (800, 800, 900, 800, 0)]
    found = fit([*past, PastRun(MB, 1.0), PastRun(MB, 1.0, None, 500, 0)])
    assert found is not None
    assert found.size(2000) == pytest.approx(1600, rel=0.01)
    unknown = fit([PastRun(MB, 1.0), PastRun(MB, 1.0, None, 500, None), PastRun(MB, 1.0, None, None, 500)])
    assert unknown is not None
    assert unknown.size(2000) == 2000


@given(st.integers(0, 2**60), st.floats(0, 1e9), st.integers(0, 2**60), st.integers(1, 2**60))
def test_one_attempt_is_predicted_again(size: int, seconds: float, written: int, expected: int) -> None:
    found = fit([PastRun(size, seconds, None, written, expected)])
    assert found is not None
    assert found.seconds(size) == pytest.approx(max(seconds, 0.001))
    assert found.size(expected) == pytest.approx(written, abs=1, rel=1e-9)
    assert (found.error, found.gb, found.runs) == (None, None, 1)


@given(runs, st.integers(2, 8))
def test_tables_of_other_units_are_predicted_alike(past: list[PastRun], times: int) -> None:
    """Nothing but a size and a time goes into a fit: with all sizes doubled, a task of double size takes the same."""
    scaled = [PastRun(run.bytes_read * 2**times, run.slot_seconds) for run in past]
    one, other = fit(past), fit(scaled)
    assert one is not None
    assert other is not None
    assert other.seconds(10**6 * 2**times) == pytest.approx(one.seconds(10**6), rel=1e-6, abs=1e-3)


@given(runs, st.integers(0, 10**13))
def test_a_prediction_is_a_time_whatever_was_measured(past: list[PastRun], size: int) -> None:
    found = fit(past)
    assert found is not None
    assert found.fixed >= 0
    assert found.per_byte >= 0
    assert 0 < found.seconds(size) < 1e30
    assert 0 <= found.size(size) <= 2**60
    assert math.isfinite(found.kept)
    assert found.seconds(size) <= found.seconds(2 * size)
    assert found.error is None or found.error >= 1
