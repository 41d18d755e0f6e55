"""What Spark and Flink do after an expiry of ours: jobs that start again, time travel, and commits that began before it.

A streaming job that starts again asks the table's history for what it has committed. Each test of that has a second half, in which
Iceberg's own expiry removes that snapshot: there the job writes its last batch twice, so the first half could fail.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import pytest
from py4j.java_gateway import JavaGateway
from pyiceberg.exceptions import NoSuchTableError

from compaction_pipeline.core.tables.table import CatalogEntry, TableIdentifier
from compaction_pipeline.core.upkeep.file_names import is_of_flink
from compaction_pipeline.core.work.kinds import CompactionType
from compaction_pipeline.settings import Settings
from compaction_pipeline_tests.interop.flink import Flink, Stream, gateway
from compaction_pipeline_tests.interop.kafka_connect import KafkaConnect
from compaction_pipeline_tests.interop.peers import kafka_connect_jars
from compaction_pipeline_tests.interop.warehouse import Compactions, Warehouse
from compaction_pipeline_tests.opened import OpenedServices

pytestmark = pytest.mark.interop

_PATIENCE_SECONDS = 180
OURS_AND_ICEBERGS = pytest.mark.parametrize("whose", ["ours", "Iceberg's"])


def create(warehouse: Warehouse, *properties: str) -> None:
    """A table whose snapshots are old at once, and whose files need not wait."""
    settings = ", ".join(
        ["'format-version'='2'", "'history.expire.max-snapshot-age-ms'='0'", "'compaction.expire.grace'='0s'", *properties]
    )
    warehouse.sql(f"CREATE TABLE {{t}} (id BIGINT) USING iceberg TBLPROPERTIES ({settings})")


def expire(warehouse: Warehouse, compactions: Compactions, whose: str = "ours", table: str = "t") -> None:
    """Remove old snapshots, and then the files that only they needed."""
    if whose == "ours":
        for _ in range(2):
            expired = compactions.services.expire_snapshots.expire(TableIdentifier("lake", ("db",), table))
            assert [store.refusal for store in expired.stores] == [None]
    else:
        now = datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M:%S.%f")
        warehouse.sql(f"CALL {{c}}.system.expire_snapshots(table => 'db.t', older_than => TIMESTAMP '{now}', retain_last => 1)")


def ids(warehouse: Warehouse) -> list[int]:
    return sorted(row["id"] for row in warehouse.sql("SELECT id FROM {t}"))


def snapshots(warehouse: Warehouse, table: str = "t") -> list[int]:
    """The ids of the snapshots, oldest first; none while the table does not exist."""
    try:
        return [one.snapshot_id for one in warehouse.table(table).metadata.snapshots]
    except NoSuchTableError:
        return []


# ---- jobs that start again -------------------------------------------------------------------------------------------


class SparkJob:
    """A structured stream of Spark that appends what lies in a folder. Its checkpoint is kept between runs."""

    def __init__(self, warehouse: Warehouse, folder: Path) -> None:
        self._warehouse = warehouse
        self._source, self._checkpoint = folder / "source", folder / "checkpoint"
        self._source.mkdir()

    def write(self, *numbers: int) -> None:
        for number in numbers:
            (self._source / f"{number}.json").write_text(f'{{"id": {number}}}\n')
        self.start()

    def start(self) -> None:
        frame = self._warehouse.spark.readStream.schema("id BIGINT").json(str(self._source))
        writing = frame.writeStream.format("iceberg").outputMode("append").option("checkpointLocation", str(self._checkpoint))
        writing.trigger(availableNow=True).toTable(f"{self._warehouse.name}.db.t").awaitTermination()

    def forget_last_batch(self) -> None:
        """Leave the checkpoint as a process does that is killed right after its commit to the table."""
        commits = sorted((path for path in (self._checkpoint / "commits").iterdir() if path.name.isdigit()), key=lambda one: int(one.name))
        commits[-1].unlink()
        (commits[-1].parent / f".{commits[-1].name}.crc").unlink(missing_ok=True)


@OURS_AND_ICEBERGS
def test_a_stream_of_spark_that_starts_again_writes_nothing_twice(
    warehouse: Warehouse, compactions: Compactions, tmp_path: Path, whose: str
) -> None:
    create(warehouse)
    job = SparkJob(warehouse, tmp_path)
    for number in range(3):
        job.write(number)
    job.forget_last_batch()
    assert compactions.compact(CompactionType.MINOR).committed
    warehouse.sql("INSERT INTO {t} VALUES (100)")
    before = snapshots(warehouse)
    expire(warehouse, compactions, whose)
    assert len(snapshots(warehouse)) < len(before)
    job.start()
    assert ids(warehouse) == ([0, 1, 2, 100] if whose == "ours" else [0, 1, 2, 2, 100])
    job.write(3)
    assert ids(warehouse)[-2:] == [3, 100]


def test_a_stream_of_flink_that_is_restored_writes_nothing_twice(
    warehouse: Warehouse, compactions: Compactions, tmp_path: Path, flink_jvm: Any
) -> None:
    """Only with our expiry: after Iceberg's own the job would fail, because Flink deletes the list of files that it has committed."""
    stream = Flink(flink_jvm, warehouse.name, warehouse.flink_catalog).stream([], 50, tmp_path / "savepoints")
    _until(lambda: len(snapshots(warehouse, "taken")) > 3, stream)
    stream.stop()
    (savepoint,) = (tmp_path / "savepoints").iterdir()
    warehouse.sql("ALTER TABLE {t} SET TBLPROPERTIES ('history.expire.max-snapshot-age-ms'='0', 'compaction.expire.grace'='0s')", "taken")
    assert compactions.compact(CompactionType.MINOR, "taken").committed
    warehouse.sql("INSERT INTO {t} VALUES (-1)", "taken")
    before = snapshots(warehouse, "taken")
    expire(warehouse, compactions, table="taken")
    assert 1 < len(snapshots(warehouse, "taken")) < len(before)
    last = max(numbers(warehouse))
    stream = Flink(flink_jvm, warehouse.name, warehouse.flink_catalog, restored_from=str(savepoint)).stream([], 50, tmp_path / "savepoints")
    _until(lambda: max(numbers(warehouse)) > last + 50, stream)
    stream.stop()
    found = numbers(warehouse)
    assert found == [-1, *range(1, found[-1] + 1)]


@pytest.fixture(scope="module")
def kafka_connect_gateway() -> Iterator[JavaGateway]:
    """A JVM with Iceberg's connector, which is fetched on first use."""
    with gateway(kafka_connect_jars()) as to_java:
        yield to_java


@OURS_AND_ICEBERGS
def test_a_sink_of_kafka_connect_that_starts_again_writes_nothing_twice(
    warehouse: Warehouse, compactions: Compactions, kafka_connect_gateway: JavaGateway, whose: str
) -> None:
    create(warehouse)
    connector = KafkaConnect(kafka_connect_gateway, warehouse)
    for number in range(3):
        connector.written(number)
        connector.start()
        assert ids(warehouse) == list(range(number + 1)), "each start reads the whole topic"
    assert compactions.compact(CompactionType.MINOR).committed
    warehouse.sql("INSERT INTO {t} VALUES (100)")
    before = snapshots(warehouse)
    expire(warehouse, compactions, whose)
    assert len(snapshots(warehouse)) < len(before)
    if whose == "ours":
        connector.start()
        assert ids(warehouse) == [0, 1, 2, 100]
        connector.written(3)
        connector.start()
        assert ids(warehouse) == [0, 1, 2, 3, 100]
    else:
        # The files of the first two batches may be gone, so the rows are not counted.
        connector.start()
        last = warehouse.table().current_snapshot()
        assert last.summary["added-data-files"] == "3"


@pytest.mark.parametrize("days", [4, pytest.param(30, marks=pytest.mark.long)])
def test_a_checkpoint_of_flink_from_before_a_deletion_of_orphans_loses_nothing_and_writes_nothing_twice(
    warehouse: Warehouse, tmp_path: Path, flink_jvm: Any, days: int
) -> None:
    """The job dies between its checkpoint and the commit of the files that the checkpoint names."""
    checkpoint = checkpoint_before_its_commit(warehouse, flink_jvm, tmp_path / "checkpoints")
    # The failed commit left newer metadata. A look takes that for a pointer that was set back, until a commit lands.
    warehouse.sql("INSERT INTO {t} VALUES (-1)", "taken")
    committed, location = numbers(warehouse), Path(urlsplit(warehouse.table("taken").location()).path)
    stray = location / "data" / f"00000-7-{uuid4()}-00001.parquet"
    stray.write_bytes(b"12345")
    waiting = [path for path in (location / "metadata").iterdir() if is_of_flink(str(path))]
    assert waiting
    now = [datetime.now(timezone.utc) + timedelta(days=days)]
    services = OpenedServices(Settings(home=tmp_path / "state"), clock=lambda: now[0])
    services.stores.catalogs.add(CatalogEntry("lake", warehouse.properties))
    table = TableIdentifier("lake", ("db",), "taken")
    assert services.clean_orphans.look(table).refusals == ()
    now[0] += timedelta(days=1)
    cleaned = services.clean_orphans.delete(table, accept_share=1.0)
    assert (cleaned.refusals, cleaned.problem) == ((), None)
    services.close()
    # Files of a table that a stream writes are young for a week.
    assert stray.exists() == (days < 7)
    assert all(path.exists() for path in waiting)
    flink = Flink(flink_jvm, warehouse.name, warehouse.flink_catalog, restored_from=str(checkpoint))
    stream = flink.stream([], 50, tmp_path / "savepoints")
    _until(lambda: max(numbers(warehouse)) > max(committed) + 100, stream)
    stream.stop()
    found = numbers(warehouse)
    assert found == [-1, *range(1, found[-1] + 1)]


def checkpoint_before_its_commit(warehouse: Warehouse, flink_jvm: Any, folder: Path) -> Path:
    """Let a stream fail while it commits what its newest checkpoint names. Returns that checkpoint."""
    impatient = {**warehouse.flink_catalog, "uri": f"jdbc:sqlite:{warehouse.folder}/catalog.db?busy_timeout=500"}
    stream = Flink(flink_jvm, warehouse.name, impatient, checkpoints=folder).stream([], 50, folder / "savepoints")
    _until(lambda: len(snapshots(warehouse, "taken")) > 3, stream)
    with closing(sqlite3.connect(warehouse.folder / "catalog.db", timeout=60, isolation_level=None)) as catalog:
        # The catalog can be read, and nobody can commit.
        catalog.execute("BEGIN IMMEDIATE")
        _until(lambda: not stream.running)
        catalog.execute("ROLLBACK")
    with pytest.raises(Exception, match=r"(?i)failed|exception"):
        stream.wait()
    made = [path for path in folder.glob("*/chk-*") if (path / "_metadata").exists()]
    return max(made, key=lambda path: int(path.name.removeprefix("chk-")))


def numbers(warehouse: Warehouse) -> list[int]:
    return sorted(row["n"] for row in warehouse.sql("SELECT n FROM {t}", "taken"))


def _until(holds: Callable[[], bool], stream: Stream | None = None) -> None:
    """Look again and again. Raises the error of a stream that ended meanwhile."""
    until = time.monotonic() + _PATIENCE_SECONDS
    while not holds():
        if stream is not None and not stream.running:
            stream.wait()
        assert time.monotonic() < until
        time.sleep(0.2)


# ---- time travel -----------------------------------------------------------------------------------------------------


def test_time_travel_finds_the_right_snapshot_or_says_that_there_is_none(warehouse: Warehouse, compactions: Compactions) -> None:
    create(warehouse, "'history.expire.min-snapshots-to-keep'='2'")
    times = []
    for number in range(5):
        warehouse.sql(f"INSERT INTO {{t}} VALUES ({number})")
        times.append(datetime.now(timezone.utc))
        time.sleep(0.05)

    def rows_at(at: datetime) -> list[int]:
        text = at.astimezone(timezone.utc).strftime("%Y-%m-%d %H:%M:%S.%f")
        return sorted(row["id"] for row in warehouse.sql(f"SELECT id FROM {{t}} TIMESTAMP AS OF '{text}'"))

    assert [rows_at(at) for at in times] == [list(range(count)) for count in range(1, 6)]
    expire(warehouse, compactions)
    assert len(snapshots(warehouse)) == 2
    for at in times[:3]:
        with pytest.raises(Exception, match=r"(?i)cannot find a snapshot older than"):
            rows_at(at)
    assert [rows_at(at) for at in times[3:]] == [list(range(4)), list(range(5))]


def test_time_travel_across_a_rollback_never_answers_with_a_snapshot_that_was_not_current(
    warehouse: Warehouse, compactions: Compactions
) -> None:
    create(warehouse)
    for number in range(3):
        warehouse.sql(f"INSERT INTO {{t}} VALUES ({number})")
    first = snapshots(warehouse)[0]
    between = datetime.now(timezone.utc)
    time.sleep(0.05)
    # The oldest snapshot is the current one again, so the log names it before and after the two that go.
    warehouse.sql(f"CALL {{c}}.system.rollback_to_snapshot('db.t', {first})")
    time.sleep(0.05)
    after = datetime.now(timezone.utc) - timedelta(milliseconds=20)
    expire(warehouse, compactions)
    assert snapshots(warehouse) == [first]
    text = between.strftime("%Y-%m-%d %H:%M:%S.%f")
    with pytest.raises(Exception, match=r"(?i)cannot find a snapshot older than"):
        warehouse.sql(f"SELECT id FROM {{t}} TIMESTAMP AS OF '{text}'")
    text = after.strftime("%Y-%m-%d %H:%M:%S.%f")
    assert [row["id"] for row in warehouse.sql(f"SELECT id FROM {{t}} TIMESTAMP AS OF '{text}'")] == [0]


# ---- commits of others that began before -----------------------------------------------------------------------------


def java_table(warehouse: Warehouse) -> Any:
    spark = warehouse.spark
    return spark._jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, f"{warehouse.name}.db.t")


def staged_between(warehouse: Warehouse) -> int:
    """A table with the rows 1 and 3. The row 2 is staged, in the snapshot that is returned."""
    create(warehouse, "'write.wap.enabled'='true'")
    warehouse.sql("INSERT INTO {t} VALUES (1)")
    warehouse.spark.conf.set("spark.wap.id", "audit")
    try:
        warehouse.sql("INSERT INTO {t} VALUES (2)")
    finally:
        warehouse.spark.conf.unset("spark.wap.id")
    staged = snapshots(warehouse)[-1]
    warehouse.sql("INSERT INTO {t} VALUES (3)")
    return staged


def test_a_cherry_pick_that_began_before_an_expiry_lands_with_all_its_rows(warehouse: Warehouse, compactions: Compactions) -> None:
    staged = staged_between(warehouse)
    warehouse.sql("ALTER TABLE {t} SET TBLPROPERTIES ('history.expire.max-snapshot-age-ms'='3600000')")
    table = java_table(warehouse)
    picking = table.manageSnapshots().cherrypick(staged)
    before = snapshots(warehouse)
    expire(warehouse, compactions)
    assert snapshots(warehouse) == before, "a staged snapshot is young, and so are the others"
    picking.commit()
    assert ids(warehouse) == [1, 2, 3]


def test_a_cherry_pick_of_a_snapshot_that_expired_meanwhile_is_refused_and_leaves_a_sound_table(
    warehouse: Warehouse, compactions: Compactions
) -> None:
    staged = staged_between(warehouse)
    table = java_table(warehouse)
    picking = table.manageSnapshots().cherrypick(staged)
    compactions.services.clock = lambda: datetime.now(timezone.utc) + timedelta(days=1)
    expire(warehouse, compactions)
    assert staged not in snapshots(warehouse)
    with pytest.raises(Exception, match=r"(?i)snapshot"):
        picking.commit()
    warehouse.check([{"id": 1}, {"id": 3}])
