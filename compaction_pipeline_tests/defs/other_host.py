"""A code server, and runs that it launches on "another host": in a process with another environment, as in a container."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg
from dagster import Field, Permissive
from dagster._core.launcher.base import LaunchRunContext, RunLauncher
from dagster._core.workspace.context import WorkspaceProcessContext
from dagster._core.workspace.load_target import PythonFileTarget
from dagster._grpc.types import ExecuteRunArgs
from dagster._serdes import ConfigurableClass, ConfigurableClassData
from dagster_graphql.test.utils import execute_dagster_graphql

_LAUNCH = """
mutation($selector: JobOrPipelineSelector!, $tags: [ExecutionTag!]!, $config: RunConfigData!) {
  launchPipelineExecution(executionParams: {selector: $selector, runConfigData: $config, executionMetadata: {tags: $tags}}) {
    __typename
    ... on LaunchRunSuccess { run { runId } }
    ... on PythonError { message }
  }
}
"""


@dataclass(frozen=True)
class Ended:
    """A run that has ended, and what Dagster stored of it."""

    run: dg.DagsterRun
    events: Sequence[dg.EventLogEntry]

    @property
    def failure(self) -> str:
        """Why the run failed; empty when it did not."""
        said = [each.user_message or each.message for each in self.events]
        return "" if self.run.is_success else f"{self.run.status}: {said}"


Launch = Callable[..., Ended]
"""Launches a run as the webserver does, and returns when it has ended."""


class OtherHost(RunLauncher[dg.DagsterInstance], ConfigurableClass):
    """Runs each run in a process with this environment, which has nothing in common with that of the code server, and waits for it."""

    def __init__(self, environment: Mapping[str, str], inst_data: ConfigurableClassData | None = None) -> None:
        super().__init__()
        self._environment = environment
        self._data = inst_data

    @property
    def inst_data(self) -> ConfigurableClassData | None:
        return self._data

    @classmethod
    def config_type(cls) -> Any:
        return {"environment": Field(Permissive())}

    @classmethod
    def from_config_value(cls, inst_data: ConfigurableClassData | None, config_value: Mapping[str, Any]) -> OtherHost:
        return cls(inst_data=inst_data, **config_value)

    def launch_run(self, context: LaunchRunContext) -> None:
        assert context.job_code_origin is not None
        run = context.dagster_run
        arguments = ExecuteRunArgs(context.job_code_origin, run.run_id, self._instance.get_ref())
        command = [sys.executable, "-m", "dagster", "api", "execute_run", arguments.get_command_args()[-1]]
        done = subprocess.run(command, env=dict(self._environment), capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr

    def terminate(self, run_id: str) -> bool:
        return False


@contextmanager
def code_server(folder: Path, source: str, environment: Mapping[str, str]) -> Iterator[Launch]:
    """A code server with the definitions of this source. Its runs have this environment."""
    folder.mkdir(parents=True)
    file = folder / "location.py"
    file.write_text(source)
    launcher = {"module": __name__, "class": "OtherHost", "config": {"environment": dict(environment)}}
    target = PythonFileTarget(str(file), attribute=None, working_directory=None, location_name="here")
    at_once = {"module": "dagster._core.run_coordinator", "class": "DefaultRunCoordinator"}
    overrides = {"run_launcher": launcher, "run_coordinator": at_once, "telemetry": {"enabled": False}}
    made = dg.DagsterInstance.local_temp(str(folder), overrides=overrides)
    with made as instance, WorkspaceProcessContext(instance, target) as process:
        context = process.create_request_context()

        def launch(job: str, config: Mapping[str, Any] | None = None, partition: str | None = None, **selection: Any) -> Ended:
            selector = {"repositoryLocationName": "here", "repositoryName": "__repository__", "jobName": job, **selection}
            tags = [{"key": "dagster/partition", "value": partition}] if partition else []
            variables = {"selector": selector, "config": config or {}, "tags": tags}
            launched = execute_dagster_graphql(context, _LAUNCH, variables).data["launchPipelineExecution"]
            assert launched["__typename"] == "LaunchRunSuccess", launched
            run = instance.get_run_by_id(launched["run"]["runId"])
            assert run is not None
            return Ended(run, instance.all_logs(run.run_id))

        yield launch
