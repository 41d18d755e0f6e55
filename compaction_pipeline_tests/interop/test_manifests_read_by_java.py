"""Iceberg's Java library sees the same rows before and after a rewrite of manifests, and our rewrite does what its own procedure does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyiceberg.typedef import Record

from compaction_pipeline.core.commit.ports import CommitState
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.upkeep.commit_record import UpkeepOutcome
from compaction_pipeline_tests.iceberg.lake import LakeTable
from compaction_pipeline_tests.iceberg.upkeep.manifest_entries import live_entries
from compaction_pipeline_tests.iceberg.upkeep.manifest_work import ManifestWork, counts
from compaction_pipeline_tests.interop.java import BY_NAME, Java, Register
from compaction_pipeline_tests.reference_reader import bag_difference
from compaction_pipeline_tests.scenarios.java_reader import frame_rows
from compaction_pipeline_tests.scenarios.soundness import faults

pytestmark = pytest.mark.interop

MERGE_ON_READ = "'write.delete.mode'='merge-on-read', 'write.update.mode'='merge-on-read', 'write.merge.mode'='merge-on-read'"
FEW = "'commit.manifest.min-count-to-merge'='3'"
# Spark merges small manifests by itself once there are so many. Tables of these tests keep all of theirs.
APART = "'commit.manifest-merge.enabled'='false'"


@pytest.fixture
def java(tmp_path: Path, spark_catalog: Register) -> Java:
    return Java(tmp_path, spark_catalog)


def table_of(java: Java, name: str = "t") -> LakeTable:
    return LakeTable(java.lake, TableIdentifier("lake", ("db",), name), java.lake.catalog.load_table(("db", name)))


def rewrite(t: LakeTable) -> UpkeepOutcome:
    return ManifestWork(t.lake.catalogs).rewrite(t.identifier, "rewrite-1")


def rows(java: Java, name: str = "t") -> list[Any]:
    return frame_rows(java.spark.sql(f"SELECT * FROM {java.name}.db.{name}"))


def created(java: Java, name: str, version: int) -> None:
    properties = f"'format-version'='{version}', {FEW}, {APART}" + (f", {MERGE_ON_READ}" if version > 1 else "")
    java.sql(
        f"CREATE TABLE {{c}}.db.{name} (id BIGINT, name STRING, at TIMESTAMP_NTZ, amount DECIMAL(20, 3)) USING iceberg "
        f"PARTITIONED BY (bucket(4, id), truncate(2, name), days(at), amount) TBLPROPERTIES ({properties})"
    )


def inserted(java: Java, name: str, first: int) -> None:
    java.sql(
        f"INSERT INTO {{c}}.db.{name} VALUES ({first}, 'ab{first}', TIMESTAMP_NTZ '2026-01-0{first % 9 + 1} 01:02:03', 1.5), "
        f"({first + 1}, NULL, NULL, NULL), ({first + 2}, 'żółw', TIMESTAMP_NTZ '1969-12-31 23:00:00', -0.001)"
    )


@pytest.mark.parametrize("version", [1, 2])
def test_java_sees_the_same_rows_of_a_table_that_spark_wrote(java: Java, version: int) -> None:
    created(java, "t", version)
    for number in range(5):
        inserted(java, "t", number * 10)
    java.sql("DELETE FROM {t} WHERE id % 10 = 2")
    java.sql("UPDATE {t} SET amount = 7 WHERE id = 0")
    java.sql("ALTER TABLE {t} ADD PARTITION FIELD bucket(8, id)")
    for number in range(5, 9):
        inserted(java, "t", number * 10)
    if version > 1:
        java.sql("DELETE FROM {t} WHERE id = 71")
    t = table_of(java)
    seen, entries = rows(java), live_entries(t.table)
    assert len(seen) == 5 * 2 + 4 * 3 - (1 if version > 1 else 0)
    before = t.table.inspect.manifests().num_rows
    outcome = rewrite(t)
    assert outcome.state is CommitState.COMMITTED
    t.table.refresh()
    assert t.table.inspect.manifests().num_rows == before - counts(outcome)[2] + counts(outcome)[0]
    assert live_entries(t.table) == entries
    assert not bag_difference(rows(java), seen)
    assert not bag_difference(t.rows(), seen)
    assert faults(t.table) == []
    # A filter on partitions prunes manifests by their bounds.
    assert sorted(row["id"] for row in java.sql("SELECT id FROM {t} WHERE name IS NULL")) == sorted(
        row["id"] for row in seen if row["name"] is None
    )
    assert [row["id"] for row in java.sql("SELECT id FROM {t} WHERE id = 50 AND amount = 1.5")] == [50]
    java.goes_on(t)


def test_java_applies_equality_deletes_as_before_and_goes_on(java: Java) -> None:
    properties = dict(each.replace("'", "").split("=") for each in f"{MERGE_ON_READ}, {FEW}, {APART}".split(", "))
    t = java.lake.table(spec=BY_NAME, properties=properties)
    a = t.insert({"id": 1, "name": "a"}, {"id": 2, "name": "a"}, {"id": 3, "name": "a"}, partition=Record("a"))
    t.delete_ids(2, partition=Record("a"))
    t.insert({"id": 2, "name": "a"}, partition=Record("a"))
    t.delete_positions((a.path, 0), partition=Record("a"))
    t.insert({"id": 4, "name": None}, partition=Record(None))
    t.delete_ids(9, partition=Record(None))
    assert java.ids() == [2, 3, 4]
    outcome = rewrite(t)
    assert counts(outcome)[::2] == (2, 6)
    assert java.ids() == [2, 3, 4]
    java.sql("DELETE FROM {t} WHERE id = 3")
    assert java.ids() == [2, 4]
    java.goes_on(t)


def test_our_rewrite_makes_no_more_manifests_than_icebergs_own(java: Java) -> None:
    """Both tables get the same statements. Iceberg's procedure rewrites data manifests of one spec only, with the same target size."""
    for name in ("t", "theirs"):
        created(java, name, 2)
        for number in range(6):
            inserted(java, name, number * 10)
        java.sql(f"DELETE FROM {{c}}.db.{name} WHERE id % 10 = 2")
    ours, theirs = table_of(java), table_of(java, "theirs")
    seen = rows(java)
    rewrite(ours)
    java.sql("CALL {c}.system.rewrite_manifests(table => 'db.theirs', use_caching => false)")

    def count(t: LakeTable) -> dict[int, int]:
        found = t.table.refresh().inspect.manifests().to_pylist()
        return {content: sum(one["content"] == content for one in found) for content in (0, 1)}

    assert count(ours) == {0: 1, 1: 1}
    assert count(ours)[0] <= count(theirs)[0]
    assert count(ours)[1] <= count(theirs)[1]
    assert not bag_difference(rows(java), seen)
    assert not bag_difference(rows(java, "theirs"), seen)
    summaries = [t.table.current_snapshot().summary for t in (ours, theirs)]  # type: ignore[union-attr]
    said = [dict(one.additional_properties) if one else {} for one in summaries]
    assert [one.operation.value for one in summaries if one] == ["replace", "replace"]
    totals = [{key: value for key, value in one.items() if key.startswith("total-") and key != "total-files-size"} for one in said]
    assert totals[0] == totals[1]
    assert {"manifests-created", "manifests-kept", "manifests-replaced", "entries-processed"} <= said[0].keys() & said[1].keys()


def test_a_rewrite_of_ours_and_one_of_icebergs_follow_each_other(java: Java) -> None:
    created(java, "t", 2)
    for number in range(4):
        inserted(java, "t", number * 10)
    java.sql("CALL {c}.system.rewrite_manifests(table => 'db.t', use_caching => false)")
    for number in range(4, 8):
        inserted(java, "t", number * 10)
    t = table_of(java)
    seen = rows(java)
    assert rewrite(t).state is CommitState.COMMITTED
    for number in range(8, 10):
        inserted(java, "t", number * 10)
    more = rows(java)
    assert len(more) == len(seen) + 6
    java.sql("CALL {c}.system.rewrite_manifests(table => 'db.t', use_caching => false)")
    assert not bag_difference(rows(java), more)
    java.sql("CALL {c}.system.expire_snapshots(table => 'db.t', older_than => TIMESTAMP '2100-01-01 00:00:00', retain_last => 1)")
    assert not bag_difference(rows(java), more)
    assert faults(t.table.refresh()) == []
