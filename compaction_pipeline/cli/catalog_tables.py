"""How catalogs are shown in a terminal. Secrets are masked."""

from __future__ import annotations

from collections.abc import Iterable

from rich.markup import escape
from rich.table import Table

from compaction_pipeline.cli.render import titled_table
from compaction_pipeline.core.catalogs.change import holder
from compaction_pipeline.core.catalogs.keys import OBSERVE
from compaction_pipeline.core.catalogs.value import is_default
from compaction_pipeline.core.insight.masking import masked_properties
from compaction_pipeline.core.tables.table import CatalogEntry


def catalogs_table(entries: Iterable[CatalogEntry]) -> Table:
    """Each catalog's name, mode and properties. Secrets are masked."""
    table = titled_table("catalogs", "catalog", "mode", "properties")
    for entry in entries:
        properties = "\n".join(f"{key}={value}" for key, value in sorted(masked_properties(entry.properties).items()))
        table.add_row(escape(entry.name), _mode(entry), escape(properties))
    return table


def _mode(entry: CatalogEntry) -> str:
    return "unreadable" if entry.unreadable else "observed only" if entry.observe else "compacted"


def catalog_table(entry: CatalogEntry) -> Table:
    """Each key of a catalog, its value, and who holds it. Secrets are masked."""
    table = titled_table(f"catalog {entry.name}", "key", "value", "source")
    shown = {OBSERVE: str(entry.observe).lower(), **dict(sorted(masked_properties(entry.properties).items()))}
    for key, value in shown.items():
        table.add_row(escape(key), escape(value), "the default" if is_default(entry, key) else holder(entry, key).in_words)
    return table
