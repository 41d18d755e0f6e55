"""Asks YARN by tag which optimizers run, ends them, and tells how they ended, because only YARN knows what became of an application.

The resource id is a tag of the application, so no id has to be known: there is none while spark-submit is still at work. Hadoop's own
client, which PySpark contains, asks. So the server reads the same configuration, uses the same login and follows the same standby
ResourceManagers as spark-submit does. Each question starts a JVM for about two seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from compaction_pipeline.containers.host_processes import Environment, Submitted
from compaction_pipeline.containers.java_program import JavaFailed, java_program
from compaction_pipeline.containers.kind import Start
from compaction_pipeline.containers.processes import OptimizerProcesses
from compaction_pipeline.containers.spark_submit import spark_home
from compaction_pipeline.core.errors import ConfigError
from compaction_pipeline.core.insight.masking import masked_text
from compaction_pipeline.core.queue.container import Container, spark_properties
from compaction_pipeline.core.queue.container_answers import Room, Running, Unknown
from compaction_pipeline.core.queue.group import ResourceGroup

ASKS_FOR_SECONDS = 30.0
"""So long does YARN have for an answer."""
TAGS, _QUEUE, _WAIT = "spark.yarn.tags", "spark.yarn.queue", "spark.yarn.submit.waitAppCompletion"
TAG = "compaction-pipeline"
"""All optimizers have this tag beside their own, so that YARN lists them and no other application."""
_OVER = frozenset({"FINISHED", "FAILED", "KILLED"})
_JVM = ("-Xmx192m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_IMPATIENT = {
    # Hadoop's client tries for a quarter of an hour. The next round asks again.
    "yarn.resourcemanager.connect.max-wait.ms": "3000",
    "yarn.resourcemanager.connect.retry-interval.ms": "1000",
    "ipc.client.connect.max.retries": "0",
    "ipc.client.connect.max.retries.on.timeouts": "0",
    "ipc.client.connect.timeout": "5000",
}
_ADDRESS = "yarn.resourcemanager.address"
_LONGEST_WORDS = 300


@dataclass(frozen=True, slots=True)
class _Application:
    """An application of YARN's list. `java_id` is its id as an object of Java. YARN writes `tags` in small letters."""

    java_id: Any
    tags: frozenset[str]
    state: str
    result: str
    diagnostics: str

    @property
    def is_over(self) -> bool:
        return self.state in _OVER


class Yarn(Submitted):
    """Applications of YARN, in client or in cluster mode. In client mode the driver is a process of the host that started it."""

    def __init__(
        self,
        processes: OptimizerProcesses,
        environment: Environment,
        java_home: Callable[[], str],
        asks_for_seconds: float = ASKS_FOR_SECONDS,
    ) -> None:
        super().__init__(processes, environment, java_home)
        self._asks_for = asks_for_seconds

    def properties(self, start: Start) -> Mapping[str, str]:
        given = super().properties(start)
        # In cluster mode a process of spark-submit that only waits would hold memory of this host. YARN tells as much.
        wait = {_WAIT: "false"} if start.container.runs_driver_elsewhere else {}
        tags = ",".join(part for part in (given.get(TAGS), TAG, start.resource_id) if part)
        # A second attempt of YARN's would be a second driver with the same resource id.
        return {**wait, **given, TAGS: tags, "spark.yarn.maxAppAttempts": "1"}

    def running(self, container: Container) -> Running | Unknown:
        # An application that is being submitted is a process of spark-submit, and YARN does not know it yet. So the processes come first.
        here = self.processes.running()
        try:
            with self._client(container) as (jvm, client):
                found = _applications(jvm, client, TAG)
        except (JavaFailed, ConfigError) as error:
            return Unknown(_unknown(error))
        alive = frozenset().union(here, *(each.tags for each in found if not each.is_over))
        return Running(alive, frozenset().union(*(each.tags for each in found if each.is_over)) - alive)

    def last_words(self, container: Container, resource_id: str) -> str:
        try:
            with self._client(container) as (jvm, client):
                over = [each for each in _applications(jvm, client, resource_id) if each.is_over]
                words = [f"{each.java_id.toString()} ended as {each.result} of YARN: {each.diagnostics}" for each in over]
        except (JavaFailed, ConfigError):
            words = []
        return words[-1] if words else super().last_words(container, resource_id)

    def stop(self, container: Container, resource_id: str) -> Unknown | None:
        try:
            with self._client(container) as (jvm, client):
                _kill(jvm, client, resource_id)
                # What spark-submit submits until it is ended here is found by the second look.
                self.processes.stop(resource_id)
                _kill(jvm, client, resource_id)
        except (JavaFailed, ConfigError) as error:
            return Unknown(_unknown(error))
        return None

    def free(self, container: Container, group: ResourceGroup) -> Room | Unknown:
        """The memory that YARN still has for the group's queue. Cores are not told, because YARN counts none unless it is told to."""
        try:
            with self._client(container) as (_, client):
                queue = client.getQueueInfo(spark_properties(container, group).get(_QUEUE, "default"))
                statistics = None if queue is None else queue.getQueueStatistics()
                # The fair scheduler tells no figures. Then YARN itself lets applications wait.
                return Room() if statistics is None else Room(memory=statistics.getAvailableMemoryMB() * 2**20)
        except (JavaFailed, ConfigError) as error:
            return Unknown(_unknown(error))

    @contextmanager
    def _client(self, container: Container) -> Iterator[tuple[Any, Any]]:
        """A JVM, and Hadoop's client of YARN in it, with the configuration that spark-submit would use."""
        environment = self.environment(container)
        folders = [environment[name] for name in ("HADOOP_CONF_DIR", "YARN_CONF_DIR") if environment.get(name)]
        if not folders:
            raise ConfigError(
                f"neither HADOOP_CONF_DIR nor YARN_CONF_DIR is set, so YARN's address is not known: set it for the server, or as "
                f"'env.HADOOP_CONF_DIR' of container {container.name}"
            )
        classpath = [*folders, str(spark_home() / "jars" / "*")]
        java = Path(environment["JAVA_HOME"]) / "bin" / "java"
        asked = f"YARN, configured in {' and '.join(folders)}"
        try:
            with java_program(java, classpath, _JVM, environment, self._asks_for) as jvm:
                configuration = jvm.org.apache.hadoop.yarn.conf.YarnConfiguration()
                for key, value in _IMPATIENT.items():
                    configuration.set(key, value)
                asked = f"YARN at {configuration.get(_ADDRESS)}, configured in {' and '.join(folders)}"
                client = jvm.org.apache.hadoop.yarn.client.api.YarnClient.createYarnClient()
                client.init(configuration)
                client.start()
                yield jvm, client
        except JavaFailed as error:
            raise JavaFailed(f"{asked}: {error}") from error


def _applications(jvm: Any, client: Any, tag: str) -> list[_Application]:
    """The applications that have a tag, the oldest first."""
    request = jvm.org.apache.hadoop.yarn.api.protocolrecords.GetApplicationsRequest.newInstance()
    request.setApplicationTags({tag.lower()})
    reports = sorted(client.getApplications(request), key=lambda report: (report.getStartTime(), report.getApplicationId().getId()))
    return [
        _Application(
            report.getApplicationId(),
            frozenset(report.getApplicationTags()) - {TAG},
            report.getYarnApplicationState().toString(),
            report.getFinalApplicationStatus().toString(),
            _line(report.getDiagnostics() or ""),
        )
        for report in reports
    ]


def _kill(jvm: Any, client: Any, resource_id: str) -> None:
    for each in _applications(jvm, client, resource_id):
        if not each.is_over:
            client.killApplication(each.java_id)


def _line(diagnostics: str) -> str:
    lines = [line.strip() for line in diagnostics.splitlines() if line.strip()]
    return masked_text(" ".join(lines[:3]))[:_LONGEST_WORDS] or "it gives no reason"


def _unknown(error: Exception) -> str:
    return masked_text(str(error))[:_LONGEST_WORDS]
