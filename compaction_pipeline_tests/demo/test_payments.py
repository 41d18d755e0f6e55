"""The demo's keyed table is made once, and a demo that was killed while it made the table is no hindrance."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyiceberg.exceptions import NoSuchTableError

from compaction_pipeline.core.errors import ConfigError
from compaction_pipeline.demo.options import DemoOptions
from compaction_pipeline.demo.payments import CHANGE_STORE, NAME, backlog_batches, make_payments, payment_stores
from compaction_pipeline.demo.tables import NAMESPACE
from compaction_pipeline.demo.warehouse import make_tables, open_catalog


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
