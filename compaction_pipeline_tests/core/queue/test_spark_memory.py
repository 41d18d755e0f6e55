"""What a Spark application gets of a cluster, as Spark's own documentation counts it."""

from __future__ import annotations

import pytest

from compaction_pipeline.core.queue.spark_memory import MIB, application_memory, spark_bytes

SMALL = {"spark.driver.memory": "1g", "spark.executor.memory": "1g"}
OF_DRIVER = (1024 + 384) * MIB


@pytest.mark.parametrize(
    ("properties", "master", "of_driver", "of_executors"),
    [
        ({}, "yarn", OF_DRIVER, 2 * (1024 + 384) * MIB),
        ({"spark.executor.memoryOverhead": "2g"}, "yarn", OF_DRIVER, 2 * (1024 + 2048) * MIB),
        ({"spark.driver.memoryOverhead": "1"}, "yarn", (1024 + 1) * MIB, 2 * (1024 + 384) * MIB),
        ({"spark.executor.memoryOverheadFactor": "0.5"}, "yarn", OF_DRIVER, 2 * (1024 + 512) * MIB),
        ({"spark.executor.memoryOverheadFactor": "much"}, "yarn", OF_DRIVER, 2 * (1024 + 384) * MIB),
        ({"spark.executor.minMemoryOverhead": "1g"}, "yarn", OF_DRIVER, 2 * (1024 + 1024) * MIB),
        ({"spark.executor.pyspark.memory": "3g"}, "yarn", OF_DRIVER, 2 * (1024 + 384 + 3072) * MIB),
        ({"spark.executor.memory": "10g"}, "k8s://https://host", int(1.4 * 1024) * MIB, 2 * int(1.4 * 10 * 2**30)),
        ({"spark.memory.offHeap.enabled": "true", "spark.memory.offHeap.size": "2g"}, "yarn", OF_DRIVER, 2 * (1024 + 384 + 2048) * MIB),
        ({"spark.memory.offHeap.enabled": "true", "spark.memory.offHeap.size": str(MIB)}, "yarn", OF_DRIVER, 2 * (1024 + 384 + 1) * MIB),
        ({"spark.memory.offHeap.size": "2g"}, "yarn", OF_DRIVER, 2 * (1024 + 384) * MIB),
        ({"spark.kubernetes.memoryOverheadFactor": "0.8"}, "k8s://host", int(1.8 * 1024) * MIB, 2 * int(1.8 * 2**30)),
        ({"spark.kubernetes.memoryOverheadFactor": "0.8"}, "yarn", OF_DRIVER, 2 * (1024 + 384) * MIB),
        ({"spark.executor.instances": "5"}, "yarn", OF_DRIVER, 5 * (1024 + 384) * MIB),
        ({"spark.executor.instances": "five"}, "yarn", OF_DRIVER, 2 * (1024 + 384) * MIB),
        ({"spark.dynamicAllocation.enabled": "true"}, "yarn", OF_DRIVER, 2 * (1024 + 384) * MIB),
        (
            {"spark.dynamicAllocation.enabled": "True", "spark.dynamicAllocation.maxExecutors": "9", "spark.executor.instances": "1"},
            "yarn",
            OF_DRIVER,
            9 * (1024 + 384) * MIB,
        ),
    ],
)
def test_each_heap_has_its_overhead_and_executors_count_as_often_as_they_may_be_there(
    properties: dict[str, str], master: str, of_driver: int, of_executors: int
) -> None:
    found = application_memory({**SMALL, **properties}, 2, master)
    # The factor of Kubernetes is not a whole number of bytes.
    assert abs(found - of_driver - of_executors) < MIB


@pytest.mark.parametrize(
    ("text", "size"),
    [("512m", 512 * MIB), ("512", 512 * MIB), (" 2 GB ", 2**31), ("1t", 2**40), ("", 0), ("-1g", 0), ("1.5g", 0), ("9" * 5000, 0)],
)
def test_a_size_is_read_as_spark_writes_it(text: str, size: int) -> None:
    assert spark_bytes(text) == size
