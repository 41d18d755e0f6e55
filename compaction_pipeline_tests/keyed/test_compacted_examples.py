"""Keyed tables that Amoro wrote are compacted by every type, and show the same rows afterwards."""

from __future__ import annotations

from pathlib import Path

import pytest

from compaction_pipeline.core.commit.ports import CommitState
from compaction_pipeline.core.tables.properties import TableProperties
from compaction_pipeline.core.work.kinds import CompactionType
from compaction_pipeline_tests.interop.amoro_reader import amoro_rows
from compaction_pipeline_tests.keyed.compactions import Compactions
from compaction_pipeline_tests.keyed.example import Example
from compaction_pipeline_tests.reference_reader import bag_difference, reference_rows
from compaction_pipeline_tests.scenarios.examples.unpacking import KEYED_EXAMPLES, catalog_properties

SHARED_BY_TWO, SHARED_BY_FOUR = 100_000, 60_000
"""The bytes of a task. Each of the sizes cuts nodes finer than their files are, so that tasks share files: the larger two by two, the
smaller four by four. The smaller one needs twice as many tasks, and no type shows it otherwise than another, so one example and type do."""


def bytes_of_a_task(name: str, kind: CompactionType) -> int:
    return SHARED_BY_FOUR if (name, kind) == ("amoro_keyed_unpart", CompactionType.MINOR) else SHARED_BY_TWO


def compactions(example: Example) -> Compactions:
    return Compactions(example.catalog, catalog_properties(example.home))


def locations(example: Example) -> tuple[str, str]:
    base, change = (example.catalog.load_table(f"db.{name}").metadata_location for name in ("t", "t_change_"))
    return base, change


def check(example: Example) -> None:
    assert bag_difference(example.table.scan().to_arrow().to_pylist(), example.expected) == "", "the product"
    assert bag_difference(amoro_rows(*locations(example)), example.expected) == "", "the reader of Amoro's rules"


@pytest.mark.parametrize("kind", CompactionType)
@pytest.mark.parametrize("name", KEYED_EXAMPLES)
def test_the_rows_stay_and_the_base_store_alone_holds_them(name: str, kind: CompactionType, tmp_path: Path) -> None:
    example = Example(name, tmp_path)
    done = compactions(example).compact(kind, task_bytes=bytes_of_a_task(name, kind))
    assert done is not None
    assert done.state is CommitState.COMMITTED
    check(example)
    # All changes were merged, so an Iceberg reader that knows nothing of change stores sees the rows.
    assert bag_difference(reference_rows(locations(example)[0]), example.expected) == ""
    again = compactions(example)
    assert not any(task.work.change_files for task in again.plan(CompactionType.MAJOR))
    for partition in again.partitions:
        assert partition.reason.text.startswith(f"no change is above the optimized sequence ({partition.above})")
    # Small base files are joined without changes.
    again.compact(kind)
    check(example)
    assert compactions(example).plan(kind) == []


@pytest.mark.parametrize("name", KEYED_EXAMPLES)
def test_large_base_files_stay_and_get_position_deletes(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("compaction_pipeline.core.planning.keyed.base_files.MOST_MARKED", 1.0)
    example = Example(name, tmp_path)
    done = compactions(example).compact(CompactionType.MAJOR, TableProperties(target_size_bytes=64))
    assert done is not None
    assert done.state is CommitState.COMMITTED
    check(example)
