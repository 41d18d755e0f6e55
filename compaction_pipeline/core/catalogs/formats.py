"""Which formats of tables a catalog has compacted, and which are none of ours."""

from __future__ import annotations

from collections.abc import Mapping

from compaction_pipeline.core.catalogs.keys import TABLE_FORMATS
from compaction_pipeline.core.tables.table import TableIdentifier, TableLayout

PLAIN, KEYED = "iceberg", "mixed-iceberg"
FORMATS = (PLAIN, KEYED)
"""The formats that this program compacts: plain tables, and keyed ones, which Amoro calls Mixed-Iceberg."""
FOREIGN_FORMATS = ("mixed-hive", "paimon", "hudi", "delta")
"""Formats that Amoro knows and this program leaves alone."""


def formats_of(text: str) -> tuple[str, ...]:
    """The formats that a text names, in our spelling."""
    return tuple(one.strip().lower().replace("_", "-") for one in text.split(",") if one.strip())


def why_format_left_out(table: TableIdentifier, layout: TableLayout | None, properties: Mapping[str, str]) -> str | None:
    """Say that the format of a table is none that its catalog has compacted; None when it is one, or when nobody has read the table yet."""
    wanted = properties.get(TABLE_FORMATS)
    if wanted is None or layout is None:
        return None
    is_format = KEYED if layout.kind.beside else PLAIN
    if is_format in formats_of(wanted):
        return None
    return (
        f"'{TABLE_FORMATS}' of catalog {table.catalog} is {wanted}, and this table is {is_format}: "
        f"`catalog change {table.catalog} --unset {TABLE_FORMATS}` lets it be compacted"
    )
