"""Expiry of a table in Iceberg's own REST catalog, on an S3 that checks signatures: with and without faults, only garbage goes."""

from __future__ import annotations

import time
from collections.abc import Callable
from urllib.parse import urlsplit

import pytest

from compaction_pipeline.core.errors import CompactionError
from compaction_pipeline.core.upkeep.record import ENDED
from compaction_pipeline.core.work.kinds import CompactionType
from compaction_pipeline.iceberg.listing import files_under
from compaction_pipeline_tests.iceberg.lake import LakeTable
from compaction_pipeline_tests.iceberg.reached import reached
from compaction_pipeline_tests.real_services.fault_proxy import Drop, Lost, Status, Truncate
from compaction_pipeline_tests.real_services.lake import ServedLake
from compaction_pipeline_tests.reference_reader import reference_rows

pytestmark = pytest.mark.interop

_COMMIT = "^POST .*/tables/t$"
_PATIENCE_SECONDS = 240


def nothing_fails(lake: ServedLake) -> None:
    """Cause no fault."""


def much_fails(lake: ServedLake) -> None:
    """S3 refuses, drops and cuts off some answers, and refuses to delete many objects at once. An answer of the catalog gets lost."""
    lake.s3_proxy.add("", Status(503, "<Error><Code>SlowDown</Code></Error>"), probability=0.1)
    lake.s3_proxy.add("", Drop(reset=True), probability=0.05)
    lake.s3_proxy.add("^GET", Truncate(), probability=0.1)
    lake.s3_proxy.add("^POST .*delete", Status(501, "<Error><Code>NotImplemented</Code></Error>"))
    lake.catalog_proxy.add(_COMMIT, Lost(), times=1)


def files_of(table: LakeTable) -> set[str]:
    table.table.refresh()
    return {urlsplit(path).path for path in files_under(table.table.io, table.table.location()) if not path.endswith(".metadata.json")}


@pytest.mark.parametrize("weather", [nothing_fails, much_fails])
def test_only_what_no_snapshot_needs_goes(served_lake: ServedLake, weather: Callable[[ServedLake], None]) -> None:
    table = served_lake.table(properties={"history.expire.max-snapshot-age-ms": "0", "compaction.expire.grace": "0s"})
    for first in range(0, 30, 3):
        table.ids(*range(first, first + 3))
    table.delete_ids(1, 5)
    tagged = table.table.current_snapshot().snapshot_id
    table.table.manage_snapshots().create_tag(tagged, "release").commit()
    assert served_lake.compact(table, CompactionType.FULL).committed
    assert served_lake.compact(table, CompactionType.MAJOR) is not None
    rows = table.live_ids()
    weather(served_lake)
    until = time.monotonic() + _PATIENCE_SECONDS
    service = served_lake.services.expire_snapshots
    while len(table.table.metadata.snapshots) > 2 or files_of(table) != reached(table.table):
        assert time.monotonic() < until, sorted(files_of(table) - reached(table.table))
        try:
            service.expire(table.identifier)
        except CompactionError:
            # A server was silent, and the next run goes on.
            continue
        assert reached(table.table) <= files_of(table)
    assert {record.status for record in service.records(table.identifier, 100)} & ENDED
    posts = served_lake.s3_proxy.requests("^POST .*delete")
    assert posts
    assert table.live_ids() == rows
    assert sorted(row["id"] for row in reference_rows(table.table, tagged)) == rows
