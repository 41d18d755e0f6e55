"""Tables that Flink and Spark wrote keep their rows under every type of compaction, and afterwards they have fewer files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from compaction_pipeline.core.planning.plan import PlanRequest
from compaction_pipeline.core.tables.table import CatalogEntry, TableIdentifier
from compaction_pipeline.core.work.kinds import CompactionType
from compaction_pipeline.iceberg.catalogs import load_catalog
from compaction_pipeline.settings import Settings
from compaction_pipeline_tests.opened import OpenedServices
from compaction_pipeline_tests.reference_reader import bag_difference, reference_rows
from compaction_pipeline_tests.scenarios.examples.unpacking import CATALOG_NAME, PLAIN_EXAMPLES, catalog_properties, expected_rows, unpack
from compaction_pipeline_tests.scenarios.java_reader import java_rows
from compaction_pipeline_tests.scenarios.soundness import faults

pytestmark = pytest.mark.scenario

TABLE = TableIdentifier("lake", ("db",), "t")


class Example:
    """An unpacked example, registered as catalog `lake` in a state database of its own."""

    def __init__(self, name: str, folder: Path) -> None:
        self.home = unpack(name, folder)
        self.services = OpenedServices(Settings(home=folder / "state", merge_engine="in-process"), sleep=lambda seconds: None)
        self.services.stores.catalogs.add(CatalogEntry("lake", catalog_properties(self.home)))

    def table(self) -> Any:
        return load_catalog(CATALOG_NAME, **catalog_properties(self.home)).load_table("db.t")

    def compact(self, kind: CompactionType) -> Any:
        return self.services.compact_table.compact(TABLE, PlanRequest(types=(kind,), force=True))

    def check(self, when: str) -> None:
        table = self.table()
        assert bag_difference(reference_rows(table), expected_rows(self.home)) == "", when
        # Unpacking writes position deletes again, but the totals in the snapshots still count their old sizes.
        assert [fault for fault in faults(table) if "total-files-size" not in fault] == [], when


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
