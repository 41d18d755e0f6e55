"""Tables that Flink and Spark wrote keep their rows under every type of compaction, and afterwards they have fewer files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from compaction_pipeline.core.work.kinds import CompactionType
from compaction_pipeline_tests.reference_reader import bag_difference, reference_rows
from compaction_pipeline_tests.scenarios.example import Example
from compaction_pipeline_tests.scenarios.examples.unpacking import PLAIN_EXAMPLES
from compaction_pipeline_tests.scenarios.java_reader import java_rows

pytestmark = pytest.mark.scenario


@pytest.mark.parametrize("kind", CompactionType)
@pytest.mark.parametrize("name", PLAIN_EXAMPLES)
def test_an_example_keeps_its_rows_under_every_type_and_ends(name: str, kind: CompactionType, tmp_path: Path) -> None:
    example = Example(name, tmp_path)
    before = len(example.table().inspect.files())
    for _ in range(4):
        outcome = example.compact(kind)
        assert not outcome.failed
        assert not outcome.conflicts
        example.check(f"after {kind.value}")
        if not outcome.tasks:
            break
    else:
        pytest.fail("a type that has nothing new to look at goes on finding work")
    assert len(example.table().inspect.files()) < before


@pytest.mark.parametrize("name", PLAIN_EXAMPLES)
def test_java_reads_an_example_after_all_types(name: str, tmp_path: Path, iceberg_spark: Any) -> None:
    example = Example(name, tmp_path)
    for kind in CompactionType:
        example.compact(kind)
        example.check(f"after {kind.value}")
        assert bag_difference(java_rows(iceberg_spark, example.table().metadata_location), reference_rows(example.table())) == ""


def test_after_a_full_of_a_quiet_table_no_delete_file_is_live(tmp_path: Path) -> None:
    example = Example("flink_v2_unpart_cdc", tmp_path)
    example.compact(CompactionType.FULL)
    example.check("after FULL")
    summary = example.table().current_snapshot().summary
    assert summary["total-delete-files"] == "0"
