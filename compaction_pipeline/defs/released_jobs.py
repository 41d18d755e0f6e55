"""Starts jobs of a user's Dagster when the dependency center releases them, and reports how their runs end.

`compaction_pipeline.automation` exports it. A sensor claims for its receiver, asks for a run under the key of the start, and says that it
has it when the run is there. So a tick that is cut off asks again, under the same key, and Dagster starts it once.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any

import dagster as dg

from compaction_pipeline.core.dependencies.center.instances import Instance, InstanceState
from compaction_pipeline.core.dependencies.center.jobs import run_subject
from compaction_pipeline.core.dependencies.center.ports import InstanceQuery
from compaction_pipeline.core.dependencies.ready_time import Window
from compaction_pipeline.core.errors import CompactionError, ConfigError
from compaction_pipeline.defs.choices import Choices
from compaction_pipeline.defs.ready_ticks import most_runs
from compaction_pipeline.defs.ready_windows import by_time, window_of
from compaction_pipeline.defs.resources import opened_services
from compaction_pipeline.defs.ticks import abandoned_when_dagster_ends
from compaction_pipeline.services.dependencies.center import DependencyCenter
from compaction_pipeline.settings import load_settings

_LOG = logging.getLogger(__name__)

RECEIVER = "dagster"
RECEIVER_TAG, KEY_TAG, RUN_TAG, GENERATION_TAG = (f"compaction/{name}" for name in ("receiver", "start", "instance", "generation"))
NOTE_TAG = "compaction/note"
_OVERLAP = timedelta(minutes=10)
"""Dagster stores changes of runs a moment after their time, so each tick reads those of the last minutes again. That changes nothing."""
_PAGE = 200
_SHOWN = 3
_STATES = {
    dg.DagsterRunStatus.STARTING: InstanceState.RUNNING,
    dg.DagsterRunStatus.STARTED: InstanceState.RUNNING,
    dg.DagsterRunStatus.CANCELING: InstanceState.RUNNING,
    dg.DagsterRunStatus.SUCCESS: InstanceState.SUCCEEDED,
    dg.DagsterRunStatus.FAILURE: InstanceState.FAILED,
    dg.DagsterRunStatus.CANCELED: InstanceState.FAILED,
}


@dataclass(frozen=True, slots=True)
class ReleasedJob:
    """A job of yours that the center starts. Give `partitions_def`, by time, when it has partitions: each instance runs the one whose time
    is its own."""

    job: Any
    partitions_def: dg.TimeWindowPartitionsDefinition | None = None

    def partition(self, window: Window) -> str | None:
        """The partition with this time. Raises ConfigError when there is none."""
        if self.partitions_def is None:
            return None
        span = dg.TimeWindow(window.start, window.end)
        keys = [key for key in self.partitions_def.get_partition_keys_in_time_window(span) if window_of(self.partitions_def, key) == window]
        if len(keys) != 1 or not self.partitions_def.has_partition_key(keys[0]):
            raise ConfigError(
                f"the job {self.job.name!r} has no partition for {window}: let its partitions_def, and the period and zone in the "
                "project's file, mean the same times"
            )
        return keys[0]


def released_jobs(
    jobs: Mapping[str, Any],
    *,
    receiver: str = RECEIVER,
    name: str = "released_jobs",
    interval_seconds: int | None = None,
    state_url: str | None = None,
    default_status: dg.DefaultSensorStatus = dg.DefaultSensorStatus.STOPPED,
) -> dg.SensorDefinition:
    """Make the sensor that starts your jobs when the dependency center releases them.

    `jobs` maps the names of the center's jobs to yours: a job, or a `ReleasedJob` where it has partitions. `receiver` is what these jobs
    have in their project's file; only one sensor may have it. A tick asks for at most 20 runs, or 5 for each second of the interval. The
    other arguments are as in `when_ready`. Raises ConfigError for partitions that are not by time.
    """
    mine = {of: job if isinstance(job, ReleasedJob) else ReleasedJob(job) for of, job in jobs.items()}
    for of, one in mine.items():
        if one.partitions_def is not None:
            by_time(one.partitions_def, f"released_jobs, {of}")
    choices = Choices({} if state_url is None else {"state_url": state_url})
    every = interval_seconds or load_settings().sensor_interval_seconds

    @dg.sensor(
        name=name,
        jobs=[one.job for one in mine.values()],
        minimum_interval_seconds=every,
        default_status=default_status,
        description=f"Starts jobs that the dependency center releases for the receiver {receiver!r}, and reports how their runs end.",
    )
    @abandoned_when_dagster_ends
    def evaluate(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        with closing(opened_services(choices)) as services:
            return Ticks(services.center, context.instance, mine, receiver).tick(context.cursor, most_runs(every))

    return evaluate


class Ticks:
    """One verb: tick."""

    def __init__(self, center: DependencyCenter, instance: dg.DagsterInstance, jobs: Mapping[str, ReleasedJob], receiver: str) -> None:
        self._center = center
        self._instance = instance
        self._jobs = jobs
        self._receiver = receiver

    def tick(self, cursor: str | None, most: int) -> dg.SensorResult:
        """Report how runs are, and ask for those that may start. The cursor is the time up to which changes of runs were read."""
        read_to = self._report(datetime.fromisoformat(cursor) if cursor else None)
        requests = list(self._requests(self._center.claim(self._receiver, most)))
        reason = None if requests else self._reason()
        return dg.SensorResult(run_requests=requests, skip_reason=reason, cursor=read_to.isoformat() if read_to is not None else None)

    def _reason(self) -> str:
        """What the oldest waiting instance waits for, for who looks at the ticks of the sensor."""
        query = InstanceQuery(state=InstanceState.WAITING, receiver=self._receiver, most=1, oldest_first=True)
        for one in self._center.instances(query):
            why = self._center.why(one.job, one.biz, one.origin)
            if why.busy is not None:
                return f"{one.key} starts when the {why.busy} instance of its business time has ended"
            shown = ", ".join(missing.subject for missing in why.waits_for[:_SHOWN])
            others = len(why.waits_for) - _SHOWN
            return f"{one.key} waits for {shown}{f' and {others} more' if others > 0 else ''}"
        return "no job waits"

    def _requests(self, claimed: Sequence[Instance]) -> Iterator[dg.RunRequest]:
        delivered = [one for one in claimed if self._runs({KEY_TAG: one.key})]
        self._center.delivered(self._receiver, [(one.id, one.generation) for one in delivered])
        for one in claimed:
            if one in delivered:
                continue
            try:
                yield self._request(one)
            except CompactionError as error:
                # The check `jobs_start` turns red. Others go on.
                _LOG.warning("job=%s %s is not started: %s", one.job, one.key, error)

    def _request(self, one: Instance) -> dg.RunRequest:
        mine = self._jobs.get(one.job)
        if mine is None:
            raise ConfigError(f"the sensor of the receiver {self._receiver!r} has no job for it: add it to `released_jobs`")
        partition = mine.partition(self._center.window(one.job, one.biz))
        tags = {
            RECEIVER_TAG: self._receiver,
            KEY_TAG: one.key,
            RUN_TAG: run_subject(one.job, one.biz, one.origin).key,
            GENERATION_TAG: str(one.generation),
            **({NOTE_TAG: one.note} if one.note else {}),
        }
        return dg.RunRequest(run_key=one.key, job_name=mine.job.name, partition_key=partition, tags=tags)

    def _report(self, read_to: datetime | None) -> datetime | None:
        """Report the runs that changed since. Return up to when they were read."""
        after = read_to - _OVERLAP if read_to is not None else None
        newest, seen = read_to, set[str]()
        while True:
            filters = dg.RunsFilter(tags={RECEIVER_TAG: self._receiver}, updated_after=after)
            records = self._instance.get_run_records(filters, limit=_PAGE, order_by="update_timestamp", ascending=True)
            fresh = [record for record in records if record.dagster_run.run_id not in seen]
            for record in fresh:
                self._report_one(record.dagster_run)
                seen.add(record.dagster_run.run_id)
                newest = _utc(record.update_timestamp)
            if not fresh or len(records) < _PAGE:
                return newest
            after = newest

    def _report_one(self, run: dg.DagsterRun) -> None:
        state = _STATES.get(run.status)
        if state is None:
            return
        try:
            self._center.report(run.tags[RUN_TAG], state, "dagster", generation=self._generation(run))
        except CompactionError as error:
            _LOG.warning("run=%s its end is not reported: %s", run.run_id, error)

    def _generation(self, run: dg.DagsterRun) -> int:
        """The generation of a run: that of its start, and one more for each run again of it before this one."""
        again = self._runs({KEY_TAG: run.tags[KEY_TAG]})
        return int(run.tags[GENERATION_TAG]) + [one.run_id for one in again].index(run.run_id)

    def _runs(self, tags: Mapping[str, str]) -> Sequence[dg.DagsterRun]:
        """The runs with these tags, the oldest first."""
        records = self._instance.get_run_records(dg.RunsFilter(tags=dict(tags)), order_by="create_timestamp", ascending=True)
        return [record.dagster_run for record in records]


def _utc(at: datetime) -> datetime:
    return at.replace(tzinfo=timezone.utc) if at.tzinfo is None else at.astimezone(timezone.utc)
