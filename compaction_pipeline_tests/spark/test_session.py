"""The start of a JVM for Spark, and interrupts meanwhile."""

from __future__ import annotations

import signal
from typing import Any

import pytest
from pyspark import SparkConf

from compaction_pipeline.spark import session


@pytest.mark.parametrize(
    ("master", "slots", "meant"),
    [
        ("local[*]", 1, "local[*]"),
        ("local[*]", 4000, "local[4000]"),
        ("local[2]", 2, "local[2]"),
        ("local[2]", 3, "local[3]"),
        ("local[2,4]", 3, "local[3,4]"),
        ("local", 2, "local[2]"),
        ("local", 0, "local"),
        ("yarn", 9, "yarn"),
        ("local-cluster[2,1,1024]", 9, "local-cluster[2,1,1024]"),
    ],
)
def test_a_local_master_has_a_thread_for_each_slot(master: str, slots: int, meant: str) -> None:
    """Slots that wait for storage are more than the cores. In Spark they would wait for a thread."""
    assert session.with_threads(master, slots) == meant


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_waits_until_the_jvm_has_started_and_is_then_handled_as_usual(number: int) -> None:
    steps: list[str] = []

    def launched(*_: Any, **__: Any) -> object:
        signal.raise_signal(number)
        steps.append("the JVM stands")
        return object()

    before = signal.signal(number, lambda *_: steps.append("interrupted"))
    try:
        session._quiet_gateway(SparkConf(loadDefaults=False), launched)
        assert steps == ["the JVM stands", "interrupted"]
    finally:
        signal.signal(number, before)
