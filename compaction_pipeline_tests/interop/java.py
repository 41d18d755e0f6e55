"""Iceberg's Java library, and tables that it reads."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import IdentityTransform

from compaction_pipeline_tests.iceberg.lake import Lake, LakeTable
from compaction_pipeline_tests.reference_reader import bag_difference

Register = Callable[[str, str, str], Any]


BY_NAME = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "name"), spec_id=0)


class Java:
    """A lake whose catalog is registered with Spark."""

    def __init__(self, folder: Path, register: Register) -> None:
        self.name = f"c{uuid4().hex[:8]}"
        self.lake = Lake(folder, self.name)
        self.spark = register(self.name, f"{folder}/catalog.db", f"file://{folder}/wh")

    def ids(self, table: str = "t") -> list[int]:
        return sorted(row["id"] for row in self.sql(f"SELECT * FROM {self.name}.db.{table}"))

    def sql(self, text: str) -> list[Any]:
        rows: list[Any] = self.spark.sql(text.replace("{t}", f"{self.name}.db.t").replace("{c}", self.name)).collect()
        return rows

    def agrees(self, table: LakeTable) -> None:
        """Check that Java sees the same rows as the reference reader."""
        rows = [row.asDict() for row in self.sql(f"SELECT * FROM {self.name}.db.{table.identifier.name}")]
        assert not bag_difference(rows, table.rows())

    def goes_on(self, table: LakeTable) -> None:
        """Let Java append, delete, merge, rewrite everything and expire snapshots. Both readers must still agree."""
        before = self.ids()
        self.sql("INSERT INTO {t} (id) VALUES (1001), (1002)")
        assert self.ids() == sorted([*before, 1001, 1002])
        self.sql("DELETE FROM {t} WHERE id = 1001")
        assert self.ids() == sorted([*before, 1002])
        self.agrees(table)
        self.sql("CALL {c}.system.rewrite_position_delete_files(table => 'db.t', options => map('rewrite-all', 'true'))")
        self.sql("CALL {c}.system.rewrite_manifests(table => 'db.t')")
        assert self.ids() == sorted([*before, 1002])
        self.sql(
            "MERGE INTO {t} USING (SELECT explode(array(1002, 1003)) AS id) AS s ON {t}.id = s.id "
            "WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id)"
        )
        assert self.ids() == sorted([*before, 1003])
        self.sql("CALL {c}.system.rewrite_data_files(table => 'db.t', options => map('rewrite-all', 'true'))")
        assert self.ids() == sorted([*before, 1003])
        self.sql("CALL {c}.system.expire_snapshots(table => 'db.t', older_than => TIMESTAMP '2100-01-01 00:00:00', retain_last => 1)")
        assert self.ids() == sorted([*before, 1003])
        self.agrees(table)
