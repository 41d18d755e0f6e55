"""Iceberg's Java library reads the base store of a keyed table after a compaction, and goes on writing to it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from compaction_pipeline.core.tables.table import CatalogEntry, TableIdentifier
from compaction_pipeline.core.work.kinds import CompactionType
from compaction_pipeline.iceberg.catalogs.open_catalogs import Catalogs
from compaction_pipeline.iceberg.upkeep.snapshot_stores import IcebergSnapshotStores
from compaction_pipeline_tests.interop.amoro_reader import amoro_rows
from compaction_pipeline_tests.keyed.compactions import Compactions
from compaction_pipeline_tests.keyed.example import Example
from compaction_pipeline_tests.reference_reader import bag_difference
from compaction_pipeline_tests.scenarios.examples.unpacking import CATALOG_NAME, KEYED_EXAMPLES, catalog_properties
from compaction_pipeline_tests.scenarios.java_reader import frame_rows, java_rows

pytestmark = pytest.mark.interop


def compacted(name: str, folder: Path) -> tuple[Example, Compactions]:
    example = Example(name, folder)
    compactions = Compactions(example.catalog, catalog_properties(example.home))
    assert compactions.compact(CompactionType.FULL) is not None
    return example, compactions


@pytest.mark.parametrize("name", KEYED_EXAMPLES)
def test_after_a_full_the_base_store_alone_has_the_rows(name: str, tmp_path: Path, iceberg_spark: Any) -> None:
    example, _ = compacted(name, tmp_path)
    assert bag_difference(java_rows(iceberg_spark, example.catalog.load_table("db.t").metadata_location), example.expected) == ""


def test_java_keeps_the_optimized_sequences_when_it_writes(tmp_path: Path, spark_catalog: Callable[[str, str, str], Any]) -> None:
    example, compactions = compacted("amoro_keyed_change_only", tmp_path)
    # A session opens a catalog of one name once, so only this test uses the name.
    spark = spark_catalog(CATALOG_NAME, str(example.home / "catalog.db"), str(example.home / "wh"))
    table = f"{CATALOG_NAME}.db.t"
    assert bag_difference(frame_rows(spark.table(table)), example.expected) == ""
    spark.sql(f"DELETE FROM {table} WHERE id % 2 = 0")
    left = [row for row in example.expected if row["id"] % 2]
    assert 0 < len(left) < len(example.expected)
    assert bag_difference(example.table.scan().to_arrow().to_pylist(), left) == ""
    assert compactions.plan(CompactionType.MAJOR) == []
    assert compactions.partitions


@pytest.mark.parametrize("name", KEYED_EXAMPLES)
def test_a_rewrite_of_manifests_by_iceberg_changes_nothing_of_a_keyed_table(name: str, tmp_path: Path, iceberg_spark: Any) -> None:
    """Both stores get a snapshot of another program with the operation `replace`, as a compaction of it would make one."""
    example = Example(name, tmp_path)
    for store in ("t", "t_change_"):
        rewrite(iceberg_spark, example, store)
    compactions = Compactions(example.catalog, catalog_properties(example.home))
    stores = compactions.stores
    assert bag_difference(amoro_rows(stores.base.metadata_location, stores.change.metadata_location), example.expected) == ""
    assert bag_difference(example.table.scan().to_arrow().to_pylist(), example.expected) == ""
    entry = CatalogEntry(CATALOG_NAME, catalog_properties(example.home))
    looks = IcebergSnapshotStores(Catalogs(lambda name: entry)).look(TableIdentifier(CATALOG_NAME, ("db",), "t"))
    assert [look.refusal for look in looks] == [None, None]
    assert compactions.compact(CompactionType.FULL) is not None
    assert bag_difference(java_rows(iceberg_spark, example.catalog.load_table("db.t").metadata_location), example.expected) == ""


def rewrite(spark: Any, example: Example, store: str) -> None:
    """Rewrite the manifests of a store by Iceberg's action. A store without a snapshot stays as it is."""
    jvm = spark._jvm
    catalog = jvm.org.apache.iceberg.jdbc.JdbcCatalog()
    catalog.setConf(jvm.org.apache.hadoop.conf.Configuration())
    uri, warehouse = f"jdbc:sqlite:{example.home}/catalog.db", f"file://{example.home}/wh"
    catalog.initialize(CATALOG_NAME, {"uri": uri, "warehouse": warehouse, "jdbc.schema-version": "V1"})
    table = catalog.loadTable(jvm.org.apache.iceberg.catalog.TableIdentifier.parse(f"db.{store}"))
    before = example.catalog.load_table(f"db.{store}").current_snapshot()
    if before is None:
        return
    manifests = len(table.currentSnapshot().allManifests(table.io()))
    jvm.org.apache.iceberg.spark.actions.SparkActions.get(spark._jsparkSession).rewriteManifests(table).execute()
    catalog.close()
    after = example.catalog.load_table(f"db.{store}").current_snapshot()
    # The action leaves a single manifest alone.
    assert manifests == 1 or after.summary.operation.value == "replace"
