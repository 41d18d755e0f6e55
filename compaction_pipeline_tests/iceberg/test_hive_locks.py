"""Who holds a lock of a metastore is told from `agentInfo`, and a commit changes in the metastore only what it has changed."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest
from hive_metastore.ttypes import FieldSchema, SerDeInfo, StorageDescriptor
from hive_metastore.ttypes import Table as Row

from compaction_pipeline.iceberg.catalogs.hive_lock import seconds_of
from compaction_pipeline.iceberg.catalogs.hive_tables import set_committed
from compaction_pipeline.iceberg.catalogs.lock_holder import HELD, LockHolder, holder_in, is_gone, new_holder


def test_a_metastore_keeps_the_whole_name_of_a_holder() -> None:
    longest = LockHolder("h" * 40, new_holder().machine, 4_194_304, 10**12, new_holder().token)
    assert len(str(longest)) <= 128
    assert holder_in(str(longest)) == longest


@pytest.mark.parametrize("agent", [None, "", "Unknown", "Iceberg-0c0a6ae1", "compaction-pipeline/host/abc/x/1/abc"])
def test_what_another_program_wrote_names_no_holder(agent: str | None) -> None:
    assert holder_in(agent) is None


def test_a_lock_of_this_process_is_left_when_the_process_does_not_hold_it_any_more() -> None:
    holder = new_holder()
    HELD.add(holder.token)
    assert not is_gone(holder)
    HELD.leave(holder.token, 60)
    assert not is_gone(holder)
    HELD.leave(holder.token, 0)
    assert is_gone(holder)
    HELD.add(holder.token)
    HELD.remove(holder.token)
    assert is_gone(holder)


def test_a_process_is_gone_when_none_has_its_number_and_its_start() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        alive = _holder_of(process.pid)
        assert not is_gone(alive)
        # The number was given again.
        assert is_gone(replace(alive, started=alive.started - 1))
        # Nobody can tell for another host, for another container on it, or where hosts cannot be told apart.
        for other in ({"host": "elsewhere"}, {"machine": "0" * 16}, {"machine": ""}):
            assert not is_gone(replace(alive, started=alive.started - 1, **other))
        process.kill()
        # Its parent has not reaped it yet.
        while not is_gone(alive):
            pass
    assert is_gone(alive)


def _holder_of(pid: int) -> LockHolder:
    code = "from compaction_pipeline.iceberg.catalogs.lock_holder import _started; print(_started(int(input())))"
    started = subprocess.run([sys.executable, "-c", code], input=str(pid), capture_output=True, text=True, check=True).stdout
    return replace(new_holder(), pid=pid, started=int(started))


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("300s", 300),
        ("300", 300),
        ("4s", 4),
        ("5min", 300),
        ("500ms", 0.5),
        ("1d", 86_400),
        ("2 hours", 7_200),
        ("", None),
        ("soon", None),
        ("0s", None),
    ],
)
def test_a_time_of_hives_configuration_is_read(text: str, seconds: float | None) -> None:
    assert seconds_of(text) == seconds


def test_a_commit_changes_only_what_it_changed(lake: Any) -> None:
    made = lake.table(properties={"gone": "1", "kept": "2", "gc.enabled": "true"})
    before = lake.catalog.load_table(("db", "t"))
    sd = StorageDescriptor(
        [FieldSchema("id", "bigint", "")], "l", "HiveIcebergInputFormat", "o", serdeInfo=SerDeInfo(serializationLib="HiveIcebergSerDe")
    )
    parameters = {
        "EXTERNAL": "TRUE",
        "table_type": "ICEBERG",
        "metadata_location": before.metadata_location,
        "storage_handler": "HiveIcebergStorageHandler",
        "of-hive": "stays",
        "gone": "1",
        "kept": "another value, which Hive has set",
        "external.table.purge": "true",
        "numRows": "0",
        "current-snapshot-id": "1",
        "current-snapshot-summary": "{}",
    }
    row = Row("t", "db", sd=sd, parameters=dict(parameters))
    made.ids(1, 2, 3)
    with lake.catalog.load_table(("db", "t")).transaction() as change:
        change.remove_properties("gone")
        change.set_properties({"gc.enabled": "false", "new": "3", "table_type": "nonsense"})
    after = lake.catalog.load_table(("db", "t")).metadata
    set_committed(row, before, after, "s3://new.json")
    assert row.sd is sd
    changed = {
        key: row.parameters.get(key) for key in parameters.keys() | row.parameters.keys() if row.parameters.get(key) != parameters.get(key)
    }
    summary = changed.pop("current-snapshot-summary")
    assert '"total-records": "3"' in str(summary)
    assert changed == {
        "metadata_location": "s3://new.json",
        "previous_metadata_location": before.metadata_location,
        "gone": None,
        "new": "3",
        "external.table.purge": "false",
        "numRows": "3",
        "current-snapshot-id": str(after.current_snapshot_id),
    }
