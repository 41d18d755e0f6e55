"""Tables of other programs, as folders of this repository hold them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from compaction_pipeline.core.planning.plan import PlanRequest
from compaction_pipeline.core.tables.table import CatalogEntry, TableIdentifier
from compaction_pipeline.core.work.kinds import CompactionType
from compaction_pipeline.iceberg.catalogs import load_catalog
from compaction_pipeline.settings import Settings
from compaction_pipeline_tests.opened import OpenedServices
from compaction_pipeline_tests.reference_reader import bag_difference, reference_rows
from compaction_pipeline_tests.scenarios.examples.unpacking import CATALOG_NAME, catalog_properties, expected_rows, unpack
from compaction_pipeline_tests.scenarios.soundness import faults

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
        return self.services.compact_tables.compact(TABLE, PlanRequest(types=(kind,), force=True))

    def check(self, when: str) -> None:
        table = self.table()
        assert bag_difference(reference_rows(table), expected_rows(self.home)) == "", when
        # Unpacking writes position deletes again, but the totals in the snapshots still count their old sizes.
        assert [fault for fault in faults(table) if "total-files-size" not in fault] == [], when
