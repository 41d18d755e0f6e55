"""Runs that a killed demo left under way are failed, and no others."""

from __future__ import annotations

from pathlib import Path

import dagster as dg
import pytest
from dagster._core.code_pointer import ModuleCodePointer
from dagster._core.origin import JobPythonOrigin, RepositoryPythonOrigin
from dagster._core.remote_origin import RegisteredCodeLocationOrigin, RemoteJobOrigin, RemoteRepositoryOrigin

from compaction_pipeline.demo.options import DemoOptions
from compaction_pipeline.demo.pipeline import fail_lost_runs

LOST = (dg.DagsterRunStatus.NOT_STARTED, dg.DagsterRunStatus.STARTING, dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.CANCELING)
KEPT = (dg.DagsterRunStatus.QUEUED, dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.CANCELED)


# Dagster takes no queued run without these. They name a code location that nobody starts.
ORIGIN = RemoteJobOrigin(RemoteRepositoryOrigin(RegisteredCodeLocationOrigin("here"), "jobs"), "some_job")
CODE = JobPythonOrigin("some_job", RepositoryPythonOrigin("python", ModuleCodePointer("jobs", "jobs")))


@dg.job
def some_job() -> None:
    """A job without a step."""


@pytest.mark.parametrize("status", [*LOST, *KEPT], ids=lambda status: status.value)
def test_only_runs_under_way_are_failed(status: dg.DagsterRunStatus, tmp_path: Path) -> None:
    options = DemoOptions(tmp_path)
    options.make_folders()
    (options.dagster_home / "dagster.yaml").write_text("telemetry: {enabled: false}")
    with dg.DagsterInstance.from_config(str(options.dagster_home)) as instance:
        run_id = instance.create_run_for_job(some_job, status=status, remote_job_origin=ORIGIN, job_code_origin=CODE).run_id
    fail_lost_runs(options)
    with dg.DagsterInstance.from_config(str(options.dagster_home)) as instance:
        run = instance.get_run_by_id(run_id)
    assert run is not None
    assert run.status is (dg.DagsterRunStatus.FAILURE if status in LOST else status)
