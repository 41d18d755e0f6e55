"""The settings of the process: a value that cannot work is refused before anything starts."""

from __future__ import annotations

import pytest

from compaction_pipeline.core.errors import ConfigError
from compaction_pipeline.settings import load_settings


@pytest.mark.parametrize(
    "master", ["bogus://x", "local[", "local[0]", "local[2,0]", "localhost", "", "yarn-client", "spark://", "mesos://host:5050", "yarn\n"]
)
def test_a_master_that_spark_cannot_parse_is_refused(master: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMPACTION_SPARK_MASTER", master)
    with pytest.raises(
        ConfigError, match=r"^COMPACTION_SPARK_MASTER is .* but must be local\[\*\], local\[N\], spark://host:port, yarn or k8s"
    ):
        load_settings()


@pytest.mark.parametrize(
    "master",
    [
        "local",
        "local[*]",
        "local[4]",
        "local[*,3]",
        "local[2, 1]",
        "local-cluster[2,1,1024]",
        "spark://a,b:1",
        "k8s://https://x",
        "yarn",
    ],
)
def test_every_master_that_spark_parses_may_be_named(master: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMPACTION_SPARK_MASTER", master)
    assert load_settings().spark_master == master


def test_an_address_that_is_not_of_spark_connect_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMPACTION_SPARK_REMOTE", "spark://x")
    with pytest.raises(
        ConfigError, match=r"^COMPACTION_SPARK_REMOTE is 'spark://x' but must be the address of Spark Connect, sc://host:port"
    ):
        load_settings()
    monkeypatch.setenv("COMPACTION_SPARK_REMOTE", "sc://spark:15002")
    assert load_settings().spark_remote == "sc://spark:15002"


def test_an_error_names_where_the_value_came_from(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"^attribute 'task_slots' of CompactionPipeline is 0 but must be a whole number from 1"):
        load_settings({"task_slots": 0})
    with pytest.raises(ConfigError, match=r"^--master is 'foo' but must be"):
        load_settings({"spark_master": "foo"}, {"spark_master": "--master"})
    monkeypatch.setenv("COMPACTION_TASK_SLOTS", "0")
    with pytest.raises(ConfigError, match=r"^COMPACTION_TASK_SLOTS is '0' but"):
        load_settings({"spark_master": "local"}, {"spark_master": "--master"})
