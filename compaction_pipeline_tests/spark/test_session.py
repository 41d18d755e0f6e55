"""The start of Spark: errors in settings are found before a JVM starts, and the program keeps its own handler of Ctrl-C."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest
from pyspark import SparkConf
from pyspark.sql import SparkSession

from compaction_pipeline.spark import session
from compaction_pipeline.spark.session import SparkSessions, SparkSettings


def test_the_program_still_handles_ctrl_c_after_a_session_was_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = signal.getsignal(signal.SIGINT)

    class Builder:
        """Replaces the signal handler, as the start of a SparkContext does."""

        sparkContext = property(lambda self: self)

        def config(self, **_: Any) -> Builder:
            return self

        def getOrCreate(self) -> Builder:
            signal.signal(signal.SIGINT, lambda number, frame: None)
            return self

        def setLogLevel(self, level: str) -> None: ...

    monkeypatch.setattr(session.SparkContext, "_gateway", object())
    monkeypatch.setattr(SparkSession, "builder", Builder())
    try:
        SparkSessions(SparkSettings("local[1]", home=str(tmp_path))).session()
        assert signal.getsignal(signal.SIGINT) is before
    finally:
        signal.signal(signal.SIGINT, before)


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
