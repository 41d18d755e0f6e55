"""Opens catalogs of Glue, and lists what they hold: one request answers 100 tables with their metadata files.

Nothing here needs boto3, which is installed only where Glue is used.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

from pyiceberg.catalog import AVAILABLE_CATALOGS, METADATA_LOCATION, TABLE_TYPE, Catalog, CatalogType
from pyiceberg.typedef import Properties

from compaction_pipeline.iceberg.catalogs.hive_tables import kind_of_marks
from compaction_pipeline.iceberg.catalogs.rest_catalog import RequestLimits

_ICEBERG = "iceberg"


def use_bounded_glue_catalogs(limits: RequestLimits) -> None:
    """Make PyIceberg open our Glue catalog. Opening one raises ModuleNotFoundError without boto3."""

    def opened(name: str, properties: Properties) -> Catalog:
        found: Any = importlib.import_module("compaction_pipeline.iceberg.catalogs.glue_catalog")
        return found.BoundedGlueCatalog(name, limits, **properties)  # type: ignore[no-any-return]

    AVAILABLE_CATALOGS[CatalogType.GLUE] = opened


def is_glue(catalog: Catalog) -> bool:
    """Whether this is a Glue catalog, ours or PyIceberg's."""
    return any(base.__name__ == "GlueCatalog" for base in type(catalog).__mro__)


def told_tables(catalog: Any, database: str) -> tuple[dict[str, str | None], dict[str, str]]:
    """The tables of a database of Glue, by their names: Iceberg's with their newest metadata files, if Glue knows them, and the other ones
    with what each is in words.
    """
    located: dict[str, str | None] = {}
    others: dict[str, str] = {}
    for table in _tables(catalog, database):
        parameters = table.get("Parameters", {})
        if is_iceberg_table(table):
            located[table["Name"]] = parameters.get(METADATA_LOCATION) or None
        else:
            storage = table.get("StorageDescriptor", {})
            library = storage.get("SerdeInfo", {}).get("SerializationLibrary") or ""
            others[table["Name"]] = kind_of_marks(parameters, table.get("TableType") or "", storage.get("InputFormat") or "", library)
    return located, others


def other_formats(catalog: Any, database: str) -> Iterator[tuple[str, str | None]]:
    """The tables of a database of Glue that PyIceberg does not list: their names and locations. A view has no location."""
    for table in _tables(catalog, database):
        if not is_iceberg_table(table):
            yield f"{database}.{table['Name']}", table.get("StorageDescriptor", {}).get("Location")


def _tables(catalog: Any, database: str) -> Iterator[dict[str, Any]]:
    for page in catalog.glue.get_paginator("get_tables").paginate(DatabaseName=database):
        yield from page["TableList"]


def is_iceberg_table(table: dict[str, Any]) -> bool:
    """Whether this table of Glue is Iceberg's."""
    return str(table.get("Parameters", {}).get(TABLE_TYPE, "")).lower() == _ICEBERG
