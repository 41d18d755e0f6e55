"""The start of a JVM for Spark, and interrupts meanwhile."""

from __future__ import annotations

import signal
from typing import Any

import pytest
from pyspark import SparkConf

from compaction_pipeline.spark import session


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
