"""The time of a task is predicted from the last attempts, and how far off that is, is said."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compaction_pipeline.core.capacity.calibration import PastRun, fit

MB = 10**6
runs = st.lists(
    st.builds(PastRun, st.integers(0, 10**12), st.floats(0, 1e5), st.one_of(st.none(), st.floats(0, 100))), min_size=1, max_size=20
)


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
    assert found.seconds(20 * MB) == pytest.approx(12)
    # Nobody knows how much memory the slot had, and two attempts tell nothing of an error.
    assert (found.gb_hours(20 * MB), found.error) == (None, None)


def test_the_error_is_that_of_attempts_that_the_fit_did_not_know() -> None:
    found = fit([PastRun(10 * MB, 5.0), PastRun(10 * MB, 5.0), PastRun(10 * MB, 10.0)])
    assert found is not None
    # The others predict 7.5, 7.5 and 5.
    assert found.error == pytest.approx(1.5)


def test_nothing_is_predicted_from_nothing() -> None:
    assert fit([]) is None


@given(runs, st.integers(0, 10**13))
def test_a_prediction_is_a_time_whatever_was_measured(past: list[PastRun], size: int) -> None:
    found = fit(past)
    assert found is not None
    assert found.fixed >= 0
    assert found.per_byte >= 0
    assert 0 < found.seconds(size) < 1e30
    assert found.seconds(size) <= found.seconds(2 * size)
    assert found.error is None or found.error >= 1
