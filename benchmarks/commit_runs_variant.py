"""The definitions of the variant that `commit_runs.py` measures: runs of `commit_job` commit all due tables, one a commit interval at most.

Runs of `compact_job` that a sensor asked for merge, and commit nothing. `dagster dev` of the benchmark loads this module in the place of
`compaction_pipeline.definitions`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from typing import Any

import dagster as dg

from compaction_pipeline.core.commit.record import CompactionRecord
from compaction_pipeline.definitions import defs
from compaction_pipeline.defs import sensors
from compaction_pipeline.defs.names import COMMIT_JOB
from compaction_pipeline.defs.runs import active_run
from compaction_pipeline.services.compact import CompactTables

EVERY = "COMMIT_RUNS_BENCHMARK_SECONDS"
"""The variable that says how many seconds lie between two runs of `commit_job`."""

_carry_out = CompactTables.carry_out


def _serving(instance: dg.DagsterInstance, *jobs: str) -> str | None:
    """What the sensors ask. `commit_sensor` waits for no run of `compact_job`, and for the newest commit run only in its interval."""
    if COMMIT_JOB not in jobs:
        return active_run(instance, *jobs)
    since = datetime.now(timezone.utc) - timedelta(seconds=int(os.environ.get(EVERY, "5")))
    recent = instance.get_runs(filters=dg.RunsFilter(job_name=COMMIT_JOB, created_after=since), limit=1)
    return recent[0].run_id if recent else active_run(instance, COMMIT_JOB)


def _merging_only(self: CompactTables, asked: Any, how: Any) -> Any:
    if not asked:
        # The process of a run does nothing else, so nobody else misses the method.
        self._commit_due.commit = _nothing  # type: ignore[method-assign]
    return _carry_out(self, asked, how)


def _nothing(*_: Any) -> Iterator[CompactionRecord]:
    return iter(())


if EVERY in os.environ:
    sensors.active_run = _serving
    CompactTables.carry_out = _merging_only  # type: ignore[method-assign]

__all__ = ["EVERY", "defs"]
