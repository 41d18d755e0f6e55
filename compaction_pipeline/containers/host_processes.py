"""Starts optimizers as processes of this host, or as applications that a process of this host submits; only this host knows of them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping

from compaction_pipeline.containers.kind import Start
from compaction_pipeline.containers.processes import OptimizerProcesses
from compaction_pipeline.containers.spark_submit import submit_command
from compaction_pipeline.core.errors import ConfigError, StorageUnavailable
from compaction_pipeline.core.queue.container import Container, spark_properties
from compaction_pipeline.core.queue.container_answers import Room, Running, Unknown
from compaction_pipeline.core.queue.group import ResourceGroup

Environment = Callable[[], Mapping[str, str]]
"""The environment that an optimizer gets, without the variables of its container."""


class OnHost:
    """What the process table of this host tells."""

    def __init__(self, processes: OptimizerProcesses) -> None:
        self.processes = processes

    def running(self, container: Container) -> Running | Unknown:
        return Running(self.processes.running())

    def last_words(self, container: Container, resource_id: str) -> str:
        return self.processes.last_words(resource_id)

    def stop(self, container: Container, resource_id: str) -> Unknown | None:
        self.processes.stop(resource_id)
        return None

    def free(self, container: Container, group: ResourceGroup) -> Room | Unknown:
        return Room()


class Local(OnHost):
    """Processes of this host."""

    def __init__(self, processes: OptimizerProcesses, environment: Environment) -> None:
        super().__init__(processes)
        self._environment = environment

    def start(self, start: Start) -> None:
        command = [sys.executable, "-c", "from compaction_pipeline.cli.main import run; run()", *start.arguments]
        self.processes.start(start.resource_id, command, {**self._environment(), **start.container.environment})


class Submitted(OnHost):
    """Applications of Spark. A process of spark-submit stays on this host for as long as its application runs."""

    def __init__(self, processes: OptimizerProcesses, environment: Environment, java_home: Callable[[], str]) -> None:
        super().__init__(processes)
        self._environment = environment
        self._java_home = java_home

    def start(self, start: Start) -> None:
        try:
            self.processes.make_folder()
            command = submit_command(start.container, start.resource_id, start.arguments, self.properties(start), self.processes.folder)
        except OSError as error:
            raise StorageUnavailable(f"optimizer {start.resource_id} cannot be submitted: {error}") from error
        self.processes.start(start.resource_id, command, self.environment(start.container))

    def properties(self, start: Start) -> Mapping[str, str]:
        """The properties of Spark of an optimizer."""
        return spark_properties(start.container, start.group)

    def environment(self, container: Container) -> Mapping[str, str]:
        """The environment of a program of Spark on this host."""
        own = dict(self._environment())
        own.pop("COMPACTION_SPARK_REMOTE", None)
        own |= {
            "COMPACTION_MERGE_ENGINE": "spark",
            "JAVA_HOME": self._java_home(),
            "PYSPARK_PYTHON": own.get("PYSPARK_PYTHON", sys.executable),
            "PYSPARK_DRIVER_PYTHON": sys.executable,
        }
        return {**own, **container.environment}


class External(OnHost):
    """Nothing: people start these optimizers."""

    def start(self, start: Start) -> None:
        raise ConfigError(f"container {start.container.name} starts nothing: people start its optimizers")
