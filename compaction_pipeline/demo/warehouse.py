"""The demo's catalog and its tables, which are made when they are not there yet."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Any

import pyarrow.compute as pc
from pyiceberg.table import Table
from sqlalchemy import event

from compaction_pipeline.core.tables.table import CatalogEntry, TableIdentifier
from compaction_pipeline.demo.options import CATALOG, DemoOptions
from compaction_pipeline.demo.tables import EVENTS, NAMESPACE, PROPERTIES, TABLES, DemoTable
from compaction_pipeline.iceberg.catalogs import Catalog, SqlCatalog


def catalog_entry(options: DemoOptions) -> CatalogEntry:
    """The catalog as the program knows it, under the name `demo`."""
    return CatalogEntry(CATALOG, {"type": "sql", "uri": options.catalog_url, "warehouse": options.warehouse.as_uri()})


def open_catalog(options: DemoOptions) -> Catalog:
    """The catalog as a writer opens it. Its database is made when it is missing, and a writer waits for other writers."""
    catalog = SqlCatalog(CATALOG, **catalog_entry(options).properties)

    @event.listens_for(catalog.engine, "connect")
    def wait_for_others(connection: Any, _: object) -> None:
        connection.execute("pragma journal_mode = wal")
        connection.execute("pragma busy_timeout = 30000")

    # The pool already has the connection that made the tables, and that one lacks the settings above.
    catalog.engine.dispose()
    return catalog


def make_tables(options: DemoOptions) -> None:
    """Make the namespace and every table that is missing. Tables that are there stay as they are."""
    catalog = open_catalog(options)
    catalog.create_namespace_if_not_exists(NAMESPACE)
    for table in TABLES.values():
        catalog.create_table_if_not_exists(
            (NAMESPACE, table.name), table.schema, partition_spec=table.spec, properties={**PROPERTIES, **table.properties}
        )
    catalog.close()


def open_table(options: DemoOptions, table: DemoTable) -> Table:
    """The table at its newest snapshot."""
    return open_catalog(options).load_table((NAMESPACE, table.name))


def newest_snapshots(options: DemoOptions) -> dict[str, int | None]:
    """The newest snapshot of each table by the table's name, or None for a table without a snapshot."""
    catalog = open_catalog(options)
    try:
        return {name: catalog.load_table((NAMESPACE, name)).metadata.current_snapshot_id for name in TABLES}
    finally:
        catalog.close()


def identifier(table: DemoTable) -> TableIdentifier:
    return TableIdentifier(CATALOG, (NAMESPACE,), table.name)


def bought_between(options: DemoOptions, start: datetime, end: datetime) -> tuple[int, Decimal]:
    """How many events occurred from `start` on and before `end`, and for how much was bought."""
    occurred = f"occurred_at >= '{start.isoformat()}' and occurred_at < '{end.isoformat()}'"
    rows = open_table(options, EVENTS).scan(occurred, selected_fields=("kind", "amount")).to_arrow()
    bought = pc.sum(rows.filter(pc.equal(rows["kind"], "buy"))["amount"]).as_py()
    return rows.num_rows, bought or Decimal(0)
