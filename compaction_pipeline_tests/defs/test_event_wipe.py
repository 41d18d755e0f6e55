"""Old events of our external assets go, the newest of each partition stays, and no other asset loses any."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.test_utils import freeze_time
from sqlalchemy import func, select

from compaction_pipeline.defs.event_wipe import wipe_copies, wipe_old_events
from compaction_pipeline_tests.plain_names import COMPACTED_FILES, DELTA_FILES, TABLE_HEALTH

NOW = datetime(2026, 1, 8, 12, tzinfo=timezone.utc)


@pytest.fixture(params=["in memory", "files"])
def instance(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[dg.DagsterInstance]:
    """An instance in memory, and one on SQLite, which keeps events of no run in a file of their own, and a copy in its index."""
    made = dg.DagsterInstance.ephemeral() if request.param == "in memory" else dg.DagsterInstance.local_temp(str(tmp_path))
    with made:
        yield made


def tell(instance: dg.DagsterInstance, days_ago: float, asset: dg.AssetKey, partition: str | None = None) -> None:
    with freeze_time(NOW - timedelta(days=days_ago)):
        tags = {"dagster/data_version": f"v{days_ago}"} if partition else None
        instance.report_runless_asset_event(dg.AssetMaterialization(asset, partition=partition, tags=tags))


def ages(instance: dg.DagsterInstance, asset: dg.AssetKey) -> list[float]:
    """How many days ago the events of the asset were told, newest first."""
    records = instance.fetch_materializations(asset, limit=100).records
    return [round((NOW.timestamp() - record.timestamp) / 86_400, 1) for record in records]


def test_old_events_go_and_the_newest_of_each_partition_stays(instance: dg.DagsterInstance) -> None:
    for days in (20, 9, 8, 1):
        tell(instance, days, TABLE_HEALTH)
    for days, node in ((9, "a"), (8, "a"), (20, "b"), (9, "c"), (1, "c")):
        tell(instance, days, DELTA_FILES, node)
    tell(instance, 20, COMPACTED_FILES, "a")
    tell(instance, 19, COMPACTED_FILES, "a")
    assert wipe_old_events(instance, [TABLE_HEALTH, DELTA_FILES], NOW - timedelta(days=7)) == 5
    assert ages(instance, TABLE_HEALTH) == [1]
    assert sorted(ages(instance, DELTA_FILES)) == [1, 8, 20]
    assert ages(instance, COMPACTED_FILES) == [19, 20]
    assert instance.get_materialized_partitions(DELTA_FILES) == {"a", "b", "c"}
    versions = instance.event_log_storage.get_latest_tags_by_partition(
        DELTA_FILES, dg.DagsterEventType.ASSET_MATERIALIZATION, ["dagster/data_version"], ["a", "b", "c"]
    )
    assert {node: of_node["dagster/data_version"] for node, of_node in versions.items()} == {"a": "v8", "b": "v20", "c": "v1"}


def test_events_of_no_run_go_from_the_file_that_sqlite_keeps_for_them(tmp_path: Path) -> None:
    from dagster._core.storage.event_log.schema import SqlEventLogStorageTable
    from dagster._core.storage.event_log.sql_event_log import SqlEventLogStorage

    with dg.DagsterInstance.local_temp(str(tmp_path)) as instance:
        for days in (20, 9, 8, 1):
            tell(instance, days, TABLE_HEALTH)
        assert wipe_old_events(instance, [TABLE_HEALTH], NOW - timedelta(days=7)) == 3
        storage = instance.event_log_storage
        assert isinstance(storage, SqlEventLogStorage)
        with storage.run_connection("") as connection:
            assert connection.execute(select(func.count()).select_from(SqlEventLogStorageTable)).scalar() == 1


def rows_without_run(instance: dg.DagsterInstance) -> int:
    """How many events of no run the storage has, outside of the index where it has one."""
    from dagster._core.storage.event_log.schema import SqlEventLogStorageTable
    from dagster._core.storage.event_log.sql_event_log import SqlEventLogStorage

    storage = instance.event_log_storage
    assert isinstance(storage, SqlEventLogStorage)
    with storage.run_connection("") as connection:
        return int(connection.execute(select(func.count()).select_from(SqlEventLogStorageTable)).scalar() or 0)


def test_the_copies_that_sqlite_keeps_go_and_no_event_is_lost(tmp_path: Path) -> None:
    with dg.DagsterInstance.local_temp(str(tmp_path)) as instance:
        for days in (3, 2, 1):
            tell(instance, days, TABLE_HEALTH)
            tell(instance, days, DELTA_FILES, "a")
        tell(instance, 1, COMPACTED_FILES, "a")
        assert rows_without_run(instance) == 7
        assert wipe_copies(instance, [TABLE_HEALTH, DELTA_FILES], most=2) == 6
        assert rows_without_run(instance) == 1
        assert (ages(instance, TABLE_HEALTH), ages(instance, DELTA_FILES), ages(instance, COMPACTED_FILES)) == ([1, 2, 3], [1, 2, 3], [1])
        assert instance.get_materialized_partitions(DELTA_FILES) == {"a"}
        newest = instance.get_latest_materialization_event(TABLE_HEALTH)
        assert newest is not None
        # The next event is stored as before.
        tell(instance, 0, TABLE_HEALTH)
        assert ages(instance, TABLE_HEALTH) == [0, 1, 2, 3]


def test_a_storage_without_copies_keeps_all_its_events() -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        tell(instance, 1, TABLE_HEALTH)
        tell(instance, 2, TABLE_HEALTH)
        assert wipe_copies(instance, [TABLE_HEALTH]) == 0
        assert sorted(ages(instance, TABLE_HEALTH)) == [1, 2]
