"""What a plan expects is corrected by what past attempts on its table did, and its costs by those that are known."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compaction_pipeline.core.capacity.calibration import Fit
from compaction_pipeline.core.commit.record import opened
from compaction_pipeline.core.ids import RecordId
from compaction_pipeline.core.planning.calibrated import calibrated
from compaction_pipeline.core.planning.plan import CompactionPlan
from compaction_pipeline.core.work.kinds import CompactionType
from compaction_pipeline.core.work.prediction import Prediction
from compaction_pipeline_tests.builders import NOW, TABLE, data, forced, planned, table_files, task

MINOR, MAJOR = CompactionType.MINOR, CompactionType.MAJOR


def plan_of_two() -> CompactionPlan:
    days = [data(f"{day}-{number}", 10 * day, day=day) for day in (1, 2) for number in range(12)]
    return planned(table_files(*days, data("whole", 900, day=3)), forced(MINOR))


def test_each_task_gets_its_bytes_and_its_hours_and_the_table_changes_by_their_sum() -> None:
    plan = plan_of_two()
    own, cost = Fit(0.0, 0.0, None, None, 3, kept=0.5), Fit(3600.0, 0.0, 2.0, None, 3)
    found = calibrated(plan, {MINOR: own}, {MINOR: cost})
    assert sorted(found.predictions, key=lambda one: one.size_bytes or 0) == [Prediction(60_000, 2.0), Prediction(120_000, 2.0)]
    assert (plan.predicted_bytes, found.predicted_bytes) == (1_260_000, 1_080_000)
    assert (found.tasks, found.predicted_files) == (plan.tasks, plan.predicted_files)


def test_what_nobody_knows_stays_what_the_plan_expects_and_its_hours_unknown() -> None:
    plan = plan_of_two()
    found = calibrated(plan, {MAJOR: Fit(1.0, 0.0, 1.0, None, 3, kept=0.1)}, {})
    assert found == replace(plan, predictions=tuple(Prediction(work.predicted_bytes) for work in plan.tasks))
    assert found.predicted_tasks == plan.predicted_tasks


@given(st.floats(0, 1e18), st.floats(0, 1e9), st.floats(0, 1e9))
def test_no_fit_makes_a_negative_or_an_unstorable_prediction(kept: float, fixed: float, per_byte: float) -> None:
    fit = {MINOR: Fit(fixed, per_byte, 1e6, None, 1, kept)}
    found = calibrated(plan_of_two(), fit, fit)
    assert found.predicted_bytes >= 0
    for one in found.predictions:
        assert one.size_bytes is not None
        assert 0 <= one.size_bytes <= 2 * 240_000
        assert one.gb_hours is not None
        assert one.gb_hours > 0


def test_a_record_sums_what_was_predicted_and_knows_no_hours_when_those_of_one_task_are_unknown() -> None:
    known = [replace(task(f"t{number}"), prediction=Prediction(1_000 * number, number / 2)) for number in (1, 2)]
    before = task("t3")
    of_known = opened(RecordId("r"), TABLE, known, (), NOW)
    assert (of_known.predicted_bytes, of_known.predicted_gb_hours, of_known.gb_hours) == (3_000, pytest.approx(1.5), None)
    # A task of an earlier release has no prediction of its own.
    of_all = opened(RecordId("r"), TABLE, [*known, before], (), NOW)
    assert (of_all.predicted_bytes, of_all.predicted_gb_hours) == (3_000 + before.work.predicted_bytes, None)
