"""Optimizers are applications of a real YARN, in client and in cluster mode: YARN says which run, ends them, and says how they ended."""

from __future__ import annotations

import logging
import os
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
import yaml

from compaction_pipeline.containers.java_program import JavaFailed, java_program
from compaction_pipeline.containers.processes import OptimizerProcesses
from compaction_pipeline.containers.yarn import Yarn
from compaction_pipeline.core.capacity.scaling.action import Outcome
from compaction_pipeline.core.queue.container import Container, ContainerKind
from compaction_pipeline.core.queue.container_answers import Room, Running, Unknown
from compaction_pipeline.core.queue.optimizer import Optimizer, OptimizerState
from compaction_pipeline.ending.process_table import command_of
from compaction_pipeline.settings import Settings
from compaction_pipeline.spark.java import find_java
from compaction_pipeline_tests.iceberg.lake import Lake
from compaction_pipeline_tests.interop.peers import SPARK_JARS, java
from compaction_pipeline_tests.opened import OpenedServices
from compaction_pipeline_tests.ports import free_port
from compaction_pipeline_tests.real_services.yarn import YarnCluster, yarn_cluster
from compaction_pipeline_tests.scenarios.deployed import Processes, committed, small_table, wait_until, write

pytestmark = pytest.mark.scenario

WANTED = {"instances": "1", "min-instances": "1", "parallelism": "1"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[YarnCluster]:
    with yarn_cluster(tmp_path_factory.mktemp("yarn")) as started:
        yield started


def keys(home: Path, cluster: YarnCluster, mode: str) -> dict[str, str]:
    """What a file of containers says of this YARN. Its NodeManagers run on this host."""
    own = {"JAVA_HOME": find_java(os.environ, home).path, "PYSPARK_PYTHON": sys.executable}
    driver = {**own, "COMPACTION_HOME": str(home), "COMPACTION_MERGE_ENGINE": "spark"}
    return {
        "deploy-mode": mode,
        "token-file": str(home / "optimizer.token"),
        "env.HADOOP_CONF_DIR": str(cluster.configuration),
        "env.SPARK_LOCAL_IP": "127.0.0.1",
        "spark.yarn.jars": f"local:{SPARK_JARS}/*",
        "spark.yarn.stagingDir": home.parent.as_uri(),
        "spark.driver.memory": "512m",
        "spark.executor.memory": "512m",
        **{f"spark.yarn.appMasterEnv.{name}": value for name, value in driver.items()},
        **{f"spark.executorEnv.{name}": value for name, value in own.items()},
    }


def yarn_of(folder: Path) -> Yarn:
    """A server on another host: its table of processes and its logs know nothing of optimizers."""
    return Yarn(
        OptimizerProcesses(folder / "nowhere", command_of=lambda pid: ""), lambda: os.environ, lambda: find_java(os.environ, folder).path
    )


# Each takes a minute of two cores. `make test-long` runs them.
@pytest.mark.long
@pytest.mark.parametrize(
    ("mode", "end"), [("cluster", "killed"), ("cluster", "drained"), ("cluster", "silent"), ("client", "killed"), ("client", "drained")]
)
def test_an_optimizer_runs_on_yarn_and_is_found_and_ended_by_its_tag(tmp_path: Path, cluster: YarnCluster, mode: str, end: str) -> None:
    processes = Processes(tmp_path / "home")
    services = OpenedServices(Settings(home=processes.home, merge_engine="in-process"))
    own, elsewhere = OptimizerProcesses(processes.home / "optimizers"), yarn_of(tmp_path)
    container = Container("hadoop", ContainerKind.YARN, {"master": "yarn", **keys(processes.home, cluster, mode)})
    file = tmp_path / "containers.yaml"
    file.write_text(yaml.safe_dump({"hadoop": {"kind": "yarn", **container.properties}}))
    try:
        table = small_table(Lake(tmp_path), services)
        truth: Counter[int] = Counter()
        group = replace(services.manage_groups.group("default"), container="hadoop", properties=WANTED)
        services.manage_groups.change(group)
        processes.serve(COMPACTION_CONTAINERS_FILE=str(file), COMPACTION_MAINTAINER_INTERVAL_SECONDS="10")
        wait_until(lambda: only(services).state is OptimizerState.RUNNING, "it registers")
        write(table, Random(3), truth, 14)
        wait_until(lambda: committed(services) > 0, "a commit")
        wait_until(lambda: services.read_tasks.queue_counts().open == 0, "an empty queue")
        wait_until(lambda: only(services).application != "", "a heartbeat tells its application")
        optimizer = only(services)
        tasks = services.stores.tasks.tasks()
        assert {attempt.owner for task in tasks for attempt in services.stores.tasks.attempts(task.task_id)} == {optimizer.optimizer_id}
        assert Counter(table.live_ids()) == truth

        # The id of its application stands beside it, and YARN knows the application by the resource id.
        application = cluster.applications()[-1]
        assert application.getApplicationId().toString() == optimizer.application
        assert set(application.getApplicationTags()) == {"compaction-pipeline", optimizer.resource_id}
        running = elsewhere.running(container)
        assert isinstance(running, Running)
        assert running.alive == {optimizer.resource_id}
        # In client mode the driver is a process of the server's host. In cluster mode spark-submit has ended.
        driver = [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if "SparkSubmit" in command_of(pid)]
        assert any(optimizer.resource_id in command_of(pid) for pid in driver) == (mode == "client")
        room = elsewhere.free(container, group)
        assert isinstance(room, Room)
        assert room.memory is not None
        assert 0 < room.memory < 2 * 4096 * 2**20

        if end == "silent":
            assert elsewhere.stop(container, optimizer.resource_id) is None
            wait_until(lambda: one(services, optimizer).state is OptimizerState.LOST, "it is lost")
            word = f"; its container says: {optimizer.application} ended as KILLED of YARN: "
            wait_until(lambda: word in one(services, optimizer).why, "YARN's word for its end")
            return
        services.manage_groups.change(replace(group, properties={}))
        if end == "killed":
            # Another host does it, whose table of processes and whose logs know nothing of the optimizer.
            assert elsewhere.stop(container, optimizer.resource_id) is None
        else:
            wait_until(lambda: one(services, optimizer).state is OptimizerState.ENDED, "it drains and ends")
        wait_until(application.isAppFinalStateStored, "YARN stores its end")
        result = "KILLED" if end == "killed" else "SUCCEEDED"
        assert application.getFinalApplicationStatus().toString() == result
        assert len(application.getAppAttempts()) == 1
        assert f"{optimizer.application} ended as {result} of YARN: " in elsewhere.last_words(container, optimizer.resource_id)
        ended = elsewhere.running(container)
        assert isinstance(ended, Running)
        assert optimizer.resource_id in ended.ended
        assert not ended.alive
    finally:
        processes.kill_all()
        for each in services.stores.optimizers.optimizers():
            own.stop(each.resource_id)
            elsewhere.stop(container, each.resource_id)
        services.close()


# It waits for five minutes until an optimizer counts as one that will never register.
@pytest.mark.long
@pytest.mark.timeout(1500)
def test_an_application_that_stays_accepted_is_ended_by_its_tag_and_the_group_keeps_what_works(tmp_path: Path) -> None:
    # There is room for a second driver, and yet YARN lets it wait.
    (tmp_path / "yarn").mkdir()
    with yarn_cluster(tmp_path / "yarn", for_drivers=0.3) as cluster:
        _stays_accepted(tmp_path, cluster)


def _stays_accepted(tmp_path: Path, cluster: YarnCluster) -> None:
    processes = Processes(tmp_path / "home")
    services = OpenedServices(Settings(home=processes.home, merge_engine="in-process"))
    own, elsewhere = OptimizerProcesses(processes.home / "optimizers"), yarn_of(tmp_path)
    large = {**keys(processes.home, cluster, "cluster"), "spark.driver.memory": "2g"}
    container = Container("hadoop", ContainerKind.YARN, {"master": "yarn", **large})
    file = tmp_path / "containers.yaml"
    file.write_text(yaml.safe_dump({"hadoop": {"kind": "yarn", **container.properties}}))
    policy = {"dynamic-allocation.enabled": "true", "dynamic-allocation.max-parallelism": "2", "parallelism": "1"}
    try:
        group = replace(
            services.manage_groups.group("default"), container="hadoop", properties={**WANTED, **policy, "min-parallelism": "1"}
        )
        services.manage_groups.change(group)
        processes.serve(COMPACTION_CONTAINERS_FILE=str(file), COMPACTION_MAINTAINER_INTERVAL_SECONDS="5")
        first = only(services)
        wait_until(lambda: one(services, first).first_polled_at is not None, "the first one asks for tasks", 300)
        services.manage_groups.change(replace(group, properties={**group.properties, "min-parallelism": "2"}))
        scaling = services.stores.scaling
        wait_until(lambda: len(services.stores.optimizers.optimizers()) == 2, "a second one is started", 180)
        [second] = [each for each in services.stores.optimizers.optimizers() if each.optimizer_id != first.optimizer_id]
        state = {}

        def accepted() -> bool:
            for each in cluster.applications():
                if second.resource_id in set(each.getApplicationTags()):
                    state["of second"] = each.getState().toString()
            return state.get("of second") == "ACCEPTED"

        wait_until(accepted, "YARN lets the second one wait", 120)
        wait_until(lambda: scaling.records("default", 1)[0].outcome is not None, "the action ends", 900)
        [record] = scaling.records("default", 1)
        assert record.action.after.instances == 2
        assert record.outcome in (Outcome.PARTIAL, Outcome.FAILED), record
        assert scaling.scales()["default"].target.instances == 1
        wait_until(lambda: not accepted() and state["of second"] == "KILLED", "YARN says that it was killed", 120)
        assert one(services, second).state is OptimizerState.LOST
        assert one(services, first).state is OptimizerState.RUNNING
        running = elsewhere.running(container)
        assert isinstance(running, Running)
        assert running.alive == {first.resource_id}
    finally:
        processes.kill_all()
        for each in services.stores.optimizers.optimizers():
            own.stop(each.resource_id)
            elsewhere.stop(container, each.resource_id)
        services.close()


def only(services: OpenedServices) -> Optimizer:
    """The only optimizer that was ever started, as it is now."""
    wait_until(lambda: len(services.stores.optimizers.optimizers()) == 1, "the optimizer is started")
    [optimizer] = services.stores.optimizers.optimizers()
    assert optimizer.state in (OptimizerState.STARTING, OptimizerState.RUNNING), optimizer.why
    return optimizer


def one(services: OpenedServices, optimizer: Optimizer) -> Optimizer:
    """An optimizer as it is now."""
    return next(each for each in services.stores.optimizers.optimizers() if each.optimizer_id == optimizer.optimizer_id)


def test_a_yarn_that_does_not_answer_is_unknown(tmp_path: Path) -> None:
    (tmp_path / "conf").mkdir()
    address = f"127.0.0.1:{free_port()}"
    (tmp_path / "conf" / "yarn-site.xml").write_text(
        f"<configuration><property><name>yarn.resourcemanager.address</name><value>{address}</value></property></configuration>"
    )
    yarn = yarn_of(tmp_path)
    away = Container("far", ContainerKind.YARN, {"master": "yarn", "env.HADOOP_CONF_DIR": str(tmp_path / "conf")})
    answer = yarn.running(away)
    assert isinstance(answer, Unknown)
    assert "Connection refused" in answer.why
    assert answer.why.startswith(f"YARN at {address}, configured in {tmp_path / 'conf'}: ")
    impatient = Yarn(yarn.processes, lambda: os.environ, lambda: find_java(os.environ, tmp_path).path, asks_for_seconds=1.5)
    for late in (impatient.running(away), impatient.stop(away, "r")):
        assert isinstance(late, Unknown)
        assert "within 1.5 s" in late.why


def test_a_jvm_that_ends_in_the_middle_of_a_call_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with pytest.raises(JavaFailed, match="py4j failed: "), java_program(java(), [f"{SPARK_JARS}/*"], [], os.environ, 60) as jvm:
        jvm.java.lang.Runtime.getRuntime().halt(1)
    # Python's root logger would give this process a second handler, which repeats each line of its log.
    assert [record.getMessage() for record in caplog.records if record.name == "root"] == []
