"""The works of the product on one table, by a clock that goes ahead: a compaction, an expiry, and the removal of an orphan file."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from pathlib import Path
from urllib.parse import urlsplit

from compaction_pipeline.core.planning.plan import PlanRequest
from compaction_pipeline.core.tables.table import CatalogEntry
from compaction_pipeline.core.work.kinds import CompactionType
from compaction_pipeline.iceberg.upkeep.listed_files import listed_files
from compaction_pipeline.settings import Settings
from compaction_pipeline_tests.iceberg.lake import LakeTable
from compaction_pipeline_tests.iceberg.reached import reached
from compaction_pipeline_tests.opened import OpenedServices, merge_on_spark

AT_ONCE = {"history.expire.max-snapshot-age-ms": "0", "compaction.expire.grace": "0s"}
"""Properties of a table whose snapshots expire, and whose files go, without a wait."""


def written(table: LakeTable) -> list[int]:
    """Write four files and a delete file. Returns the ids that are left."""
    for first in range(0, 24, 6):
        table.ids(*range(first, first + 6))
    table.delete_ids(1, 5)
    return [one for one in range(24) if one not in (1, 5)]


def files_of(table: LakeTable) -> set[str]:
    table.table.refresh()
    found = (urlsplit(one.path).path for one in listed_files(table.table.io, table.table.location()))
    return {path for path in found if not path.endswith(".metadata.json")}


class Upkept:
    """The product, with a clock that goes ahead."""

    def __init__(self, folder: Path, on_spark: bool = False) -> None:
        self.ahead = timedelta()
        settings = Settings(home=folder / "state", merge_engine="spark" if on_spark else "in-process")
        self.services = OpenedServices(settings, clock=lambda: datetime.now(timezone.utc) + self.ahead)
        if on_spark:
            merge_on_spark(self.services)

    def register(self, properties: Mapping[str, str]) -> None:
        self.services.stores.catalogs.add(CatalogEntry("lake", properties))

    def compact(self, table: LakeTable) -> None:
        """Merge all files into one."""
        assert self.services.compact_tables.compact(table.identifier, PlanRequest(types=(CompactionType.FULL,), force=True)).committed
        table.table.refresh()
        assert len(list(table.table.scan().plan_files())) == 1

    def expire(self, table: LakeTable) -> None:
        """Leave one snapshot, and no file that it does not need."""
        until, answer = time.monotonic() + 180, None
        while files_of(table) != reached(table.table) or len(table.table.metadata.snapshots) > 1:
            assert time.monotonic() < until, (answer, self.services.expire_snapshots.records(table.identifier, 3))
            answer = self.services.expire_snapshots.expire(table.identifier)
        assert len(table.table.metadata.snapshots) == 1

    def remove_an_orphan(self, table: LakeTable) -> None:
        """Write a file that no metadata names, and have it removed."""
        orphan = f"{table.table.location()}/data/00000-7-0f8fad5b-d9cb-469f-a165-70867728950e-00001.parquet"
        with table.table.io.new_output(orphan).create() as stream:
            stream.write(b"12345")
        self.ahead += timedelta(days=30)
        self.services.one_table.refresh(table.identifier)
        assert self.services.clean_orphans.look(table.identifier).refusals == ()
        self.ahead += timedelta(days=1)
        cleaned = self.services.clean_orphans.delete(table.identifier, accept_share=1.0)
        assert (cleaned.refusals, cleaned.problem) == ((), None)
        assert {file.path for deletion in cleaned.deletions for file in deletion.deleted} >= {orphan}
        assert not table.table.io.new_input(orphan).exists()
