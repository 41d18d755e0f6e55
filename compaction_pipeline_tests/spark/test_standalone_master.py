"""The program gives up a standalone master that accepts connections but never answers, and uses one that works."""

from __future__ import annotations

import re
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest
from pyspark import SparkContext

from compaction_pipeline.core.errors import StorageUnavailable
from compaction_pipeline.spark.engine import SparkMergeEngine
from compaction_pipeline.spark.reachable import check_answers
from compaction_pipeline.spark.session import SparkSessions, SparkSettings

pytestmark = pytest.mark.spark


@pytest.fixture
def silent() -> Iterator[int]:
    """A port that accepts connections and never answers."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        yield server.getsockname()[1]


@pytest.fixture
def closed() -> int:
    """A port that nobody listens on."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return int(server.getsockname()[1])


@pytest.fixture
def master() -> Iterator[int]:
    """The port of a standalone master."""
    command = [Path(pyspark.__file__).parent / "bin" / "spark-class", "org.apache.spark.deploy.master.Master"]
    options = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
    with subprocess.Popen([*map(str, command), *options], stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            yield next(int(found[1]) for line in process.stderr if (found := re.search(r"Starting Spark master at spark://.*:(\d+)", line)))
        finally:
            process.kill()


def test_a_master_that_never_answers_is_given_up_within_the_limit(silent: int, tmp_path: Path) -> None:
    address = f"spark://127.0.0.1:{silent}"
    sessions = SparkSessions(SparkSettings(address, home=str(tmp_path), connect_seconds=0.5))
    told = "it accepts connections, but does not answer as a Spark master within 0.5 s"
    with pytest.raises(StorageUnavailable, match=rf"Spark at {address} cannot be reached \(127.0.0.1:{silent}: {told}\): see that"):
        SparkMergeEngine(sessions).ready()


def test_a_master_that_answers_is_found_behind_one_that_does_not(closed: int, master: int) -> None:
    SparkContext._ensure_initialized()
    # The limit is so high that a slow machine never reaches it. The test only distinguishes an answer from none.
    check_answers(f"spark://127.0.0.1:{closed},127.0.0.1:{master}", 300, SparkContext._jvm, {})
