"""Commits to tables of a real Hive metastore overwrite nothing, whatever happens to locks, to answers and to other committers."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hive_metastore.ttypes import FieldSchema, HeartbeatRequest, SerDeInfo, StorageDescriptor
from hive_metastore.ttypes import Table as Row
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException, NoSuchNamespaceError
from pyiceberg.schema import Schema
from pyiceberg.table import StagedTable, Table
from pyiceberg.table.update import SetPropertiesUpdate
from pyiceberg.types import LongType, NestedField

from compaction_pipeline.core.errors import TableRefused
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.work.kinds import CompactionType
from compaction_pipeline.iceberg.catalogs.hive_catalog import BoundedHiveCatalog
from compaction_pipeline.iceberg.catalogs.lock_holder import LockHolder, new_holder
from compaction_pipeline.iceberg.catalogs.rest_catalog import RequestLimits
from compaction_pipeline.iceberg.catalogs.swap_errors import SwapNotAsked, SwapRefused
from compaction_pipeline.iceberg.upkeep.remove_snapshots import Removal, remove
from compaction_pipeline.keyed import KeyedTable
from compaction_pipeline_tests.interop.hive_warehouse import HiveWarehouse
from compaction_pipeline_tests.interop.racing import Say, Tally, compact_while, working
from compaction_pipeline_tests.interop.warehouse import Compactions
from compaction_pipeline_tests.interop.written_by_spark import SparkUpserts
from compaction_pipeline_tests.real_services.hive_metastore import (
    LOCK_TIMEOUT_SECONDS,
    AnswerLost,
    HiveMetastore,
    Late,
    ThriftProxy,
    Unsent,
    thrift_proxy,
)

pytestmark = pytest.mark.interop

_ALTER = "alter_table_with_environment_context"
_DECLARED = {"hive.checks-expected-parameter": "true"}
_NO_LOCK = {"engine.hive.lock-enabled": "false"}
_OVER_THE_TIMEOUT = LOCK_TIMEOUT_SECONDS + 3
"""After so many seconds without a heartbeat the metastore has taken a lock away."""


class Watched(BoundedHiveCatalog):
    """Our catalog, with something that happens when the new metadata file is written, before the swap."""

    meanwhile: Callable[[], object] = staticmethod(lambda: None)

    def write(self, staged: StagedTable) -> None:
        super().write(staged)
        self.meanwhile()


@pytest.fixture
def proxy(metastore: HiveMetastore) -> Iterator[ThriftProxy]:
    with thrift_proxy(metastore.port) as proxy:
        yield proxy


@pytest.fixture
def hive(tmp_path: Path, metastore: HiveMetastore, proxy: ThriftProxy) -> HiveWarehouse:
    """A database with the table `t`. PyIceberg and the product reach it through the proxy."""
    warehouse = HiveWarehouse(tmp_path, metastore, proxy.port)
    made(warehouse, "t")
    return warehouse


def made(hive: HiveWarehouse, name: str) -> Table:
    created: Table = hive.catalog.create_table((hive.database, name), Schema(NestedField(1, "id", LongType())))
    created.append(rows(1, 2))
    return created


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64())})


def ids_of(table: Table) -> list[int]:
    found: list[int] = sorted(table.scan().to_arrow()["id"].to_pylist())
    return found


def watched(hive: HiveWarehouse, wait_seconds: float = 30, **properties: str) -> Watched:
    """The catalog through the proxy. It waits this long for a lock."""
    return Watched("lake", RequestLimits(30, 60, wait_seconds), **{**hive.properties, **properties})


def set_property(catalog: BoundedHiveCatalog, table: Table, value: str) -> Any:
    """Commit a change that demands nothing of the table."""
    return catalog.commit_table(table, (), (SetPropertiesUpdate(updates={"set": value}),))


def metadata_files(hive: HiveWarehouse, table: str = "t") -> set[str]:
    return {path.name for path in (hive.folder / "wh" / table / "metadata").glob("*.metadata.json")}


@contextmanager
def kept_alive(hive: HiveWarehouse, lock_id: int) -> Iterator[None]:
    """Send heartbeats for a lock, so that the metastore never takes it away."""
    stop = threading.Event()

    def beat() -> None:
        while not stop.wait(0.5):
            with hive.asked() as client:
                try:
                    client.heartbeat(HeartbeatRequest(lockid=lock_id))
                except Exception:
                    return

    beats = threading.Thread(target=beat, daemon=True)
    beats.start()
    try:
        yield
    finally:
        stop.set()
        beats.join()


# ---- locks -----------------------------------------------------------------------------------------------------------

_HOLD = """
import sys, time
from compaction_pipeline.iceberg.catalogs.hive_client import connections
from compaction_pipeline.iceberg.catalogs.hive_lock import HiveLock
from compaction_pipeline.iceberg.catalogs.rest_catalog import RequestLimits
with HiveLock(connections({"uri": sys.argv[1]}, RequestLimits()), sys.argv[2], "t").held(30) as lock:
    print("held", flush=True)
    time.sleep(600)
"""


def test_the_lock_of_a_killed_committer_of_ours_is_released(
    hive: HiveWarehouse, metastore: HiveMetastore, caplog: pytest.LogCaptureFixture
) -> None:
    command = [sys.executable, "-c", _HOLD, metastore.properties()["uri"], hive.database]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as committer:
        assert committer.stdout is not None
        assert committer.stdout.readline() == b"held\n"
        [lock] = hive.locks()
        with kept_alive(hive, lock.lockid):
            with pytest.raises(CommitFailedException, match=rf"held by .*lock {lock.lockid}, compaction-pipeline/.*/{committer.pid}/"):
                set_property(watched(hive, 0.5), hive.table(), "refused, because its process is alive")
            committer.kill()
            committer.wait()
            set_property(watched(hive, 3, **_DECLARED), hive.table(), "committed")
    assert hive.table().properties["set"] == "committed"
    assert hive.locks() == []
    assert f"lock {lock.lockid} on {hive.database}.t was left by compaction-pipeline/" in caplog.text


_LATE = """
import json, sys
from pyiceberg.exceptions import CommitStateUnknownException
from pyiceberg.table.update import SetPropertiesUpdate
from compaction_pipeline.iceberg.catalogs.hive_catalog import BoundedHiveCatalog
from compaction_pipeline.iceberg.catalogs.rest_catalog import RequestLimits
catalog = BoundedHiveCatalog("lake", RequestLimits(5, 8, 30), **json.loads(sys.argv[1]))
try:
    catalog.commit_table(catalog.load_table((sys.argv[2], "t")), (), (SetPropertiesUpdate(updates={"set": "late"}),))
except CommitStateUnknownException:
    print("UNKNOWN")
"""


def test_the_lock_of_a_swap_that_may_still_land_outlives_its_process(hive: HiveWarehouse, proxy: ThriftProxy) -> None:
    """Nothing says here that the metastore checks what a swap replaces, so a late one would undo what others committed meanwhile."""
    late = Late()
    with proxy.fault(_ALTER, late):
        command = [sys.executable, "-c", _LATE, json.dumps(hive.properties), hive.database]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert done.stdout == "UNKNOWN\n", done.stderr
        [lock] = hive.locks()
        with kept_alive(hive, lock.lockid), pytest.raises(CommitFailedException, match=f"lock {lock.lockid}"):
            set_property(watched(hive, 1), hive.table(), "of the next process")
        late.land.set()
        assert late.landed.wait(30)
    assert hive.table().properties["set"] == "late"


@pytest.mark.parametrize(
    "agent",
    [
        "Iceberg-0c0a6ae1-2ab8-4a3b-9f3a-7f6a3f1f4c0b",
        str(LockHolder("elsewhere", new_holder().machine, 1, 1, "abc")),
        str(LockHolder(new_holder().host, "0123456789abcdef", 1, 1, "abc")),
        str(LockHolder(new_holder().host, "", 1, 1, "abc")),
    ],
    ids=["of Java", "of another host", "of another container", "of a host without numbers"],
)
def test_the_lock_of_others_is_told_and_never_released(agent: str, hive: HiveWarehouse) -> None:
    lock_id = hive.lock(agent=agent)
    table = hive.table()
    with kept_alive(hive, lock_id):
        with pytest.raises(CommitFailedException, match=rf"held by writer on elsewhere \(lock {lock_id}, {agent}\)"):
            set_property(watched(hive, 0.5), table, "x")
        assert [lock.lockid for lock in hive.locks()] == [lock_id]
    hive.unlock(lock_id)


def test_heartbeats_keep_the_lock_while_a_large_metadata_file_is_written(hive: HiveWarehouse) -> None:
    catalog, seen = watched(hive), list[list[int]]()

    def write_slowly() -> None:
        threading.Event().wait(_OVER_THE_TIMEOUT)
        seen.append([lock.lockid for lock in hive.locks()])

    catalog.meanwhile = write_slowly
    set_property(catalog, hive.table(), "slow")
    assert len(seen[0]) == 1
    assert hive.table().properties["set"] == "slow"
    assert hive.locks() == []


def test_a_lock_that_is_lost_meanwhile_ends_the_commit_before_the_swap(hive: HiveWarehouse, proxy: ThriftProxy) -> None:
    catalog, before, files = watched(hive), hive.table(), metadata_files(hive)
    catalog.meanwhile = lambda: hive.unlock(hive.locks()[0].lockid)
    proxy.calls.clear()
    with pytest.raises(CommitFailedException, match=r"took the lock .* away before the swap"):
        set_property(catalog, before, "x")
    assert _ALTER not in proxy.calls
    assert hive.table().metadata_location == before.metadata_location
    assert metadata_files(hive) == files


@pytest.mark.parametrize("fault", [Unsent(), AnswerLost()])
def test_an_unlock_that_fails_after_a_swap_is_a_commit(fault: Any, hive: HiveWarehouse, proxy: ThriftProxy) -> None:
    catalog = watched(hive, 3)
    with proxy.fault("unlock", fault):
        answer = set_property(catalog, hive.table(), "first")
    assert hive.table().metadata_location == answer.metadata_location
    # What stayed of it is known to be ours, and stops nobody of this process.
    left = hive.locks()
    assert len(left) == (1 if fault == Unsent() else 0)
    for lock in left:
        with kept_alive(hive, lock.lockid):
            set_property(catalog, hive.table(), "second")
    assert hive.locks() == []


def test_a_lock_whose_answer_is_lost_is_released(hive: HiveWarehouse, proxy: ThriftProxy) -> None:
    with proxy.fault("lock", AnswerLost()), pytest.raises(SwapNotAsked, match="does not give its lock"):
        set_property(watched(hive), hive.table(), "x")
    assert hive.locks() == []


# ---- the swap --------------------------------------------------------------------------------------------------------


def test_a_commit_on_metadata_that_is_not_the_newest_is_refused(hive: HiveWarehouse) -> None:
    stale = hive.table()
    hive.table().append(rows(3))
    files = metadata_files(hive)
    with pytest.raises(CommitFailedException, match="which was looked at"):
        set_property(watched(hive), stale, "x")
    assert "set" not in hive.table().properties
    assert metadata_files(hive) == files


def test_the_metastore_refuses_a_swap_that_others_overtook(hive: HiveWarehouse) -> None:
    with hive.table().transaction() as change:
        change.set_properties(_NO_LOCK)
    catalog, table, files = watched(hive, **_DECLARED), hive.table(), metadata_files(hive)
    other = watched(hive, **_DECLARED)
    catalog.meanwhile = lambda: set_property(other, table, "of the other")
    with pytest.raises(CommitFailedException, match="The table has been modified"):
        set_property(catalog, table, "x")
    now = hive.table()
    assert now.properties["set"] == "of the other"
    assert metadata_files(hive) - files == {now.metadata_location.rpartition("/")[2]}


def test_tables_without_locks_need_a_metastore_that_is_declared_to_check(hive: HiveWarehouse, proxy: ThriftProxy) -> None:
    table = hive.table()
    set_property(watched(hive), table, "with lock")
    with hive.table().transaction() as change:
        change.set_properties(_NO_LOCK)
    proxy.calls.clear()
    with pytest.raises(SwapRefused, match=r"hive\.checks-expected-parameter=true on the catalog"):
        set_property(watched(hive), hive.table(), "x")
    with pytest.raises(SwapRefused, match="it only observes"):
        set_property(watched(hive, **{"hive.locks": "other"}), hive.table(), "x")
    assert not {"lock", _ALTER} & set(proxy.calls)
    set_property(watched(hive, **_DECLARED), hive.table(), "checked")
    set_property(watched(hive, **_DECLARED, **{"hive.locks": "other"}), hive.table(), "checked again")
    assert hive.table().properties["set"] == "checked again"
    assert "lock" not in proxy.calls


def test_a_commit_that_changes_nothing_tells_the_metadata_that_is_there(hive: HiveWarehouse) -> None:
    table, files = hive.table(), metadata_files(hive)
    assert watched(hive).commit_table(table, (), ()).metadata_location == table.metadata_location
    assert metadata_files(hive) == files


def test_a_metadata_file_that_cannot_be_written_leaves_nothing(hive: HiveWarehouse) -> None:
    catalog, files, table = watched(hive), metadata_files(hive), hive.table()

    def fail() -> None:
        raise OSError("no space left on device")

    catalog.meanwhile = fail
    with pytest.raises(SwapNotAsked, match="cannot be written: no space left"):
        set_property(catalog, table, "x")
    assert metadata_files(hive) == files
    assert hive.locks() == []


# ---- answers that are lost -------------------------------------------------------------------------------------------


def test_a_swap_whose_answer_is_lost_is_found_in_the_table(hive: HiveWarehouse, proxy: ThriftProxy) -> None:
    with proxy.fault(_ALTER, AnswerLost()):
        answer = set_property(watched(hive), hive.table(), "landed")
    assert hive.table().metadata_location == answer.metadata_location
    assert hive.locks() == []


@pytest.mark.parametrize("declared", [{}, _DECLARED], ids=["not declared", "declared"])
def test_a_swap_that_may_still_land_deletes_nothing(declared: dict[str, str], hive: HiveWarehouse, proxy: ThriftProxy) -> None:
    late, catalog, files = Late(), watched(hive, **declared), metadata_files(hive)
    with proxy.fault(_ALTER, late), pytest.raises(CommitStateUnknownException):
        set_property(catalog, hive.table(), "late")
    assert len(metadata_files(hive) - files) == 1
    # Nobody else may commit before it unless the metastore refuses it then.
    assert len(hive.locks()) == (0 if declared else 1)
    if declared:
        set_property(watched(hive), hive.table(), "of the other")
    late.land.set()
    assert late.landed.wait(30)
    assert hive.table().properties["set"] == ("of the other" if declared else "late")


# ---- what there is ---------------------------------------------------------------------------------------------------


def test_tables_of_other_kinds_are_named(hive: HiveWarehouse) -> None:
    def other(
        name: str, kind: str = "EXTERNAL_TABLE", input_format: str = "org.apache.hadoop.mapred.TextInputFormat", **parameters: str
    ) -> None:
        location = f"file://{hive.folder}/wh/{name}" if not kind.endswith("VIEW") else None
        sd = StorageDescriptor([FieldSchema("a", "int", "")], location, input_format, "x", serdeInfo=SerDeInfo(serializationLib="x"))
        text = {"viewOriginalText": "SELECT 1", "viewExpandedText": "SELECT 1"} if kind.endswith("VIEW") else {}
        with hive.asked() as client:
            client.create_table(Row(name, hive.database, "o", 0, 0, 0, sd, [], {"EXTERNAL": "TRUE", **parameters}, tableType=kind, **text))

    other("text")
    other("lake", **{"spark.sql.sources.provider": "delta"})
    other("water", storage_handler="org.apache.paimon.hive.PaimonStorageHandler")
    other("v", "VIRTUAL_VIEW")
    other("w", "VIRTUAL_VIEW", table_type="iceberg-view")
    found = {name.partition(".")[2]: kind for name, kind, _ in hive.catalog.others() if name.startswith(f"{hive.database}.")}
    assert found == {
        "text": "a table of Hive (TextInputFormat)",
        "lake": "a Delta table",
        "water": "a Paimon table",
        "v": "a view",
        "w": "a view of Iceberg",
    }
    assert list(hive.catalog.list_tables(hive.database)) == [(hive.database, "t")]
    listed = hive.catalogs.listing("lake").others
    assert {name.rpartition(".")[2]: kind for name, kind in listed.items() if f".{hive.database}." in name} == found
    with pytest.raises(TableRefused, match=r"\.water is a Paimon table, not an Iceberg table"):
        hive.catalogs.load(TableIdentifier("lake", (hive.database,), "water"))


def test_a_listing_tells_the_metadata_locations_without_loads(hive: HiveWarehouse, proxy: ThriftProxy) -> None:
    made(hive, "u")
    expected = {TableIdentifier("lake", (hive.database,), name): hive.table(name).metadata_location for name in ("t", "u")}
    proxy.calls.clear()
    found = hive.catalogs.locations("lake")
    assert {table: location for table, location in found.items() if table.namespace == (hive.database,)} == expected
    assert "get_table" not in proxy.calls
    with pytest.raises(NoSuchNamespaceError):
        hive.catalog.list_tables("nowhere")


# ---- the program beside Spark ----------------------------------------------------------------------------------------


def test_a_compaction_whose_answer_is_late_is_found_by_the_next_one(hive: HiveWarehouse, proxy: ThriftProxy) -> None:
    for number in range(3, 8):
        hive.table().append(rows(number))
    product, late = Compactions(hive), Late()
    with proxy.fault(_ALTER, late):
        first = product.compact(CompactionType.FULL)
    assert first.unknown
    late.land.set()
    assert late.landed.wait(30)
    second = product.compact(CompactionType.FULL)
    product.close()
    assert not second.unknown
    assert not second.failed
    table = hive.table()
    assert ids_of(table) == [1, 2, 3, 4, 5, 6, 7]
    assert [one.summary.operation.value for one in table.metadata.snapshots].count("replace") == 1


def test_changes_of_a_keyed_table_are_merged_and_read(hive: HiveWarehouse) -> None:
    schema = Schema(NestedField(1, "id", LongType(), required=True), NestedField(2, "v", LongType()), identifier_field_ids=[1])
    keyed = KeyedTable.create(hive.catalog, (hive.database, "k"), schema, ["id"], buckets=1, upsert=True)

    def change(*changes: tuple[str, int, int]) -> None:
        kinds, ids, values = zip(*changes, strict=True)
        columns = {"id": pa.array(ids, pa.int64()), "v": pa.array(values, pa.int64()), "_change_type": pa.array(kinds)}
        keyed.write_changes(pa.table(columns))

    change(("INSERT", 1, 1), ("INSERT", 2, 1), ("INSERT", 3, 1))
    change(("DELETE", 2, 1), ("UPDATE_AFTER", 3, 2))
    product = Compactions(hive)
    done = product.compact(CompactionType.FULL, "k")
    product.close()
    assert not done.failed
    assert [record.committed_task_ids for record in done.records if record.committed_task_ids]
    expected = [{"id": 1, "v": 1}, {"id": 3, "v": 2}]
    assert sorted(hive.table("k").scan().to_arrow().to_pylist(), key=lambda row: row["id"]) == expected
    assert sorted(KeyedTable.open(hive.catalog, (hive.database, "k")).scan().to_arrow().to_pylist(), key=lambda row: row["id"]) == expected
    assert hive.locks("k") == hive.locks("k_change_") == []


def test_snapshots_are_not_removed_under_a_tag_that_was_made_meanwhile(hive: HiveWarehouse) -> None:
    hive.table().append(rows(3))
    looked_at = hive.table()
    old = looked_at.metadata.snapshots[0].snapshot_id
    hive.table().manage_snapshots().create_tag(old, "kept").commit()
    with pytest.raises(CommitFailedException):
        remove(looked_at, Removal([old], []))
    assert hive.table().metadata.snapshot_by_name("kept") is not None
    hive.table().manage_snapshots().remove_tag("kept").commit()
    remove(hive.table(), Removal([old], []))
    assert ids_of(hive.table()) == [1, 2, 3]
    assert hive.table().metadata.snapshot_by_id(old) is None


def several(tally: Tally) -> bool:
    return tally.committed > 1


@pytest.mark.parametrize("seconds", [10, pytest.param(300, marks=[pytest.mark.long, pytest.mark.timeout(1800)])])
def test_rows_stay_exact_while_spark_writes_through_the_same_metastore(
    seconds: int, tmp_path: Path, metastore: HiveMetastore, iceberg_spark: Any, say: Say
) -> None:
    warehouse = HiveWarehouse(tmp_path, metastore)
    warehouse.register(iceberg_spark)
    upserts = SparkUpserts(warehouse, Random(seconds))
    for _ in range(3):
        upserts.write()
    product = Compactions(warehouse)
    with working(upserts.write) as running:
        tally = compact_while(running, product, several, seconds)
    product.close()
    say(f"Spark through Hive, {seconds} s: {upserts.commits} statements, {upserts.overtaken} run again; {tally}")
    assert several(tally)
    warehouse.check(upserts.rows.values())
    assert warehouse.locks() == []
    with warehouse.asked() as client:
        parameters = client.get_table(warehouse.database, "t").parameters
    head = warehouse.table().metadata.current_snapshot()
    assert parameters["current-snapshot-id"] == str(head.snapshot_id)
    assert parameters["numRows"] == head.summary.additional_properties["total-records"]
