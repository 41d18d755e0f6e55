"""What follows when a person terminates a run of ours: the sensors ask for no run for a while, and everybody is told who goes on.

A run has the status CANCELED only when somebody asked for its end. When a process or `dagster dev` ends, Dagster counts its runs as failed.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta, timezone

import dagster as dg

from compaction_pipeline.defs.draining import is_of_machine
from compaction_pipeline.defs.names import COMMIT_JOB, COMPACT_JOB, Names

HOLD = timedelta(minutes=10)
"""So long no sensor asks for a run after a person's termination. A person who ends a run does not want the next one seconds later."""

GO_ON = "launch `compact_job` to go on at once; optimizers, `serve` and the command line go on meanwhile"
_TIMED_OUT = "exceeding maximum runtime"
"""Dagster's run monitoring asks for the end of a run with these words. Then no person did."""


@dataclass(frozen=True, slots=True)
class Termination:
    """A run that a person ended, and when."""

    run_id: str
    job: str
    at: datetime

    @property
    def text(self) -> str:
        """Why no run is asked for, and what a person can do about it."""
        until = self.at + HOLD
        return f"no run is asked for before {until:%H:%M:%S} UTC, because a person ended run {self.run_id[:8]} of {self.job}; {GO_ON}"


def held_back(names: Names, instance: dg.DagsterInstance, now: datetime) -> Termination | None:
    """The newest termination that still holds the sensors back. None when there is none, or when a person has launched a run since."""
    ended = [dg.DagsterRunStatus.CANCELED, dg.DagsterRunStatus.CANCELING]
    records = instance.get_run_records(dg.RunsFilter(statuses=ended, updated_after=now - HOLD))
    found = [_termination(names, record) for record in records if _is_ours(names, record.dagster_run)]
    newest = max((each for each in found if now - each.at < HOLD), key=lambda each: each.at, default=None)
    if newest is None or not is_by_person(instance, newest.run_id):
        return None
    later = instance.get_run_records(dg.RunsFilter(created_after=newest.at))
    launched = any(_is_ours(names, record.dagster_run) and not is_of_machine(record.dagster_run) for record in later)
    return None if launched else newest


def is_by_person(instance: dg.DagsterInstance, run_id: str) -> bool:
    """Whether a person asked for the end of this run."""
    asked = instance.all_logs(run_id, of_type=dg.DagsterEventType.RUN_CANCELING)
    return bool(asked) and not any(_TIMED_OUT in entry.message for entry in asked)


def _termination(names: Names, record: dg.RunRecord) -> Termination:
    ended_at = datetime.fromtimestamp(record.end_time, timezone.utc) if record.end_time else record.update_timestamp
    run = record.dagster_run
    return Termination(run.run_id, run.job_name if run.job_name in _jobs(names) else "a launch", ended_at)


def _is_ours(names: Names, run: dg.DagsterRun) -> bool:
    """Whether this run merges or commits."""
    launched = {names.compacted_files, names.compaction_records}
    return run.job_name in _jobs(names) or not (run.asset_selection or frozenset()).isdisjoint(launched)


def _jobs(names: Names) -> tuple[str, str]:
    return (names.of(COMPACT_JOB), names.of(COMMIT_JOB))
