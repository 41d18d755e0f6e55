"""What a file of containers may say, and how an optimizer is started by what it says."""

from __future__ import annotations

from dataclasses import replace

import pytest

from compaction_pipeline.core.errors import ConfigError
from compaction_pipeline.core.queue.container import (
    BY_HAND,
    Container,
    ContainerKind,
    bounds_of,
    check_group_keys,
    containers_of,
    memory_of,
    optimizer_arguments,
    settings_digest,
    spark_properties,
)
from compaction_pipeline.core.queue.group import CompactionQueue, ResourceGroup

CLUSTER = Container("cluster", ContainerKind.SPARK, {"master": "spark://m:7077", "spark.executor.memory": "2g", "env.A": "b"})
WORKERS = Container("workers", ContainerKind.LOCAL, {})
HEAVY = ResourceGroup("heavy", "cluster", {"instances": "2", "parallelism": "4"})


def test_a_file_describes_containers() -> None:
    read: dict[str, dict[str, object]] = {
        "workers": {"kind": "local", "env.COMPACTION_MERGE_ENGINE": "in-process"},
        "cluster": {"kind": "spark", "master": "spark://m:7077", "spark.executor.memory": "2g", "env.A": "b"},
        "ours": {"kind": "spark", "master": "yarn", "deploy-mode": "cluster", "token-file": "/t", "spark.dynamicAllocation.enabled": False},
        "pods": {"kind": "external", "server": "https://compaction:8787"},
    }
    found = containers_of(read, "the file")
    assert found["cluster"] == CLUSTER
    assert found["workers"].environment == {"COMPACTION_MERGE_ENGINE": "in-process"}
    assert found["ours"].properties["spark.dynamicAllocation.enabled"] == "false"
    assert [found["ours"].runs_driver_elsewhere, found["cluster"].runs_driver_elsewhere] == [True, False]
    # Files of the release before call it a container of Spark.
    assert found["ours"] == containers_of({"ours": {**read["ours"], "kind": "yarn"}}, "F")["ours"]
    assert found["ours"].kind is ContainerKind.YARN
    assert found["external"] == BY_HAND
    assert containers_of(None, "an empty file") == {"external": BY_HAND}


@pytest.mark.parametrize(
    ("read", "says"),
    [
        ([], "must hold names of containers"),
        ({"a b": {"kind": "local"}}, "'a b', but a name must have"),
        ({7: {"kind": "local"}}, "'7', but a name must have"),
        ({"a": "local"}, "must have keys below its name"),
        ({"a": {}}, "'kind' of container 'a' in F is None but must be one of local, spark, yarn, kubernetes, external"),
        ({"a": {"kind": "flink"}}, "is 'flink' but must be one of"),
        ({"a": {"kind": "local", "master": "yarn"}}, "has the key 'master', but a container of kind local has only"),
        ({"a": {"kind": "local", "spark.x": "1"}}, "has the key 'spark.x'"),
        ({"a": {"kind": "external", "env.A": "1"}}, "has the key 'env.A'"),
        ({"a": {"kind": "spark"}}, "lacks 'master'"),
        ({"a": {"kind": "spark", "master": "yarn", "deploy-mode": "far"}}, "'deploy-mode' of container 'a' in F is 'far'"),
        ({"a": {"kind": "spark", "master": "yarn", "deploy-mode": "cluster"}}, "lacks 'token-file'"),
        ({"a": {"kind": "yarn", "master": "spark://m:7077"}}, "but its kind has the master yarn; leave 'master' out"),
        ({"a": {"kind": "local", "max-memory": "much"}}, "'max-memory' of container 'a' in F is 'much' but must be a size such as 8g"),
        ({"a": {"kind": "local", "max-cores": "0"}}, "'max-cores' of container 'a' in F is '0' but must be a whole number from 1"),
        ({"a": {"kind": "spark", "master": "k8s://x", "max-cores": "1"}}, "has the key 'max-cores'"),
        ({"external": {"kind": "local"}}, "must have the kind external"),
    ],
)
def test_a_mistake_in_the_file_is_a_clear_error(read: object, says: str) -> None:
    with pytest.raises(ConfigError) as error:
        containers_of(read, "F")
    assert says in str(error.value)


def test_a_group_may_have_only_properties_that_its_container_understands() -> None:
    check_group_keys(CLUSTER, replace(HEAVY, properties={**HEAVY.properties, "spark.executor.memory": "4g", "memory": "1"}))
    check_group_keys(WORKERS, HEAVY)
    for container, key in ((WORKERS, "spark.executor.memory"), (CLUSTER, "paralelism"), (CLUSTER, "env.A")):
        with pytest.raises(ConfigError, match=f"has the property '{key}'"):
            check_group_keys(container, replace(HEAVY, properties={key: "1"}))


def test_an_optimizer_on_a_cluster_takes_as_many_cores_as_it_merges_tasks() -> None:
    properties = spark_properties(CLUSTER, HEAVY)
    assert properties == {
        "spark.executor.cores": "1",
        "spark.cores.max": "4",
        "spark.executor.instances": "4",
        "spark.executor.memory": "2g",
    }
    group = replace(HEAVY, properties={"spark.executor.memory": "3g", "spark.executor.cores": "2"})
    assert spark_properties(CLUSTER, group)["spark.executor.memory"] == "3g"
    assert spark_properties(CLUSTER, group)["spark.executor.cores"] == "2"
    assert spark_properties(WORKERS, HEAVY) == {}


def test_the_memory_of_an_optimizer_is_its_drivers_and_that_of_its_executors() -> None:
    mib = 2**20
    # A tenth of each heap is asked for beside it, and 384 MiB at least.
    assert memory_of(CLUSTER, HEAVY) == (1024 + 384) * mib + 4 * (2048 + 384) * mib
    group = replace(HEAVY, properties={"spark.driver.memory": "8g", "spark.executor.memory": "1024"})
    assert memory_of(CLUSTER, group) == int(1.1 * 8 * 1024 * mib) + (1024 + 384) * mib
    assert memory_of(CLUSTER, replace(HEAVY, properties={"memory": "77"})) == 77
    assert memory_of(WORKERS, HEAVY) == 0


def test_only_what_an_optimizer_is_started_with_counts_as_its_settings() -> None:
    digest = settings_digest(CLUSTER, HEAVY)
    assert len(digest) == 16
    bounded = replace(WORKERS, properties={"max-memory": "8g", "max-cores": "4"})
    assert settings_digest(bounded, HEAVY) == settings_digest(WORKERS, HEAVY)
    assert (bounds_of(bounded), bounds_of(WORKERS)) == ((8 * 2**30, 4), (None, None))
    assert bounds_of(replace(WORKERS, properties={"max-memory": "1000"})) == (1000, None)
    same = replace(HEAVY, properties={"parallelism": "4", "instances": "9", "min-instances": "1"}, queue=CompactionQueue(5))
    assert settings_digest(CLUSTER, same) == digest
    for container, group in (
        (CLUSTER, replace(HEAVY, properties={"parallelism": "5"})),
        (CLUSTER, replace(HEAVY, properties={"parallelism": "4", "memory": "1"})),
        (CLUSTER, replace(HEAVY, properties={"parallelism": "4", "spark.a": "1"})),
        (replace(CLUSTER, name="other"), HEAVY),
        (replace(CLUSTER, properties={"master": "yarn"}), HEAVY),
    ):
        assert settings_digest(container, group) != digest


def test_the_command_names_files_and_no_secret() -> None:
    assert optimizer_arguments(CLUSTER, HEAVY, "http://here:1", "/home/t", "heavy-1") == (
        *("optimizer", "--server", "http://here:1", "--group", "heavy", "--parallelism", "4", "--memory", str(11_136 * 2**20)),
        *("--resource-id", "heavy-1", "--token-file", "/home/t", "--master", "spark://m:7077"),
    )
    own = Container("w", ContainerKind.LOCAL, {"server": "https://there", "token-file": "/own", "ca-file": "/ca.pem"})
    assert optimizer_arguments(own, ResourceGroup("light"), "http://here:1", "/home/t") == (
        *("optimizer", "--server", "https://there", "--group", "light", "--token-file", "/own", "--ca-file", "/ca.pem"),
    )
