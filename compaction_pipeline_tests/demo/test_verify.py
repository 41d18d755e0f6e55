"""The demo's comparison finds every row that is lost, revived, doubled or changed, in tables that are written as Flink writes them."""

from __future__ import annotations

import uuid
from collections import Counter
from contextlib import closing
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.manifest import DataFileContent

from compaction_pipeline.core.tables.data_file import FileContent
from compaction_pipeline.demo.change_log import BATCH_PROPERTY, ChangeLog
from compaction_pipeline.demo.live_files import LiveFiles
from compaction_pipeline.demo.options import DemoOptions
from compaction_pipeline.demo.row_delta import row_delta
from compaction_pipeline.demo.tables import DEVICES, EVENTS, ORDERS, TABLES, Change, DemoTable
from compaction_pipeline.demo.verify import compare, table_rows
from compaction_pipeline.demo.warehouse import make_tables, open_table
from compaction_pipeline.demo.write_files import write_parquet_file
from compaction_pipeline.demo.writers import Writer, write_batch

_NOW = datetime(2026, 3, 1, 12, tzinfo=timezone.utc)


@pytest.fixture
def options(tmp_path: Path) -> DemoOptions:
    options = DemoOptions(tmp_path / "demo")
    options.make_folders()
    make_tables(options)
    return options


def _write(options: DemoOptions, table: DemoTable, batches: int = 6) -> int:
    with closing(Writer(options, table, seed=7)) as writer:
        return sum(writer.commit_batch(_NOW) for _ in range(batches))


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_what_a_writer_wrote_is_what_its_log_says(options: DemoOptions, table: DemoTable) -> None:
    files = _write(options, table)
    comparison = compare(options, table)
    assert comparison.equal, str(comparison)
    assert comparison.rows > 0
    census = LiveFiles(open_table(options, table)).census(small_bytes=1 << 20)
    assert census.files == files == census.small_files
    assert census.nodes == {"events": 3, "orders": 8, "devices": 1}[table.name]


def test_orders_are_deleted_by_equality_and_by_position(options: DemoOptions) -> None:
    _write(options, ORDERS)
    kinds = Counter(entry.content for entry in LiveFiles(open_table(options, ORDERS)).entries())
    assert min(kinds[kind] for kind in DataFileContent) > 0


def test_a_lost_row_is_found(options: DemoOptions) -> None:
    _write(options, DEVICES)
    table = open_table(options, DEVICES)
    key = sorted(table_rows(table))[0].split('"')[5]
    lost = write_parquet_file(
        table, pa.table({"device_id": [key]}), content=FileContent.EQUALITY_DELETES, equality_ids=[1], name=f"lost-{uuid.uuid4().hex}"
    )
    row_delta(table, equality_deletes=[(lost, [1])])
    comparison = compare(options, DEVICES)
    assert (comparison.missing.total(), comparison.unexpected.total()) == (1, 0)
    assert f"1 missing, 0 unexpected\n    missing     {next(iter(comparison.missing))}" in str(comparison)


def test_a_doubled_row_is_found(options: DemoOptions) -> None:
    _write(options, EVENTS)
    table = open_table(options, EVENTS)
    entry = next(iter(LiveFiles(table).entries()))
    row = pq.read_table(entry.path.removeprefix("file://")).slice(0, 1)
    record = next(
        item.data_file.partition
        for manifest in table.current_snapshot().manifests(table.io)  # type: ignore[union-attr]
        for item in manifest.fetch_manifest_entry(table.io)
        if item.data_file.file_path == entry.path
    )
    row_delta(table, [write_parquet_file(table, row, content=FileContent.DATA, partition=record, name="doubled")])
    comparison = compare(options, EVENTS)
    assert (comparison.missing.total(), comparison.unexpected.total()) == (0, 1)


def test_an_equality_delete_does_not_reach_rows_of_its_own_snapshot(options: DemoOptions) -> None:
    table = open_table(options, DEVICES)
    row = {"device_id": "a", "temperature": 1.5, "battery": 1, "seen_at": _NOW}
    for batch in ("one", "two"):
        files = write_batch(table, DEVICES, [Change("a", row)], batch)
        row_delta(table, files.data, files.position_deletes, [(file, [1]) for file in files.equality_deletes])
    assert table_rows(table).total() == 1


def test_a_batch_that_a_killed_writer_left_open_is_settled_by_the_table(options: DemoOptions) -> None:
    _write(options, DEVICES, batches=1)
    table = open_table(options, DEVICES)
    row = {"device_id": "device-new", "temperature": 1.5, "battery": 1, "seen_at": _NOW}
    changes = [Change("device-new", row)]
    with closing(ChangeLog(options.changes, DEVICES.name)) as log:
        log.begin("never committed", [Change("device-lost", {**row, "device_id": "device-lost"})])
        log.begin("committed", changes)
        files = write_batch(table, DEVICES, changes, "committed")
        row_delta(table, files.data, files.position_deletes, [(f, [1]) for f in files.equality_deletes], {BATCH_PROPERTY: "committed"})
        assert log.expected_rows() != table_rows(table)
        before = log.files_written()
    comparison = compare(options, DEVICES)
    assert comparison.equal, str(comparison)
    with closing(ChangeLog(options.changes, DEVICES.name)) as log:
        assert log.files_written() == before + len(files)


def test_expired_snapshots_take_no_row_with_them(options: DemoOptions) -> None:
    with closing(Writer(options, ORDERS, seed=7)) as writer:
        for _ in range(4):
            writer.commit_batch(_NOW)
        writer.expire_snapshots(datetime.now(timezone.utc) + timedelta(days=1))
        writer.commit_batch(_NOW)
    assert len(open_table(options, ORDERS).snapshots()) == 2
    assert compare(options, ORDERS).equal
