"""Optimizers merge on a standalone cluster of Spark, in client mode: a master, a worker and executors of their own."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from random import Random

import pyspark
import pytest

from compaction_pipeline.containers.processes import OptimizerProcesses
from compaction_pipeline.core.queue.optimizer import Optimizer, OptimizerState
from compaction_pipeline.merging.engine import InProcessMergeEngine
from compaction_pipeline.settings import Settings
from compaction_pipeline.spark.java import find_java
from compaction_pipeline_tests.iceberg.lake import Lake
from compaction_pipeline_tests.merging.files import Table
from compaction_pipeline_tests.opened import OpenedServices
from compaction_pipeline_tests.planted import found_in_files
from compaction_pipeline_tests.scenarios.deployed import Processes, committed, small_table, wait_until, write
from compaction_pipeline_tests.spark.endless_io import endless_io
from compaction_pipeline_tests.spark.given import SECRETS, seen

pytestmark = pytest.mark.scenario

_ALL_DEBUG = """
rootLogger.level = debug
rootLogger.appenderRef.all.ref = all
appender.all.type = Console
appender.all.name = all
appender.all.target = SYSTEM_ERR
appender.all.layout.type = PatternLayout
appender.all.layout.pattern = %d %p %c{1}: %m%n%ex
"""
"""The configuration of a log that tells all that Spark, Netty and Hadoop have to say on the level DEBUG, with the stacks of errors."""
_SPARK_CLASS = str(Path(pyspark.__file__).parent / "bin" / "spark-class")


@contextmanager
def daemon(log: Path, name: str, *arguments: str) -> Iterator[None]:
    """A daemon of a standalone cluster. What it starts belongs to its group of processes, and all of them are killed at the end."""
    environment = {
        **os.environ,
        "JAVA_HOME": find_java(os.environ, log.parent).path,
        "SPARK_LOCAL_IP": "127.0.0.1",
        # It lives for one test.
        "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }
    with log.open("wb") as output:
        process = subprocess.Popen(
            [_SPARK_CLASS, f"org.apache.spark.deploy.{name}", "--host", "127.0.0.1", "--port", "0", "--webui-port", "0", *arguments],
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[str]:
    """The address of a master with one worker of two cores."""
    log = tmp_path / "master.log"
    with daemon(log, "master.Master"):
        wait_until(lambda: bool(_address(log)), "the master listens")
        address = _address(log)
        options = ("--cores", "2", "--memory", "2g", "--work-dir", str(tmp_path / "work"), address)
        with daemon(tmp_path / "worker.log", "worker.Worker", *options):
            wait_until(lambda: "Registering worker" in log.read_text(), "the worker registers")
            yield address


def _address(log: Path) -> str:
    found = re.search(r"Starting Spark master at (spark://\S+)", log.read_text())
    return found[1] if found else ""


def test_an_optimizer_merges_on_a_standalone_cluster(tmp_path: Path, cluster: str) -> None:
    processes = Processes(tmp_path / "home")
    services = OpenedServices(Settings(home=processes.home, merge_engine="in-process"))
    try:
        table = small_table(Lake(tmp_path), services)
        truth: Counter[int] = Counter()
        processes.serve()
        settings = {"COMPACTION_MERGE_ENGINE": "spark", "SPARK_LOCAL_IP": "127.0.0.1"}
        optimizer = processes.optimizer("--master", cluster, "--parallelism", "2", "--resource-id", "pod-7", **settings)
        for number in range(2):
            write(table, Random(number), truth, 14)
            wait_until(lambda number=number: committed(services) > number, "a commit")  # type: ignore[misc]
        wait_until(lambda: services.read_tasks.queue_counts().open == 0, "an empty queue")
        assert Counter(table.live_ids()) == truth
        owners = {attempt.owner for task in services.stores.tasks.tasks() for attempt in services.stores.tasks.attempts(task.task_id)}
        assert owners == set(processes.live())
        # The executors are processes of the worker, and each merge was a task of theirs.
        assert list((tmp_path / "work").glob("app-*/*/stderr"))
        assert "Registered app compaction-pipeline pod-7 with ID" in (tmp_path / "master.log").read_text()
        processes.end(optimizer)
    finally:
        processes.kill_all()
        services.close()


def test_merges_run_on_the_session_that_a_project_started_on_the_cluster(tmp_path: Path, cluster: str) -> None:
    table = Table(tmp_path / "table")
    for start in (0, 5):
        table.append([{"id": start + index, "name": "x"} for index in range(5)])
    task, layout = table.task(), table.layout()
    [here] = InProcessMergeEngine().merge([task.merge_input(layout)], {})
    began = tmp_path / "began"
    config = {"spark.master": cluster, "spark.app.name": "a team's", "spark.ui.enabled": "false", "spark.executor.memory": "512m"}
    log = tmp_path / "log4j2.properties"
    log.write_text(_ALL_DEBUG)
    config |= {f"spark.{role}.extraJavaOptions": f"-Dlog4j2.configurationFile={log}" for role in ("driver", "executor")}
    (tmp_path / "events").mkdir()
    config |= {"spark.eventLog.enabled": "true", "spark.eventLog.dir": (tmp_path / "events").as_uri(), "spark.eventLog.compress": "false"}
    found = seen(config, task, layout, tmp_path, endless_io(tmp_path, began), began)
    assert (found["error"], found["rows"], found["digest"]) == (None, here.rows_written, str(here.digest_written))
    assert (found["canceled"], found["slots"], found["alive"]) == ("the merge was canceled", 2, True)
    application = found["application"].removeprefix("application ")
    assert f"Registered app a team's with ID {application}" in (tmp_path / "master.log").read_text()
    # The executors import the package from the zip file that was sent.
    assert list((tmp_path / "work" / application).glob("*/compaction_pipeline.zip"))
    # Their logs and the event log tell much of these merges, and no secret, also on the level DEBUG.
    logs = [path.read_text() for path in (tmp_path / "work" / application).glob("*/stderr")]
    assert sum(each.count("INFO Executor: Running task") for each in logs) >= 2
    assert sum(each.count(" DEBUG ") for each in logs) > 100
    assert any("MapInArrow" in path.read_text() for path in (tmp_path / "events").rglob("*") if path.is_file() and path.suffix != ".crc")
    assert found_in_files(tmp_path, SECRETS) == {}


def test_a_container_submits_an_optimizer_to_the_cluster(tmp_path: Path, cluster: str) -> None:
    file = tmp_path / "containers.yaml"
    file.write_text(f"cluster:\n  kind: spark\n  master: {cluster}\n  env.SPARK_LOCAL_IP: 127.0.0.1\n  spark.executor.memory: 600m\n")
    processes = Processes(tmp_path / "home")
    services = OpenedServices(Settings(home=processes.home, merge_engine="in-process"))
    submitted = OptimizerProcesses(processes.home / "optimizers")
    try:
        table = small_table(Lake(tmp_path), services)
        truth: Counter[int] = Counter()
        group = services.manage_groups.group("default")
        wanted = {"instances": "1", "min-instances": "1", "parallelism": "2"}
        services.manage_groups.change(replace(group, container="cluster", properties={**wanted, "spark.executor.memory": "512m"}))
        processes.serve(COMPACTION_CONTAINERS_FILE=str(file), COMPACTION_MAINTAINER_INTERVAL_SECONDS="1")
        wait_until(lambda: only(services).state is OptimizerState.RUNNING, "the optimizer registers")
        write(table, Random(3), truth, 14)
        wait_until(lambda: committed(services) > 0, "a commit")
        optimizer = only(services)
        tasks = services.stores.tasks.tasks()
        assert {attempt.owner for task in tasks for attempt in services.stores.tasks.attempts(task.task_id)} == {optimizer.optimizer_id}
        # The driver and two executors, each with the 384 MiB that Spark asks for beside a small heap.
        reserve = (1024 + 384 + 2 * (512 + 384)) * 2**20
        assert (optimizer.container, optimizer.parallelism, optimizer.memory_bytes) == ("cluster", 2, reserve)
        assert f"Registered app compaction-pipeline {optimizer.resource_id} with ID" in (tmp_path / "master.log").read_text()
        # Each executor has the one core and the memory that the group asks for.
        executors = [path.parent for path in (tmp_path / "work").glob("app-*/*/stderr")]
        assert len(executors) == 2
        assert '"-Xmx512M"' in (executors[0] / "stderr").read_text()

        services.manage_groups.change(replace(group, container="cluster"))
        wait_until(lambda: only(services).state is OptimizerState.ENDED, "the optimizer drains and ends")
        wait_until(lambda: optimizer.resource_id not in submitted.running(), "its processes end")
        wait_until(lambda: services.read_tasks.queue_counts().open == 0, "an empty queue")
        assert Counter(table.live_ids()) == truth
    finally:
        processes.kill_all()
        for each in services.stores.optimizers.optimizers():
            submitted.stop(each.resource_id)
        services.close()


def only(services: OpenedServices) -> Optimizer:
    """The only optimizer that was ever started, as it is now."""
    wait_until(lambda: len(services.stores.optimizers.optimizers()) == 1, "the optimizer is started")
    [optimizer] = services.stores.optimizers.optimizers()
    return optimizer
