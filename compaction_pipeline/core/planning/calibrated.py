"""Predicts what each task of a plan writes and costs: the plan's own figures, corrected by what past attempts did with such figures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from compaction_pipeline.core.capacity.calibration import Fit
from compaction_pipeline.core.planning.plan import CompactionPlan
from compaction_pipeline.core.work.kinds import CompactionType
from compaction_pipeline.core.work.prediction import Prediction
from compaction_pipeline.core.work.work import Work

_MOST = 2
"""A merge writes at most so many times the bytes that it reads."""


def calibrated(plan: CompactionPlan, own: Mapping[CompactionType, Fit], costs: Mapping[CompactionType, Fit]) -> CompactionPlan:
    """Return the plan with a prediction for each of its tasks.

    `own` are fits to past attempts on the plan's table: what its rows become in a merge, no other table tells. `costs` predict GB-hours;
    a type that is not in it costs an unknown number.
    """
    predictions = tuple(_predicted(work, own.get(work.type), costs.get(work.type)) for work in plan.tasks)
    more = sum((one.size_bytes or 0) - work.predicted_bytes for one, work in zip(predictions, plan.tasks, strict=True))
    return replace(plan, predictions=predictions, predicted_bytes=max(0, plan.predicted_bytes + more))


def _predicted(work: Work, own: Fit | None, cost: Fit | None) -> Prediction:
    # A merge copies rows. Where deletes were wrongly expected to leave next to nothing, a share of that would predict anything.
    size = work.predicted_bytes if own is None else min(own.size(work.predicted_bytes), max(work.predicted_bytes, _MOST * work.bytes_read))
    return Prediction(size, None if cost is None else cost.gb_hours(work.bytes_read))
