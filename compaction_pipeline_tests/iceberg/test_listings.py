"""Listings of Hive, Glue and SQL catalogs tell where the newest metadata of each table is, and load none of them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from hive_metastore.ttypes import StorageDescriptor, Table

from compaction_pipeline.core.errors import CompactionError
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.iceberg.catalogs import Catalog
from compaction_pipeline.iceberg.catalogs.hive_catalog import BoundedHiveCatalog
from compaction_pipeline.iceberg.catalogs.listings import list_catalog
from compaction_pipeline.iceberg.catalogs.rest_catalog import RequestLimits
from compaction_pipeline_tests.iceberg.lake import Lake

DATABASES = [f"db{number}" for number in range(20)]


class _Connection:
    """A connection to a metastore of twenty databases. Frames of two threads would mix in it."""

    def __init__(self) -> None:
        self._thread: int | None = None

    def __enter__(self) -> _Connection:
        assert self._thread is None
        self._thread = threading.get_ident()
        return self

    def __exit__(self, *_: object) -> None:
        self._thread = None

    def _asked(self) -> None:
        assert self._thread == threading.get_ident()
        time.sleep(0.001)

    def get_all_databases(self) -> list[str]:
        self._asked()
        return DATABASES

    def get_all_tables(self, db_name: str) -> list[str]:
        self._asked()
        if db_name == "db7":
            raise TimeoutError("the metastore is silent")
        return ["orc", "ours"]

    def get_table_objects_by_name(self, dbname: str, tbl_names: list[str]) -> list[Table]:
        self._asked()
        parameters = {"orc": {}, "ours": {"table_type": "ICEBERG", "metadata_location": f"s3://b/{dbname}/m1"}}
        return [Table(name, dbname, parameters=parameters[name], sd=StorageDescriptor(location="s3://b")) for name in tbl_names]


def hive() -> Catalog:
    catalog = BoundedHiveCatalog("lake", RequestLimits(), uri="thrift://localhost:1")
    catalog._connect = _Connection  # type: ignore[assignment]
    return catalog


class GlueCatalog:
    """As much of PyIceberg's as is asked. Loading a table would raise."""

    def __init__(self) -> None:
        self.glue = self
        self.exceptions = SimpleNamespace(EntityNotFoundException=KeyError)

    def list_namespaces(self, namespace: Any = ()) -> list[tuple[str, ...]]:
        assert namespace == ()
        return [(database,) for database in DATABASES]

    def get_paginator(self, operation: str) -> GlueCatalog:
        assert operation == "get_tables"
        return self

    def paginate(self, DatabaseName: str) -> list[dict[str, Any]]:
        if DatabaseName == "db7":
            raise TimeoutError("Glue is silent")
        parameters = {"table_type": "ICEBERG", "metadata_location": f"s3://b/{DatabaseName}/m1"}
        return [{"TableList": [{"Name": "ours", "Parameters": parameters}]}, {"TableList": [{"Name": "orc"}]}]


@pytest.mark.parametrize("opened", [hive, GlueCatalog])
def test_a_listing_tells_all_places_and_one_silent_database_hides_no_other(opened: Callable[[], Any]) -> None:
    listed = list_catalog("lake", opened(), 10)
    assert listed.listing.tables == {
        TableIdentifier("lake", (database,), "ours"): f"s3://b/{database}/m1" for database in DATABASES if database != "db7"
    }
    ((namespace, why),) = listed.listing.failed.items()
    assert namespace == ("db7",)
    assert "silent" in why
    with pytest.raises(CompactionError, match="silent"):
        listed.tables()


def test_a_listing_of_a_sql_catalog_is_one_query_of_one_moment(lake: Lake) -> None:
    tables = [lake.table(name) for name in ("a", "b")]
    lake.catalog.create_namespace("empty")
    listed = list_catalog("lake", lake.catalog)
    assert listed.listing.tables == {one.identifier: one.table.metadata_location for one in tables}
    # A database tells all or fails, so an empty namespace of it is no doubt.
    assert (listed.listing.empty, listed.listing.failed) == (frozenset(), {})
