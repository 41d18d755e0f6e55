"""When a Spark cannot be reached, the error is one sentence, and no JVM is started."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from compaction_pipeline.core.errors import StorageUnavailable
from compaction_pipeline.spark.engine import SparkMergeEngine
from compaction_pipeline.spark.reachable import check_connect, check_master
from compaction_pipeline.spark.session import SparkSessions, SparkSettings


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


def test_an_unreachable_master_is_reported_before_a_jvm_starts(closed: int) -> None:
    # These settings name no home folder. Whoever starts a JVM with them gets a ConfigError.
    master = f"spark://127.0.0.1:{closed}"
    with pytest.raises(StorageUnavailable, match=rf"Spark at {master} cannot be reached \(127.0.0.1:{closed}: .*COMPACTION_SPARK_MASTER"):
        SparkMergeEngine(SparkSessions(SparkSettings(master))).ready()


def test_one_master_of_several_is_enough(silent: int, closed: int) -> None:
    check_master(f"spark://127.0.0.1:{closed},127.0.0.1:{silent}", 20)


def test_other_masters_are_not_asked() -> None:
    check_master("yarn", 0)
    check_master("local[2]", 0)


def test_a_connect_server_that_never_answers_is_given_up(silent: int) -> None:
    remote = f"sc://127.0.0.1:{silent}"
    with pytest.raises(StorageUnavailable, match=rf"Spark Connect at {remote} cannot be reached: no answer within 0.2 s"):
        SparkMergeEngine(SparkSessions(SparkSettings(remote=remote, connect_seconds=0.2))).ready()


def test_an_unreachable_connect_server_is_given_up(closed: int) -> None:
    with pytest.raises(StorageUnavailable, match="COMPACTION_SPARK_REMOTE"):
        check_connect(f"sc://127.0.0.1:{closed}", 0.2)
