"""Hive and Glue have tables of other formats, which PyIceberg does not list: where they lie is known all the same.

The client of Glue is no dependency of the tests, so the shapes of its answers are copied here (boto3 1.40).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hive_metastore.ttypes import NoSuchObjectException, StorageDescriptor, Table

from compaction_pipeline.core.errors import StorageUnavailable
from compaction_pipeline.core.tables.table import CatalogEntry, TableIdentifier
from compaction_pipeline.iceberg.catalogs.hive_catalog import BoundedHiveCatalog
from compaction_pipeline.iceberg.catalogs.open_catalogs import Catalogs
from compaction_pipeline.iceberg.catalogs.rest_catalog import RequestLimits
from compaction_pipeline.iceberg.upkeep.look_at_files import IcebergFilesLooker


class _Metastore:
    """As much of the client of a metastore as is asked. It is its own connection."""

    def __enter__(self) -> _Metastore:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def get_all_databases(self) -> list[str]:
        return ["db"]

    def get_all_tables(self, db_name: str) -> list[str]:
        return ["ours", "orc", "view"]

    def get_table_objects_by_name(self, dbname: str, tbl_names: list[str]) -> list[Table]:
        def table(name: str, location: str | None, **parameters: str) -> Table:
            return Table(name, dbname, parameters=parameters, sd=StorageDescriptor(location=location))

        assert tbl_names == ["orc", "ours", "view"]
        return [
            table("ours", "s3://b/ours", table_type="ICEBERG"),
            table("orc", "s3://b/orc"),
            Table("view", dbname, parameters={}, sd=StorageDescriptor(), tableType="VIRTUAL_VIEW"),
        ]


class _Faulty(_Metastore):
    """It lists a database, and says that it does not exist."""

    def get_all_tables(self, db_name: str) -> list[str]:
        return []

    def get_database(self, name: str) -> None:
        raise NoSuchObjectException(name)


class _Dropping(_Faulty):
    """Somebody drops the database while it is asked."""

    def get_all_databases(self) -> list[str]:
        return []


def hive_catalog(*answers: Callable[[], Any]) -> BoundedHiveCatalog:
    """The catalog of a metastore. Each connection is the next of `answers`, and those after them are the last."""
    catalog, left = BoundedHiveCatalog("lake", RequestLimits(), uri="thrift://localhost:1"), list(answers or (_Metastore,))
    catalog._connect = lambda: (left.pop(0) if len(left) > 1 else left[0])()  # type: ignore[assignment,return-value]
    return catalog


class GlueCatalog:
    def __init__(self) -> None:
        self.glue = self

    def list_namespaces(self, namespace: Any = ()) -> list[tuple[str, ...]]:
        return [] if namespace else [("db",)]

    def get_paginator(self, operation: str) -> GlueCatalog:
        assert operation == "get_tables"
        return self

    def paginate(self, DatabaseName: str) -> list[dict[str, Any]]:
        def table(name: str, location: str, **parameters: str) -> dict[str, Any]:
            return {"Name": name, "Parameters": parameters, "StorageDescriptor": {"Location": location}}

        return [
            {"TableList": [table("ours", "s3://b/ours", table_type="iceberg")]},
            {"TableList": [table("orc", "s3://b/orc", table_type="EXTERNAL_TABLE"), {"Name": "view", "TableType": "VIRTUAL_VIEW"}]},
        ]


@pytest.mark.parametrize("kind", [hive_catalog, GlueCatalog])
def test_tables_of_other_formats_are_told_with_their_locations(kind: Callable[[], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    catalogs = Catalogs(lambda name: CatalogEntry(name, {}))
    monkeypatch.setattr(catalogs, "catalog", lambda name: kind())
    [hidden] = IcebergFilesLooker(catalogs).hidden("lake")
    assert (hidden.name, hidden.location, hidden.roots) == ("lake.db.orc (no Iceberg table)", "s3://b/orc", ())


@pytest.mark.parametrize("kind", [hive_catalog, GlueCatalog])
def test_a_listing_names_tables_of_other_formats_and_what_they_are(kind: Callable[[], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    catalogs = Catalogs(lambda name: CatalogEntry(name, {}))
    monkeypatch.setattr(catalogs, "catalog", lambda name: kind())
    listing = catalogs.listing("lake")
    assert list(listing.tables) == [TableIdentifier("lake", ("db",), "ours")]
    assert listing.others == {"lake.db.orc": "a table of Hive", "lake.db.view": "a view"}


def test_a_database_that_is_listed_and_denied_hides_no_tables() -> None:
    with pytest.raises(StorageUnavailable, match="lists the database db, and says that it does not exist"):
        list(hive_catalog(_Metastore, _Faulty).others())
    assert list(hive_catalog(_Metastore, _Faulty, _Dropping).others()) == []


def test_other_catalogs_hide_no_tables(lake: Any) -> None:
    lake.table()
    assert lake.catalogs.hidden("lake") == ()
