"""A real YARN in one Java process: Hadoop's MiniYARNCluster with a ResourceManager and two NodeManagers, on free loopback ports."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from compaction_pipeline.containers.java_program import java_program
from compaction_pipeline_tests.interop.peers import SPARK_JARS, java, yarn_jars

_LIVES_FOR_SECONDS = 1_200
_START_MILLISECONDS = 120_000
_SETTINGS = {
    # Hadoop's own file of these is not in the jar.
    "yarn.scheduler.capacity.root.queues": "default",
    "yarn.scheduler.capacity.root.default.capacity": "100",
    "yarn.scheduler.minimum-allocation-mb": "128",
    # A JVM reserves more addresses than it uses.
    "yarn.nodemanager.vmem-check-enabled": "false",
    "yarn.nodemanager.pmem-check-enabled": "false",
    "yarn.nodemanager.disk-health-checker.enable": "false",
}


@dataclass(frozen=True)
class YarnCluster:
    """A running YARN. `configuration` is the folder of `yarn-site.xml`. `jvm` is py4j's view of its process, `cluster` the object."""

    configuration: Path
    jvm: Any
    cluster: Any

    def applications(self) -> list[Any]:
        """What the ResourceManager itself knows of all applications, the oldest first."""
        found = self.cluster.getResourceManager().getRMContext().getRMApps().values()
        return sorted(found, key=lambda each: each.getApplicationId().getId())


@contextmanager
def yarn_cluster(folder: Path, for_drivers: float = 0.9) -> Iterator[YarnCluster]:
    """A YARN with its files in `folder`, until the block ends. Containers that it has started are ended with it.

    `for_drivers` is the part of the memory that drivers may have together. One driver is always allowed.
    """
    classpath = [f"{yarn_jars()}{os.sep}*", f"{SPARK_JARS}{os.sep}*"]
    options = ["-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "--add-opens=java.base/java.lang=ALL-UNNAMED"]
    # A start that fails leaves threads behind. The end of the block kills them.
    with java_program(java(), classpath, options, os.environ, _LIVES_FOR_SECONDS, folder) as jvm:
        configuration = jvm.org.apache.hadoop.yarn.conf.YarnConfiguration()
        for key, value in {**_SETTINGS, "yarn.scheduler.capacity.maximum-am-resource-percent": str(for_drivers)}.items():
            configuration.set(key, value)
        cluster = jvm.org.apache.hadoop.yarn.server.MiniYARNCluster("yarn", 2, 1, 1)
        cluster.init(configuration)
        cluster.start()
        assert cluster.waitForNodeManagersToConnect(_START_MILLISECONDS)
        made = folder / "conf"
        made.mkdir()
        stream = jvm.java.io.FileOutputStream(str(made / "yarn-site.xml"))
        cluster.getConfig().writeXml(stream)
        stream.close()
        started = YarnCluster(made, jvm, cluster)
        try:
            yield started
        finally:
            # NodeManagers kill what runs, which takes them some seconds.
            if not all(each.isAppFinalStateStored() for each in started.applications()):
                cluster.stop()
