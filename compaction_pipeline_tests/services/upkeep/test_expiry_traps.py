"""Tables at which an expiry could delete what is needed: two snapshots that share a statistics file, and a table without a uuid."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import urlsplit

from pyiceberg.table.statistics import BlobMetadata, StatisticsFile

from compaction_pipeline.core.upkeep.record import UpkeepStatus
from compaction_pipeline_tests.services.house import House
from compaction_pipeline_tests.services.upkeep.expiring import DAY, compacted, expire, finished, snapshots


def statistics(snapshot_id: int, path: str) -> StatisticsFile:
    blob = BlobMetadata(type="apache-datasketches-theta-v1", snapshot_id=snapshot_id, sequence_number=1, fields=[1])
    return StatisticsFile(
        snapshot_id=snapshot_id, statistics_path=path, file_size_in_bytes=1, file_footer_size_in_bytes=1, blob_metadata=[blob]
    )


def test_a_puffin_file_that_two_snapshots_share_stays_with_the_second_one(house: House) -> None:
    table = compacted(house)
    old, new = (one.snapshot_id for one in snapshots(table))
    metadata = Path(urlsplit(table.table.location()).path) / "metadata"
    shared = metadata / "shared.puffin"
    shared.write_bytes(b"x")
    for snapshot_id in (old, new):
        with table.table.refresh().update_statistics() as update:
            update.set_statistics(statistics(snapshot_id, f"file://{shared}"))
    house.pass_time(6 * DAY)
    done = finished(house, table)
    assert (done.status, done.deleted.statistics_files) == (UpkeepStatus.DONE, 0)
    assert shared.exists()
    # The second snapshot goes, and then nothing has the file.
    table.delete_ids(1)
    house.pass_time(6 * DAY)
    assert finished(house, table).deleted.statistics_files == 1
    assert not shared.exists()


def test_a_table_without_uuid_loses_nothing(house: House) -> None:
    """PyIceberg invents a uuid for it at each load, so two tables of one name could not be told apart."""
    table = compacted(house, format_version="1")
    path = Path(urlsplit(table.table.refresh().metadata_location).path)
    content = json.loads(path.read_text())
    del content["table-uuid"]
    path.write_text(json.dumps(content))
    house.pass_time(6 * DAY)
    (store,) = expire(house, table).stores
    assert "names no uuid" in str(store.refusal)
    assert len(snapshots(table)) == 2
