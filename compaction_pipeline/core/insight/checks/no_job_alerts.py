"""Judges what owners of jobs should look at: no job waits without a reason, is silent, or has SQL that nobody understood."""

from __future__ import annotations

from collections.abc import Sequence

from compaction_pipeline.core.dependencies.center.lineage import Alert
from compaction_pipeline.core.insight.checks.judgement import Failure, Judgement


def no_job_alerts(found: Sequence[Alert]) -> Judgement:
    """Fail each job with an alert, and name its owner."""
    failures = tuple(Failure(None, None, f"{_to(one.owner)}{one.text}", job=one.job) for one in found)
    return Judgement("alerts", len(failures), failures, nothing="no owner of a job has anything to look at")


def _to(owner: str) -> str:
    return f"{owner}, " if owner else ""
