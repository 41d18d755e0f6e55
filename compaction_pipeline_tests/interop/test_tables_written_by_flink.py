"""Compacts tables that Flink's streams wrote with equality deletes. Every type keeps the known rows, and another stream can go on."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from compaction_pipeline.core.work.kinds import CompactionType
from compaction_pipeline_tests.interop.flink import SHAPES, Flink, expected_rows
from compaction_pipeline_tests.interop.warehouse import Compactions, Register, Warehouse, live_files

pytestmark = pytest.mark.interop

EQUALITY_DELETES = 2
ENOUGH = 3
"""The number of equality-delete files that each table must have before it is compacted."""


class Streamed:
    """Tables named `SHAPE_TYPE` that one stream wrote. Each is for one test."""

    def __init__(self, folder: Path, register: Register, jvm: Any) -> None:
        self.warehouse = Warehouse(folder, register)
        self.compactions = Compactions(self.warehouse)
        self.flink = Flink(jvm, self.warehouse.name, self.warehouse.flink_catalog)
        self.names = [f"{shape}_{kind.value.lower()}" for shape in SHAPES for kind in CompactionType]
        self.last = 0
        for name in self.names:
            self.flink.create(name, name.partition("_")[0])

    def begin(self) -> None:
        """Stream changes until every table has the equality deletes of several checkpoints, however long Flink takes."""
        stream = self.flink.stream(self.names, 250, self.warehouse.folder / "savepoints")
        while stream.running and min(map(self.equality_deletes, self.names)) < ENOUGH:
            threading.Event().wait(0.5)
        stream.stop()
        self.last = self.warehouse.table("taken").scan().count()

    def equality_deletes(self, name: str) -> int:
        """The number of equality-delete files in the head of a table."""
        return sum(file["content"] == EQUALITY_DELETES for file in live_files(self.warehouse.table(name)))


@pytest.fixture(scope="module")
def streamed(tmp_path_factory: pytest.TempPathFactory, iceberg_spark: Any, flink_jvm: Any) -> Iterator[Streamed]:
    from compaction_pipeline_tests.interop.conftest import registered

    def register(name: str, database: str, warehouse: str) -> Any:
        return registered(iceberg_spark, name, database, warehouse)

    tables = Streamed(tmp_path_factory.mktemp("flink"), register, flink_jvm)
    tables.begin()
    yield tables
    tables.compactions.close()


@pytest.mark.parametrize("kind", CompactionType)
@pytest.mark.parametrize("shape", SHAPES)
def test_a_stream_of_flink_keeps_its_rows(shape: str, kind: CompactionType, streamed: Streamed) -> None:
    name = f"{shape}_{kind.value.lower()}"
    warehouse = streamed.warehouse
    before = live_files(warehouse.table(name))
    assert streamed.equality_deletes(name) >= ENOUGH
    expected = expected_rows(streamed.last)
    warehouse.check(expected, name, "before")
    outcome = streamed.compactions.compact(kind, name)
    assert outcome.records
    assert not outcome.failed
    assert not outcome.conflicts
    warehouse.check(expected, name, f"after {kind.value}")
    assert len(live_files(warehouse.table(name))) < len(before)


def test_flink_goes_on_writing_on_every_result(streamed: Streamed) -> None:
    for name in streamed.names:
        streamed.compactions.compact(CompactionType(name.partition("_")[2].upper()), name)
    # The second stream aggregates from the beginning, so it inserts keys that exist already. Only upserts replace those.
    names = [name for name in streamed.names if not name.startswith("retractions")]
    streamed.flink.write(names, 700, 700).wait()
    for name in names:
        streamed.warehouse.check(expected_rows(streamed.last, 700), name)
