"""Tells of catalogs that look after their tables with a tool of their own, so that nothing may expire or be deleted here."""

from __future__ import annotations

from urllib.parse import urlsplit

from pyiceberg.table import Table

_NESSIE = "nessie.is-nessie-catalog"
"""Nessie says so in its answer to `GET /v1/config`. Source: `IcebergApiV1ConfigResource` of Nessie."""
_S3_TABLES = "--table-s3"
"""Amazon S3 Tables keeps each table in a bucket whose name ends so."""


def why_the_catalog_decides(table: Table) -> str | None:
    """Say which catalog has a tool of its own for this table; None when it has none that is known here."""
    if str(table.catalog.properties.get(_NESSIE, "")).lower() == "true":
        return (
            f"the catalog is Nessie ('{_NESSIE}' is true): other branches of the catalog need snapshots and files that are not seen here; "
            "use Nessie's garbage collector"
        )
    bucket = urlsplit(table.metadata.location).netloc
    if bucket.endswith(_S3_TABLES):
        return f"bucket {bucket} is one of Amazon S3 Tables, which expires snapshots and deletes files itself: set its maintenance there"
    return None
