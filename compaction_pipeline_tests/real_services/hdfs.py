"""A real HDFS, one name node and one data node in a Java process: Hadoop's MiniDFSCluster on a free loopback port."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from compaction_pipeline_tests.interop.peers import SPARK_JARS, hdfs_jars, java
from compaction_pipeline_tests.ports import free_port

_START_SECONDS = 240
_ENTRIES_AT_ONCE = 3
"""So few entries of a folder come with one answer of the name node, so that each listing of a test takes several."""


@dataclass(frozen=True)
class HdfsCluster:
    """A running HDFS. The user of the tests is its superuser; others need rights."""

    port: int
    host: str = "127.0.0.1"

    @property
    def url(self) -> str:
        return f"hdfs://{self.host}:{self.port}"


@contextmanager
def hdfs_cluster(
    folder: Path, settings: Mapping[str, str] | None = None, jvm: Sequence[str] = (), host: str = "127.0.0.1"
) -> Iterator[HdfsCluster]:
    """An HDFS with its files in `folder`, until the block ends. `settings` are Hadoop's. The folder must be empty."""
    port = free_port()
    ready, log = folder / "ready.json", folder / "hdfs.log"
    classpath = os.pathsep.join([f"{hdfs_jars()}{os.sep}*", f"{SPARK_JARS}{os.sep}*"])
    program = "org.apache.hadoop.test.MiniDFSClusterManager"
    own = {"dfs.ls.limit": str(_ENTRIES_AT_ONCE), **(settings or {})}
    command = [str(java()), "-Xmx512m", "-XX:TieredStopAtLevel=1", f"-Dtest.build.data={folder / 'data'}", *jvm, "-cp", classpath, program]
    command += ["-format", "-datanodes", "1", "-nnport", str(port), "-httpport", "0", "-writeDetails", str(ready)]
    command += [word for key, value in own.items() for word in ("-D", f"{key}={value}")]
    with log.open("wb") as output:
        process = subprocess.Popen(command, cwd=folder, stdout=output, stderr=subprocess.STDOUT)
    try:
        deadline = time.monotonic() + _START_SECONDS
        while not ready.exists():
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"HDFS did not start: {log.read_text(errors='replace')[-2000:]}")
            threading.Event().wait(0.05)
        yield HdfsCluster(port, host)
    finally:
        # Its data is not needed afterwards, so it is killed.
        process.kill()
        process.wait()
