"""The demo's keyed table is made once, and a demo that was killed while it made the table is no hindrance."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.exceptions import NoSuchTableError

from compaction_pipeline.core.errors import ConfigError
from compaction_pipeline.core.planning.plan import PlanRequest
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.work.kinds import CompactionType
from compaction_pipeline.demo.options import CATALOG, DemoOptions
from compaction_pipeline.demo.payments import CHANGE_STORE, NAME, PaymentsStream, backlog_batches, make_payments, payment_stores
from compaction_pipeline.demo.tables import NAMESPACE
from compaction_pipeline.demo.warehouse import catalog_entry, make_tables, open_catalog
from compaction_pipeline.keyed import KeyedTable
from compaction_pipeline.settings import Settings
from compaction_pipeline_tests.opened import OpenedServices


@pytest.fixture
def options(tmp_path: Path) -> DemoOptions:
    options = DemoOptions(tmp_path / "demo")
    options.make_folders()
    make_tables(options)
    make_payments(options)
    return options


def test_a_table_that_is_there_stays_as_it_is(options: DemoOptions) -> None:
    before = [store.metadata.table_uuid for store in payment_stores(options)]
    make_payments(options)
    assert [store.metadata.table_uuid for store in payment_stores(options)] == before


def test_a_change_store_without_its_base_store_is_made_anew(options: DemoOptions) -> None:
    _, change = payment_stores(options)
    open_catalog(options).drop_table((NAMESPACE, NAME))
    with pytest.raises(NoSuchTableError):
        payment_stores(options)
    make_payments(options)
    assert payment_stores(options)[1].metadata.table_uuid != change.metadata.table_uuid
    assert payment_stores(options)[1].name() == (NAMESPACE, CHANGE_STORE)


def test_a_change_store_with_rows_is_not_dropped(options: DemoOptions) -> None:
    _, change = payment_stores(options)
    change.append(change.scan().to_arrow().slice(0, 0))
    open_catalog(options).drop_table((NAMESPACE, NAME))
    with pytest.raises(ConfigError, match="is gone, but its change store has rows: run `make demo-clean`"):
        make_payments(options)
    assert open_catalog(options).load_table((NAMESPACE, CHANGE_STORE)).metadata.table_uuid == change.metadata.table_uuid


def test_the_backlog_grows_with_that_of_the_other_tables(tmp_path: Path) -> None:
    batches = [backlog_batches(DemoOptions(tmp_path, backlog_files=files)) for files in (1, 100, 2_000, 20_000)]
    assert batches == [2, 2, 24, 240]


def test_rounds_of_upkeep_empty_the_change_store_and_the_stream_still_finds_its_batches(options: DemoOptions) -> None:
    catalog, now = open_catalog(options), datetime.now(timezone.utc)
    table = KeyedTable.open(catalog, (NAMESPACE, NAME))
    services = OpenedServices(Settings(home=options.home, merge_engine="in-process"), clock=lambda: now)
    services.stores.catalogs.add(catalog_entry(options))
    services.explore_catalogs.explore()
    payments = TableIdentifier(CATALOG, (NAMESPACE,), NAME)
    for number in range(3):
        rows = [{"payment_id": number, "_change_type": "INSERT"}]
        schema = pa.schema([*((field.name, field.type) for field in table.scan().schema), ("_change_type", pa.string())])
        table.write_changes(pa.Table.from_pylist(rows, schema=schema), sink_id="payments", batch=number)
        services.compact_tables.compact(payments, PlanRequest((CompactionType.FULL,), force=True))
    services.refresh_files.refresh(payments)
    for _ in range(3):
        now += timedelta(minutes=11)
        assert not services.upkeep_tables.run().failed
        services.refresh_files.refresh(payments)
    change = payment_stores(options)[1]
    assert change.inspect.data_files().num_rows == 0
    assert not list(Path(change.location().removeprefix("file://")).rglob("*.parquet"))
    assert table.scan().to_arrow().num_rows == 3
    stream = PaymentsStream(options)
    assert [stream.files_of_batch(f"{number}-x") for number in (2, 3)] == [0, None]
    table.write_changes(pa.Table.from_pylist(rows, schema=schema), sink_id="payments", batch=3)
    assert stream.files_of_batch("3-x") == 2
    stream.close()
    services.close()
