"""How an optimizer is submitted to YARN. `scenarios/test_yarn.py` asks a real YARN."""

from __future__ import annotations

from pathlib import Path

import pytest

from compaction_pipeline.containers.kind import Start
from compaction_pipeline.containers.processes import OptimizerProcesses
from compaction_pipeline.containers.yarn import Yarn
from compaction_pipeline.core.queue.container import Container, ContainerKind
from compaction_pipeline.core.queue.container_answers import Unknown
from compaction_pipeline.core.queue.group import ResourceGroup

GROUP = ResourceGroup("heavy", "far", {"parallelism": "2"})


def yarn(folder: Path) -> Yarn:
    return Yarn(OptimizerProcesses(folder), dict, lambda: "/java")


@pytest.mark.parametrize("mode", ["client", "cluster"])
def test_an_application_has_its_resource_id_as_a_tag_and_one_attempt(tmp_path: Path, mode: str) -> None:
    container = Container("far", ContainerKind.YARN, {"master": "yarn", "deploy-mode": mode, "spark.executor.memory": "2g"})
    properties = dict(yarn(tmp_path).properties(Start(container, GROUP, "heavy-1", ())))
    # Nobody waits here for the end of a driver that runs elsewhere.
    assert properties.pop("spark.yarn.submit.waitAppCompletion", "true") == ("false" if mode == "cluster" else "true")
    assert properties == {
        "spark.cores.max": "2",
        "spark.executor.cores": "1",
        "spark.executor.instances": "2",
        "spark.executor.memory": "2g",
        "spark.yarn.maxAppAttempts": "1",
        "spark.yarn.tags": "compaction-pipeline,heavy-1",
    }


def test_what_people_say_stays_unless_it_would_make_a_second_driver(tmp_path: Path) -> None:
    said = {"spark.yarn.tags": "etl,night", "spark.yarn.maxAppAttempts": "3", "spark.yarn.submit.waitAppCompletion": "true"}
    container = Container("far", ContainerKind.YARN, {"master": "yarn", "deploy-mode": "cluster", **said})
    properties = yarn(tmp_path).properties(Start(container, GROUP, "heavy-1", ()))
    assert properties["spark.yarn.tags"] == "etl,night,compaction-pipeline,heavy-1"
    assert (properties["spark.yarn.maxAppAttempts"], properties["spark.yarn.submit.waitAppCompletion"]) == ("1", "true")


def test_without_hadoops_configuration_nothing_is_known(tmp_path: Path) -> None:
    container = Container("far", ContainerKind.YARN, {"master": "yarn"})
    found = yarn(tmp_path)
    for answer in (found.running(container), found.stop(container, "heavy-1")):
        assert isinstance(answer, Unknown)
        assert "neither HADOOP_CONF_DIR nor YARN_CONF_DIR is set" in answer.why
        assert "'env.HADOOP_CONF_DIR' of container far" in answer.why
    missing = Container("far", ContainerKind.YARN, {"master": "yarn", "env.HADOOP_CONF_DIR": str(tmp_path)})
    answer = found.running(missing)
    assert isinstance(answer, Unknown)
    assert answer.why.startswith(f"YARN, configured in {tmp_path}: /java/bin/java cannot be started: ")
